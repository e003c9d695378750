"""Which policy holds for a model: defaults, then every entry that matches, the most specific last (rule 11.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from pydantic import BaseModel

from proxy.settings.shape import ModelPolicy, PolicyShape

__all__ = ["RIVALS", "is_glob", "matching", "merged", "specificity"]

_M = TypeVar("_M", bound=BaseModel)
#: Keys that say one thing in two ways: where an entry names the first, the second that it inherits no longer holds.
RIVALS = (
    ("threshold_ratio", "threshold_tokens"),
    ("retain_ratio", "retain_tokens"),
    ("context_window", "like"),
    ("like", "context_window"),
)


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match more than its own text."""
    return any(sign in pattern for sign in "*?[")


def specificity(entry: ModelPolicy) -> tuple[int, bool, int, int]:
    """Return what orders entries, least specific first.

    More exact names beat fewer; one exact name against one: the model's beats the upstream's; then
    the globs with more literal characters, the model's first.
    """
    exact_model, exact_upstream = not is_glob(entry.model), not is_glob(entry.upstream)
    model, upstream = (len(text) - sum(map(text.count, "*?[]")) for text in (entry.model, entry.upstream))
    literal = (0 if exact_model else model, 0 if exact_upstream else upstream)
    return (exact_model + exact_upstream, exact_model, *literal)


def matching(entries: Iterable[ModelPolicy], upstream: str, model: str) -> list[ModelPolicy]:
    """Return the entries that match, least specific first; at equal rank the order of the file stands."""
    found = [e for e in entries if _match(e.upstream, upstream) and _match(e.model, model)]
    return sorted(found, key=specificity)


def merged(defaults: PolicyShape, entries: Iterable[ModelPolicy], upstream: str, model: str) -> PolicyShape:
    """Merge field by field: an entry changes only what it names."""
    policy = defaults
    for entry in matching(entries, upstream, model):
        named = {name: getattr(entry, name) for name in entry.model_fields_set - {"upstream", "model"}}
        superseded = {other: None for key, other in RIVALS if named.get(key) is not None and other not in named}
        policy = _over(policy, named | superseded)
    return policy


def _match(pattern: str, name: str) -> bool:
    return pattern == name or fnmatchcase(name, pattern)


def _over(base: _M, named: Mapping[str, Any]) -> _M:
    changes: dict[str, Any] = {}
    for name, value in named.items():
        if isinstance(value, BaseModel):
            inner = {field: getattr(value, field) for field in value.model_fields_set}
            changes[name] = _over(getattr(base, name), inner)
        else:
            changes[name] = value
    return base.model_copy(update=changes)
