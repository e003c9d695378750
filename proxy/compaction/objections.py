"""Why a planned replacement must not be stored, whoever planned it (rules 6.8, I16): pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.compaction.job import View
from proxy.core.replacement import Replacement
from proxy.core.surface import before_newest
from proxy.core.transcript import Item

__all__ = ["objections"]


def objections(view: View, plan: Replacement, through: int, after: int) -> Iterator[str]:
    """What speaks against replacing the first `through` items of a view; `after` is the total that would be left."""
    seen, given = plan.projection.items, plan.projection.transcript
    if through not in {0, len(view.items), view.fixed} | {stop for _, stop in view.units}:
        yield "the cut splits a unit"
    if plan.surface.summarised > before_newest(given):
        yield "the newest unit is not summarised"
    if not plan.surface.parts:
        yield "nothing would stand for the conversation"
    if _says(view.items[:through]) and not _says(seen[: plan.projection.fixed]):
        yield "no word of the user would be left of what is replaced"
    if _steady(seen) != _steady(view.items):
        yield "system text in mid-conversation is kept as it stands, and none is added"
    problem = view.dialect.invalid(seen, given.items)
    if problem is not None:
        yield problem
    gained = view.total - after
    least = view.limits.minimum_gain(view.total) if view.trigger == "pressure" else 1
    if gained < least:
        yield f"it frees {gained} tokens, {least} is the least"


def _says(items: Sequence[Item]) -> bool:
    """Whether a user speaks in these items."""
    return any(item.facts.role == "user" and item.facts.significant for item in items)


def _steady(items: Sequence[Item]) -> list[bytes]:
    return [item.key for item in items if item.facts.stays and item.facts.significant]
