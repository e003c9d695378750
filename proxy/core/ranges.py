"""Units, and where a conversation may be cut: the head goes, the tail stays raw.

A cut stands before an item. It is legal where no tool call of an earlier item still waits for a
result of a later one, and never between an insignificant item and the one it belongs to, nor inside a
step that is spelt as several items in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from proxy.core.transcript import Item

__all__ = ["Unit", "head_for_overflow", "head_for_pressure", "units"]

#: A range `(start, stop)` over items that may not be split.
Unit = tuple[int, int]


def units(items: Sequence[Item]) -> tuple[Unit, ...]:
    """Split `items` into the smallest ranges that may stand or go alone, in order and without gaps.

    A call that is never answered keeps everything after it; a result nobody asked for is a message
    like any other. An insignificant item joins the next significant one, the last ones the unit before.
    """
    glued = _glued(items)
    starts = [0, *(at for at in range(1, len(items)) if not glued[at]), len(items)]
    return tuple(pairwise(starts)) if items else ()


def head_for_pressure(
    items: Sequence[Item], parts: Sequence[Unit], tokens: Sequence[int], *, tail: int, packed: int
) -> int:
    """How many items to replace so that the longest run of whole units within `tail` tokens stays raw.

    At least the newest unit stays. Where the run starts with another than an assistant item, it is
    shortened to the next one that does (some chat templates demand alternation), but not at the price
    of the newest user message. The first `packed` items are an earlier summary: a head reaches past
    them. 0 where no legal cut does.
    """
    cuts = _cuts(parts, packed)
    if not cuts:
        return 0
    after = [*accumulate(reversed(tokens), initial=0)][::-1]
    cut = next((at for at in cuts if after[at] <= tail), cuts[-1])
    newest_user = max((at for at, item in enumerate(items) if item.facts.role == "user"), default=-1)
    allowed = (at for at in cuts if at >= cut and (at <= newest_user or newest_user < cut))
    return next((at for at in allowed if items[at].facts.role == "assistant"), cut)


def head_for_overflow(parts: Sequence[Unit], *, packed: int) -> int:
    """How many items to replace so that only the newest unit stays; 0 where no cut reaches past `packed`."""
    cuts = _cuts(parts, packed)
    return cuts[-1] if cuts else 0


def _cuts(parts: Sequence[Unit], packed: int) -> list[int]:
    """The legal cuts that give the head something new and leave at least the newest unit."""
    return [start for start, _ in parts if start > packed]


def _glued(items: Sequence[Item]) -> list[bool]:
    """For each place before an item, whether a cut there would split what belongs together."""
    glued = [False] * (len(items) + 1)
    waiting: dict[str, int] = {}
    latest: dict[str, int] = {}
    reach = list(range(len(items)))
    for at, item in enumerate(items):
        for call in item.facts.opens:
            waiting.setdefault(call, at)
            latest[call] = at
        for call in item.facts.answers:
            start = waiting.pop(call, latest.get(call))
            if start is not None:
                reach[start] = max(reach[start], at)
    for start in waiting.values():
        reach[start] = len(items) - 1
    furthest = 0
    for at, item in enumerate(items):
        glued[at] = furthest >= at > 0 or _one_step(items, at)
        furthest = max(furthest, reach[at], at if item.facts.significant else at + 1)
    return _glue_end(items, glued)


def _one_step(items: Sequence[Item], at: int) -> bool:
    return at > 0 and items[at].facts.joins and items[at - 1].facts.joins


def _glue_end(items: Sequence[Item], glued: list[bool]) -> list[bool]:
    """Insignificant items at the very end have no next one: they stay with the unit before them."""
    at = len(items) - 1
    while at > 0 and not items[at].facts.significant:
        glued[at] = True
        at -= 1
    return glued
