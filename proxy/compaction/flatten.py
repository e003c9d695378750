"""The head as text, for a summariser that has no cache of it: one JSON object a message, long results cut.

No tools, no system text, no reasoning. Pure but for the counting that is passed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.compaction.elision import Count, cut
from proxy.compaction.wording import inert
from proxy.dialects import Said

__all__ = ["CUTS", "Cut", "chunks", "line", "size"]

#: Characters of a line that is cut into pieces for each token of room: more is cut before it is counted.
_PER_TOKEN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How tool results and the arguments of calls are cut, in code points."""

    limit: int
    head: int
    tail: int


#: The gentlest first: the next is for where the one before leaves too much.
CUTS = (
    Cut(limit=2_000, head=1_500, tail=400),
    Cut(limit=1_000, head=700, tail=200),
    Cut(limit=500, head=320, tail=100),
)


def line(said: Said, how: Cut) -> str:
    """What an item says, as one line of JSON; empty where it says nothing."""
    found: dict[str, object] = {"role": said.role}
    if said.text.strip():
        found["text"] = said.text
    if said.calls:
        found["calls"] = [{"name": call.name, "arguments": _short(_plain(call.arguments), how)} for call in said.calls]
    if said.results:
        found["results"] = [
            {"text": _short(result.text, how), **({"error": True} if result.error else {})} for result in said.results
        ]
    return inert(json.dumps(found, ensure_ascii=False)) if len(found) > 1 else ""


def size(lines: Sequence[str], count: Count) -> int:
    """Tokens of lines one below the other."""
    return sum(count(one) + 1 for one in lines)


def chunks(units: Sequence[Sequence[str]], rooms: tuple[int, int], most: int, count: Count) -> list[str] | None:
    """Fill at most `most` chunks, the first of `rooms[0]` tokens and the others of `rooms[1]`; None where that is few.

    A unit that fits a chunk stays whole, a line that fits one does too; only what fits none is cut, as text.
    """
    filled: list[list[str]] = [[]]
    left = rooms[0]
    for piece, cost in _pieces(units, rooms[1], count):
        if cost > left and filled[-1]:
            if len(filled) == most:
                return None
            filled.append([])
            left = rooms[1]
        filled[-1] += piece
        left -= cost
    return ["\n".join(one) for one in filled]


def _pieces(units: Sequence[Sequence[str]], room: int, count: Count) -> Iterator[tuple[Sequence[str], int]]:
    """What is not parted: units, lines of those that are too large, pieces of lines that are; each with its tokens."""
    for unit in units:
        cost = size(unit, count)
        if cost <= room:
            yield unit, cost
            continue
        for one in unit:
            for piece in _cut_up(one, room, count):
                yield (piece,), count(piece) + 1


def _cut_up(text: str, room: int, count: Count) -> Iterator[str]:
    """The text in pieces that fit; the text itself where it does."""
    while text:
        length = min(len(text), room * _PER_TOKEN)
        while length > 1 and (cost := count(text[:length]) + 1) > room:
            length = max(1, min(length * room // cost, length * 9 // 10))
        yield text[:length]
        text = text[length:]


def _short(text: str, how: Cut) -> str:
    return cut(text, limit=how.limit, head=how.head, tail=how.tail)


def _plain(arguments: str) -> str:
    """Arguments in one spelling: an agent that repeats a request may spell them otherwise each time (rule 5.7)."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
