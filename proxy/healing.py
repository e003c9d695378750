"""After the reply: what a success proves, what a refusal retires, what usage teaches (SPEC 4.10, 2.10)."""

from __future__ import annotations

import logging

from proxy import events
from proxy.core.overflow import Kind
from proxy.house import House
from proxy.message import first
from proxy.sight import Sight, Size
from proxy.turn import Turn
from proxy.upstream import Outcome, Refused
from proxy.upstream.reply import Reply

__all__ = ["concluded", "retire"]

_REJECTIONS = (400, 422)
_PERHAPS = 500
_PERHAPS_TIMES = 2


def concluded(house: House, turn: Turn, known: Size, sight: Sight, reply: Reply) -> None:
    """A reply ended well: its surface is proven, its usage calibrates the meter."""
    del known
    entry = sight.entry
    if entry is not None and not entry.proven and not sight.store_away and house.proven.get(entry.operation) is None:
        house.proven.put(entry.operation, True)
        house.background.spawn(house.mark(turn.conversation, entry.operation, "proven"))
    tail = reply.tail()
    usage = turn.dialect.usage(tail, sse="event-stream" in (first(reply.headers, "content-type") or "")) if tail else None
    if usage is not None and sight.estimate:
        house.learning.calibration(turn.keys, usage.prompt / sight.estimate)


async def retire(house: House, turn: Turn, sight: Sight, outcome: Outcome) -> bool:
    """Retire an unproven surface that the upstream rejects as such; whether it was retired."""
    entry = sight.entry
    if entry is None or entry.proven or not isinstance(outcome, Refused) or outcome.verdict is None:
        return False
    if outcome.verdict.kind is not Kind.OTHER or house.proven.get(entry.operation):
        return False
    status = outcome.reply.status
    if status == _PERHAPS:
        doubts = (house.doubted.get(entry.operation) or 0) + 1
        house.doubted.put(entry.operation, doubts)
        if doubts < _PERHAPS_TIMES:
            return False
    elif status not in _REJECTIONS:
        return False
    await house.mark(turn.conversation, entry.operation, "retired")
    events.emit(
        "surface-retired",
        level=logging.WARNING,
        conversation=turn.conversation.rpartition(".")[2],
        generation=entry.generation,
        status=status,
    )
    return True
