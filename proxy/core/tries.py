"""Attempts to pack under pressure, as they are noted, and when they pause (rule 6.8). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.core.chain import depth, passed
from proxy.core.transcript import Transcript

__all__ = ["Try", "noted", "pauses", "tries"]

_PREFIX = "tried:"
_FAILURES, _FUTILE = 3, 2
#: A pause ends when the transcript grew by this part of the window, or after so many seconds.
_GROWTH = 0.05
_REST = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Attempts at one place: whether the last landed, how many there were, at what size in tokens and when last."""

    place: str
    landed: bool
    times: int
    tokens: int
    at: int


def noted(before: Iterable[Try], place: str, *, landed: bool, tokens: int, at: float) -> tuple[str, str]:
    """Spell one more attempt as a note, name and value; `before` are those known of the transcript."""
    same = next((one for one in before if one.place == place and one.landed is landed), None)
    times = 1 + (same.times if same else 0)
    return f"{_PREFIX}{place}", f"{'landed' if landed else 'failed'}:{times}:{tokens}:{int(at)}"


def tries(transcript: Transcript, notes: Mapping[str, str]) -> tuple[Try, ...]:
    """The attempts that a transcript passed, in the order of their depth. What is no attempt is passed over."""
    places = {name.removeprefix(_PREFIX): value for name, value in notes.items() if name.startswith(_PREFIX)}
    on_chain = passed(transcript, places)
    found = (_read(place, value) for place, value in places.items() if place in on_chain)
    return tuple(sorted((one for one in found if one), key=lambda one: depth(one.place)))


def pauses(known: Iterable[Try], *, tokens: int, window: int, applied: bool, now: float) -> bool:
    """Whether no attempt is made now, at `tokens` of a window; `applied` says whether a surface applies.

    Three failures since something landed, or two commits after which nothing applies, are enough.
    """
    ordered = tuple(known)
    last = max((at for at, one in enumerate(ordered) if one.landed), default=-1)
    failed = ordered[last + 1 :]
    futile = () if applied else tuple(one for one in ordered if one.landed)
    for found, most in ((failed, _FAILURES), (futile, _FUTILE)):
        if sum(one.times for one in found) < most:
            continue
        grown = tokens - max(one.tokens for one in found)
        if grown < window * _GROWTH and now - max(one.at for one in found) < _REST:
            return True
    return False


def _read(place: str, value: str) -> Try | None:
    outcome, *numbers = value.split(":")
    if outcome not in ("landed", "failed") or [one.isascii() and one.isdecimal() for one in numbers] != [True] * 3:
        return None
    times, tokens, at = (int(one[:18]) for one in numbers)
    return Try(place=place, landed=outcome == "landed", times=times, tokens=tokens, at=at)
