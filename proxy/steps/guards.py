"""Whether an attempt to pack may be made at all, and what is noted of one (rule 6.8)."""

from __future__ import annotations

import logging
import time

from proxy import events
from proxy.core.chain import place
from proxy.core.identity import covered_digests
from proxy.core.tries import noted, pauses, tries
from proxy.house import House
from proxy.steps.sight import Sight, Size
from proxy.steps.turn import Turn
from proxy.store import Entry

__all__ = ["hindered", "hopeless", "tried"]

#: Seconds for which nothing is packed after an upstream rejected what was packed.
_REST = 600.0


def hindered(house: House, turn: Turn, known: Size, sight: Sight, *, tokens: int) -> str:
    """Why no attempt may be made now: a word for `x-carryon-skip`, empty where one may."""
    if not turn.may_pack:
        return "off"
    if sight.store_away:
        return "redis"
    return "paused" if _rests(house, turn, sight) or _paused(house, turn, known, sight, tokens) else ""


def hopeless(house: House, turn: Turn, *, least: int, goal: int) -> bool:
    """Whether envelope and newest unit alone are over the goal: packing cannot help (rule 6.8)."""
    if least > goal and house.once(f"{turn.conversation}:cannot-pack"):
        events.emit("cannot-pack", level=logging.WARNING, conversation=turn.opaque, tokens=least)
    return least > goal


def tried(house: House, turn: Turn, sight: Sight, *, landed: bool, tokens: int) -> None:
    """Note an attempt, beside the request."""
    at = place(turn.transcript)
    if at:
        before = tries(turn.transcript, dict(sight.applied.record.notes))
        name, value = noted(before, at, landed=landed, tokens=tokens, at=time.time())
        house.background.spawn(house.note(turn.conversation, name, value))


def _paused(house: House, turn: Turn, known: Size, sight: Sight, tokens: int) -> bool:
    if known.window is None:
        return False
    found = tries(turn.transcript, dict(sight.applied.record.notes))
    applied = sight.entry is not None
    pause = pauses(found, tokens=tokens, window=known.window.tokens, applied=applied, now=time.time())
    if pause and house.once(f"{turn.conversation}:paused"):
        events.emit("packing-paused", level=logging.WARNING, conversation=turn.opaque, tokens=tokens)
    return pause


def _rests(house: House, turn: Turn, sight: Sight) -> bool:
    """Whether an upstream lately rejected what this transcript was packed to: packing again would brick it (I17)."""
    now = time.time()
    rejected = [
        entry
        for entry in sight.applied.record.entries
        if (entry.retired or house.retired.get(entry.operation)) and _fresh(entry, sight, now)
    ]
    bound = covered_digests(turn.transcript.digests, (entry.covered for entry in rejected))
    return any(bound.get(entry.covered) == entry.digest for entry in rejected)


def _fresh(entry: Entry, sight: Sight, now: float) -> bool:
    return entry.generation > sight.generation and now - entry.at < _REST
