"""What a head amounts to: the pins, files and memory that code carries on, and the carrier's text.

Pure but for the counting that is passed in. A surface built before is part of the head; what it stood
for comes from `Carry`, never from its text.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.compaction import carrier, files, outline, pins
from proxy.compaction.elision import Count
from proxy.compaction.job import View
from proxy.core.surface import Carry
from proxy.dialects import Said

__all__ = ["Head", "already_packed", "head", "kept"]

_MOST_PATHS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first items of a view, read: what is carried on from them, uncut, and what they said."""

    pins: pins.Pins
    modified: tuple[str, ...]
    read: tuple[str, ...]
    said: tuple[Said, ...]
    earlier: Carry
    covers: int

    def packed(self, budget: int, count: Count, summary: str = "") -> carrier.Packed:
        """What a carrier of `budget` tokens says of it."""
        return carrier.Packed(
            pins=pins.fitted(self.pins, budget, count),
            modified=self.modified,
            read=self.read,
            summary=summary,
            covers=self.covers,
        )

    def least(self, budget: int, count: Count) -> int:
        """Tokens of the carrier without a summary, users' words and files read."""
        return carrier.least(self.packed(budget, count), budget, count)

    def memory(self) -> dict[str, tuple[str, ...]]:
        """What an outline of it remembers, the earlier outline merged in."""
        return outline.remembered(self.said, self.earlier.outline)

    def carry(self, budget: int, count: Count, memory: dict[str, tuple[str, ...]]) -> Carry:
        """What goes on to the next compaction, small enough for a surface of `budget` tokens."""
        found = pins.fitted(self.pins, budget, count)
        return Carry(
            task=found.task,
            rules=found.rules,
            words=found.words,
            modified=self.modified[-_MOST_PATHS:],
            read=self.read[-_MOST_PATHS:],
            outline=memory,
        )


def already_packed(view: View) -> int:
    """How many of the first items are an earlier summary with what was kept beside it; 0 where there is none."""
    if not view.fixed or not _is_carrier(view, 0):
        return 0
    beside = (at for at in range(1, view.fixed) if not view.items[at].facts.stays and not _is_acknowledgement(view, at))
    return next(beside, view.fixed)


def kept(view: View, cut: int) -> tuple[int, ...]:
    """The items before `cut` that stay as they are: system text, an upstream's own compaction."""
    return tuple(at for at in range(cut) if view.items[at].facts.stays)


def head(view: View, cut: int) -> Head:
    """Read the first `cut` items of a view."""
    packed = already_packed(view)
    own = [
        at
        for at in range(len(view.items))
        if not (at < packed and (_is_carrier(view, at) or _is_acknowledgement(view, at)))
    ]
    said = tuple(view.dialect.said(view.items[at].raw) for at in own if at < cut)
    users = [one.text for one in said if one.role == "user"]
    before = pins.Pins(task=view.carry.task, rules=view.carry.rules, words=view.carry.words)
    found = pins.pins(
        users,
        before=before,
        patterns=view.policy.pin_patterns,
        newest_in_head=not any(at >= cut and view.items[at].facts.role == "user" for at in own),
    )
    modified, read = files.merged(
        (view.carry.modified, view.carry.read), files.touched(call for one in said for call in one.calls)
    )
    return Head(pins=found, modified=modified, read=read, said=said, earlier=view.carry, covers=_covers(view, cut))


def _covers(view: View, cut: int) -> int:
    """The client's significant items that a replacement of the first `cut` items stands for."""
    return view.covered + sum(view.items[at].facts.significant for at in range(view.fixed, cut))


def _is_carrier(view: View, at: int) -> bool:
    """Whether a surface put a carrier there: a client's own text may begin like one."""
    if at not in view.put:
        return False
    said = view.dialect.said(view.items[at].raw)
    return said.role == "user" and carrier.is_carrier(said.text)


def _is_acknowledgement(view: View, at: int) -> bool:
    if at not in view.put:
        return False
    said = view.dialect.said(view.items[at].raw)
    return said.role == "assistant" and said.text == carrier.ACKNOWLEDGEMENT
