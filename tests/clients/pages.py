"""What the agents read: pages of notes, large enough that a dozen of them fill a window.

Only the standard library: the clients' own scripts, which run in another environment, import it too.
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e import agent

#: Characters of a page, pages read in a turn, turns of a session: 28 pages are more than three windows of text.
SIZE, PAGES, TURNS = 16_000, 4, 7
#: The window every model has, in tokens of four characters.
WINDOW = 32_768


def page(number: int) -> str:
    """The text of a page, the same whenever it is read."""
    return agent._source(number, SIZE)


def name(number: int) -> str:
    """The file it lies in, for clients that read files."""
    return f"page_{number}.txt"


def prompt(turn: int) -> str:
    """What the user says in a turn."""
    return f"Step {turn}: read the next pages of the notes. Always write amounts in cents."


def done(turn: int) -> str:
    """What the model says when it has read them."""
    return f"Step {turn} is done."


def lay(folder: Path) -> None:
    """Put all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 3 * PAGES * TURNS):
        (folder / name(number)).write_text(page(number))
