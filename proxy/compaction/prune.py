"""Pruning: shorten old tool results to head and tail, or to a marker. No model, no calls touched.

Pure: a view and a level give the items that change. Which level is wanted is the compactor's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from proxy.compaction.elision import cut, mask
from proxy.compaction.job import View
from proxy.dialects import Said

__all__ = ["LEVELS", "Changes", "for_overflow", "for_pressure"]

#: Index of an item in the view, and its new bytes; in order.
Changes = list[tuple[int, bytes]]

#: Limits in code points of the levels on overflow after the first, which is that of pressure.
_DEEPER = (2_000, 1_000, 500)
#: The last level also masks every result but so many of the newest.
_UNMASKED = 10
LEVELS = 1 + len(_DEEPER) + 1

_NEWEST_STEPS = 2
#: A single line up to this length is an answer, not a document.
_ONE_LINER = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What to do to a text: over `limit` code points keep `head` and `tail`, or mask it whole."""

    limit: int
    head: int
    tail: int
    masks: bool = False

    def __call__(self, text: str) -> str:
        return mask(text) if self.masks else cut(text, limit=self.limit, head=self.head, tail=self.tail)


def for_pressure(view: View) -> Changes:
    """What pruning changes while the conversation still fits: only old and long results."""
    guarded = _newest_tokens(view) | _newest_steps(view) | _trailing(view)
    first = _first(view)
    said = _results(view)
    spared = _exempt(view, said)

    def change(at: int) -> Callable[[str], str]:
        kept = (*spared.get(at, ()), *(one.text for one in said[at].results if one.error))
        return lambda text: text if _is_one_liner(text) or _among(text, kept) else first(text)

    return _apply(view, ((at, change(at)) for at in said if at not in guarded))


def for_overflow(view: View, level: int, *, newest: bool = False) -> Changes:
    """What pruning changes at a level from 0 to `LEVELS - 1`, each at least as short as the one before.

    The newest unit is not cut below the first level unless `newest`. An error is not cut below it either.
    """
    first, deep = _first(view), _deep(view, level)
    said = _results(view)
    last_unit = view.units[-1][0] if view.units else 0
    recent = _recent(said)

    def change(at: int) -> Callable[[str], str]:
        chosen = first if at >= last_unit and not newest else deep
        masks = level == LEVELS - 1 and chosen is deep and at not in recent
        then = _Cut(limit=0, head=0, tail=0, masks=True) if masks else chosen
        errors = tuple(one.text for one in said[at].results if one.error)
        return lambda text: first(text) if _among(text, errors) else then(text)

    return _apply(view, ((at, change(at)) for at in said))


def _apply(view: View, wanted: Iterable[tuple[int, Callable[[str], str]]]) -> Changes:
    shrunk = ((at, view.dialect.shrink(view.items[at].raw, change)) for at, change in wanted)
    return [(at, raw) for at, raw in shrunk if raw is not None]


def _first(view: View) -> _Cut:
    limits = view.limits
    return _Cut(limit=limits.prune_over, head=limits.prune_head, tail=limits.prune_tail)


def _deep(view: View, level: int) -> _Cut:
    first = _first(view)
    if level == 0:
        return first
    limit = min(first.limit, _DEEPER[min(level, len(_DEEPER)) - 1])
    return _Cut(limit=limit, head=min(first.head, limit // 2), tail=min(first.tail, limit // 8))


def _results(view: View) -> dict[int, Said]:
    """The items that hold tool results, by index, in order."""
    return {at: view.dialect.said(item.raw) for at, item in enumerate(view.items) if item.facts.answers}


def _newest_tokens(view: View) -> set[int]:
    """The newest results, as many as lie whole within the tokens that are protected."""
    left = view.limits.protected
    newest: set[int] = set()
    for at in reversed([at for at, item in enumerate(view.items) if item.facts.answers]):
        left -= view.tokens[at]
        if left < 0:
            break
        newest.add(at)
    return newest


def _newest_steps(view: View) -> set[int]:
    """The last units in which tools were called."""
    steps = [unit for unit in view.units if any(view.items[at].facts.opens for at in range(*unit))]
    return {at for unit in steps[-_NEWEST_STEPS:] for at in range(*unit)}


def _trailing(view: View) -> set[int]:
    """What the model has not yet seen: everything after its last word."""
    last = max((at for at, item in enumerate(view.items) if item.facts.role == "assistant"), default=-1)
    return set(range(last + 1, len(view.items)))


def _recent(said: dict[int, Said]) -> set[int]:
    """The items that hold the last results, none of which is masked."""
    recent: set[int] = set()
    left = _UNMASKED
    for at in reversed(said):
        if left <= 0:
            break
        recent.add(at)
        left -= max(1, len(said[at].results))
    return recent


def _exempt(view: View, said: dict[int, Said]) -> dict[int, tuple[str, ...]]:
    """By item, the texts of results whose tool the policy exempts; the newest call of an id names it."""
    patterns = view.policy.prune.exempt_tools
    if not patterns:
        return {}
    names: dict[str, str] = {}
    exempt: dict[int, tuple[str, ...]] = {}
    for at, item in enumerate(view.items):
        if item.facts.opens:
            names |= {call.id: call.name for call in view.dialect.said(item.raw).calls}
        if at in said:
            mine = [one for one in said[at].results if any(fnmatchcase(names.get(one.id, ""), p) for p in patterns)]
            exempt[at] = tuple(one.text for one in mine)
    return exempt


def _is_one_liner(text: str) -> bool:
    return len(text) <= _ONE_LINER and "\n" not in text.strip()


def _among(text: str, kept: tuple[str, ...]) -> bool:
    """Whether a text is, or is a part of, one of these results."""
    return any(text in one for one in kept)
