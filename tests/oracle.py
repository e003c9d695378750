"""What must come of a random compactor: a model of ledger and job in a few lists, and the script that acts it out.

The model knows nothing of the code: a surface is a list of messages, a commit a step of a counter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from random import Random
from typing import Any

from proxy.compaction.work import Work
from proxy.core.surface import Keep, Put, raw_projection
from proxy.dialects.chat import CHAT
from proxy.surfaces import Applied
from tests.phrases import BRANCH, HISTORY, body, note
from tests.playbook import World

#: What a random compactor may do, and how often.
DEEDS = {
    "replace": 5,
    "shave": 2,
    "elsewhere": 3,
    "branch": 2,
    "empty": 1,
    "garbage": 1,
    "split": 1,
    "wait": 2,
}
ENDS = {"return": 8, "raise": 4, "cancel": 1, "hang": 1}
_SHRINKS = 0.98


@dataclass(frozen=True, slots=True)
class Deed:
    """One deed: its name, how many items of the view it replaces, the note it puts there."""

    name: str
    through: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Compaction:
    """One call of the compactor: what it does, and how it ends."""

    deeds: tuple[Deed, ...]
    end: str


def drawn(random: Random) -> Compaction:
    """Draw a compaction."""
    names = random.choices([*DEEDS], [*DEEDS.values()], k=random.choice((0, 1, 1, 1, 2, 3)))
    deeds = tuple(Deed(name, random.randint(2, len(HISTORY) - 1), f"note {random.getrandbits(32):x}") for name in names)
    return Compaction(deeds, random.choices([*ENDS], [*ENDS.values()])[0])


# --- the model ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Book:
    """A ledger: its counter, what it makes of the conversation (`items`, the generation that made it), the branch."""

    counter: int = 0
    items: tuple[bytes, ...] = HISTORY
    made: int = 0
    branched: bool = False


@dataclass(frozen=True, slots=True)
class Mind:
    """What a job believes: the counter it loaded, the items it sees, the generation they are of."""

    counter: int
    items: tuple[bytes, ...]
    made: int
    over: bool = False


@dataclass(slots=True)
class Oracle:
    """Follows a request: which copies the upstream must see."""

    size: Callable[[tuple[bytes, ...]], int]
    book: Book = field(default_factory=Book)
    commits: int = 0

    def compact(self, compaction: Compaction) -> None:
        """What a compaction leaves in the book."""
        mind = Mind(self.book.counter, self.book.items, self.book.made)
        for deed in compaction.deeds:
            if deed.name in ("replace", "shave"):
                mind = self._propose(mind, deed)
            elif deed.name == "elsewhere":
                self._propose(changed(mind, over=False), deed)
            elif deed.name == "branch" and mind.counter == self.book.counter:
                self.book.counter += 1
                self.commits += 1
                self.book.branched = True

    def _propose(self, mind: Mind, deed: Deed) -> Mind:
        through, text = _cut(deed, len(mind.items), fixed=1 if mind.made else 0)
        items = (note(text), *mind.items[through:])
        if mind.over or not through or self.size(items) >= self.size(mind.items):
            return mind
        if mind.counter != self.book.counter and mind.made != self.book.made:
            return Mind(self.book.counter, self.book.items, self.book.made, over=True)  # the race is lost
        self.book.counter += 1
        self.commits += 1
        self.book.items, self.book.made = items, self.book.counter
        return Mind(self.book.counter, items, self.book.made)

    def authorises(self, items: tuple[bytes, ...], made: int) -> bool:
        """Whether a rejected body (of that generation) may be followed by another copy."""
        fits = self.size(self.book.items) <= self.size(items) * _SHRINKS
        return self.book.made > made and self.book.items != items and fits


def _cut(deed: Deed, items: int, *, fixed: int) -> tuple[int, str]:
    """How many items a deed replaces in a view of so many, 0 for none; and by which text."""
    if deed.name == "shave":
        return (0, "") if fixed else (1, deed.text + " the" * 205)
    return min(deed.through, items - 1), deed.text


# --- the act ------------------------------------------------------------------------------------------


def acting(compactions: list[Compaction]) -> Callable[[World, Any], Any]:
    """A script that acts the compactions out, one a call."""
    left = iter(compactions)

    async def script(world: World, job: Any) -> str:
        compaction = next(left)
        for deed in compaction.deeds:
            await _act(world, job, deed)
        if compaction.end == "raise":
            raise RuntimeError("scripted")
        if compaction.end == "cancel":
            raise asyncio.CancelledError
        if compaction.end == "hang":
            await asyncio.sleep(60)
        return "all is well"

    return script


async def _act(world: World, job: Any, deed: Deed) -> None:
    view = job.view
    through, text = _cut(deed, len(view.items), fixed=view.fixed)
    match deed.name:
        case "replace" | "shave" if through:
            await job.propose((Put(CHAT.user(text)),), through)
        case "elsewhere":
            await world.elsewhere(job).propose((Put(CHAT.user(text)),), through)
        case "branch":
            turn = world.turn(body(*BRANCH))
            applied = Applied(record=job.applied.record, projection=raw_projection(turn.transcript))
            await Work(changed(job._subject, ledger=world.others), applied).propose(
                (Put(CHAT.user(NOTE)), Keep(len(HISTORY) - 1, len(HISTORY))), len(HISTORY)
            )
        case "empty":
            await job.propose((), through)
        case "garbage":
            await job.propose((Put(b"{"),), through)
        case "split":
            await job.propose((Put(CHAT.user(text)),), len(view.items) + 3)
        case "wait":
            await asyncio.sleep(0.001)


NOTE = "a note of the branch"
