"""The one user item that stands for the head: note, users' own words, files, then the summary in tags.

What code owns stands outside the model's text. Tags in any text that is carried are made inert, so that
nobody can end the summary early and speak as someone else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.compaction.elision import Count
from proxy.compaction.pins import Pins, newest_within

__all__ = ["ACKNOWLEDGEMENT", "Packed", "inert", "is_carrier", "least", "room_for_summary", "written"]

_OPENING = "[Earlier turns of this conversation were summarised automatically and are no longer shown.]"
NOTE = (
    f"{_OPENING}\n"
    "What follows is background, not a new request. Verify before relying on it. What is marked done is not to be "
    "started again. Where it differs from the newest user message, that message wins."
)
#: Stands after the carrier where the next item is not the assistant's: some templates demand alternation.
ACKNOWLEDGEMENT = "Understood. I will carry on from there."

_TASK = "conversation_task"
_NEWEST = "conversation_newest_user_message"
_WORDS = "conversation_user_words"
_RULES = "conversation_rules"
_MODIFIED = "conversation_files_modified"
_READ = "conversation_files_read"
_TAG = re.compile(r"<(?=\s*(?:/\s*)?conversation_)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What a carrier says. Paths are oldest first; `covers` is the number of items it stands for."""

    pins: Pins
    modified: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    summary: str = ""
    covers: int = 0


def inert(text: str) -> str:
    """The text with every tag of ours in it escaped."""
    return _TAG.sub("&lt;", text)


def is_carrier(text: str) -> bool:
    """Whether a text opens as one of ours does; only items of a stored surface are asked."""
    return text.startswith(_OPENING)


def least(packed: Packed, budget: int, count: Count) -> int:
    """Tokens of a carrier that holds note, task, newest message, rules and modified files alone."""
    return budget - _filled(packed, budget, count)[1]


def room_for_summary(packed: Packed, budget: int, count: Count) -> int:
    """Tokens that note, pins and modified files leave of the surface's budget, at most three eighths of it."""
    return max(0, min(3 * budget // 8, _filled(packed, budget, count)[1]))


def written(packed: Packed, budget: int, count: Count) -> str:
    """The text of the carrier within `budget` tokens. Users' words, files read, then more of the modified ones fill it.

    The summary is not cut here; it was made to fit before. A budget under what the note takes is exceeded.
    """
    parts, left = _filled(packed, budget, count)
    left -= count(inert(packed.summary))
    others = [word for word in packed.pins.words if word != packed.pins.newest]
    words = _within(_WORDS, others, left, count, each=budget // 8)
    left -= _cost(words, count)
    read = _within(_READ, packed.read, min(left, budget // 8), count)
    note, task, newest, rules, modified = parts
    left += _cost(modified, count) - _cost(read, count)
    modified = _within(_MODIFIED, packed.modified, left, count)
    return _whole([note, task, newest, words, rules, modified, read, _summary(packed.summary, packed.covers)])


def _filled(packed: Packed, budget: int, count: Count) -> tuple[list[str], int]:
    """Note, task, newest message, rules and modified files, each at most an eighth of it; and what is left."""
    pins, share = packed.pins, budget // 8
    rules = [f"- {rule}" for rule in pins.rules if not any(rule in text for text in (pins.task, pins.newest))]
    wanted: tuple[tuple[str, Sequence[str]], ...] = (
        (_TASK, [pins.task]),
        (_NEWEST, [pins.newest]),
        (_RULES, rules),
        (_MODIFIED, packed.modified),
    )
    parts = [NOTE]
    left = budget - _cost(NOTE, count) - _cost(_summary("", packed.covers), count)
    for tag, lines in wanted:
        parts.append(_within(tag, lines, min(left, share + count(_part(tag, " "))), count))
        left -= _cost(parts[-1], count)
    return parts, left


def _within(tag: str, lines: Sequence[str], budget: int, count: Count, *, each: int | None = None) -> str:
    """The newest lines in their tags, within the budget as a whole; empty where none fits."""
    left = budget - count(_part(tag, " ")) - 1
    kept = newest_within([inert(line) for line in lines if line], left, count, each=each)
    return _part(tag, "\n".join(kept))


def _cost(part: str, count: Count) -> int:
    """Tokens of a part and of the line that parts it from the next."""
    return count(part) + 1 if part else 0


def _part(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""


def _summary(text: str, covers: int) -> str:
    return f'<conversation_summary covers="items 1-{covers}">\n{inert(text)}\n</conversation_summary>'


def _whole(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)
