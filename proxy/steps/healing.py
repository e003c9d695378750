"""After the reply: what a success proves, what a refusal retires, what both teach (rules 2.10, 4.10, 8.5, 9.3)."""

from __future__ import annotations

import logging
from functools import partial

from proxy import events
from proxy.core.overflow import Kind, classify
from proxy.core.sse import FrameParser
from proxy.house import House
from proxy.steps.background import after_reply
from proxy.steps.sight import Sight, Size, force
from proxy.steps.turn import Turn
from proxy.store import Entry
from proxy.upstream import Delivered, Outcome, Overflowed, Refused
from proxy.upstream.reply import Reply

__all__ = ["broken_off", "concluded", "retire", "taught"]

_REJECTIONS = (400, 422)
_PERHAPS = 500
_PERHAPS_TIMES = 2
#: Rules of the classifier that name a cause outside the request's body.
_NOT_THE_BODY = frozenset(
    {
        *(f"veto:{name}" for name in ("busy", "memory", "entitlement", "credential")),
        *(f"no-code:{code}" for code in ("overloaded_error", "server_is_overloaded", "engine_overloaded_error")),
        *(f"no-code:{code}" for code in ("service_unavailable", "invalid_api_key", "access_terminated_error")),
        *(f"no-code:{code}" for code in ("model_not_found", "deployment_not_found")),
    }
)
#: How many frames at the end of a stream may hold the error that ended it.
_LAST_FRAMES = 4


def taught(house: House, turn: Turn, known: Size, outcome: Outcome) -> None:
    """Learn the limit that a refusal names, whether or not it is recovered."""
    if isinstance(outcome, Overflowed) and outcome.verdict.limit is not None and turn.may_write:
        house.learning.limit(turn.keys, outcome.verdict.limit, known.window.tokens if known.window else 0)


def concluded(house: House, turn: Turn, known: Size, sight: Sight, delivered: Delivered, reply: Reply) -> None:
    """Take a reply that was relayed whole: its surface is proven, its usage calibrates the meter. Never raises."""
    try:
        _concluded(house, turn, known, sight, delivered, reply)
    except Exception:  # noqa: BLE001 - protects a reply that is all but sent
        house.fault("nothing is learned from a reply")


def _concluded(house: House, turn: Turn, known: Size, sight: Sight, delivered: Delivered, reply: Reply) -> None:
    if delivered.verdict is not None:
        return
    if _overflowed(house, turn, known, delivered, reply):
        return
    tail, sse = reply.tail(), delivered.events
    if sight.entry is not None and turn.may_mark:
        _prove(house, turn, sight.entry, store_away=sight.store_away)
    usage = turn.dialect.usage(tail, sse=sse) if tail else None
    if usage is not None and sight.estimate and turn.may_write:
        house.learning.calibration(turn.keys, usage.prompt / sight.estimate)
        house.anchors.put(turn.conversation, turn.transcript, usage.prompt / sight.estimate)
    if usage is not None:
        after_reply(house, turn, known, sight, usage.prompt + usage.completion)


def broken_off(house: House, turn: Turn, known: Size, delivered: Delivered, reply: Reply) -> None:
    """Take a reply that was not relayed whole: many a client leaves at the first error it reads. Never raises."""
    try:
        _overflowed(house, turn, known, delivered, reply)
    except Exception:  # noqa: BLE001 - protects the closing of the reply
        house.fault("nothing is learned from a reply that broke off")


def _overflowed(house: House, turn: Turn, known: Size, delivered: Delivered, reply: Reply) -> bool:
    """Note an overflow at the end of a stream that had begun (rule 9.3); whether there was one."""
    tail = reply.tail() if delivered.events and delivered.verdict is None else None
    if not tail or not _ends_in_overflow(turn, tail, known):
        return False
    events.emit("overflow-after-content", level=logging.WARNING, conversation=turn.opaque)
    force(house, turn)
    return True


def _prove(house: House, turn: Turn, entry: Entry, *, store_away: bool) -> None:
    if entry.proven or house.proven.get(entry.operation):
        return
    if not store_away:
        house.proven.put(entry.operation, value=True)
        house.background.spawn(house.mark(turn.conversation, entry.operation, "proven"))


def _ends_in_overflow(turn: Turn, tail: bytes, known: Size) -> bool:
    # The error is at the very end: parsing all of a long tail would hold back the stream's last byte.
    parts = tail.replace(b"\r\n", b"\n").rsplit(b"\n\n", _LAST_FRAMES + 1)
    parser = FrameParser()
    frames = [*parser.feed(b"\n\n".join(parts[-(_LAST_FRAMES + 1) :])), *parser.end()]
    read = partial(
        classify,
        status=200,
        in_band=True,
        patterns=turn.destination.overflow_patterns,
        window=known.window.tokens if known.window else None,
    )
    return any(
        read(body=frame.data, event=frame.event or None).kind is Kind.CONTEXT_WINDOW_EXCEEDED
        for frame in frames[-_LAST_FRAMES:]
        if frame.data != "[DONE]"
    )


def retire(house: House, turn: Turn, sight: Sight, outcome: Outcome) -> bool:
    """Retire an unproven surface that the upstream rejects as such; whether it was retired."""
    entry = sight.entry
    if entry is None or not turn.may_mark or not _rejects(house, entry, outcome):
        return False
    house.retired.put(entry.operation, value=True)  # noted in the store beside the request, which does not wait for it
    house.background.spawn(house.mark(turn.conversation, entry.operation, "retired"))
    status, generation = outcome.reply.status, entry.generation
    events.emit(
        "surface-retired", level=logging.WARNING, conversation=turn.opaque, generation=generation, status=status
    )
    return True


def _rejects(house: House, entry: Entry, outcome: Outcome) -> bool:
    """Whether this means the surface: kind OTHER, with 400 or 422 at once, with 500 or inside a 200 the second time.

    A server that is busy, or that does not know the model or the key, says nothing of the body.
    """
    proven = entry.proven or house.proven.get(entry.operation)
    verdict = outcome.verdict
    if proven or verdict is None or verdict.kind is not Kind.OTHER or verdict.rule in _NOT_THE_BODY:
        return False
    status = outcome.reply.status
    if isinstance(outcome, Refused) and status != _PERHAPS:
        return status in _REJECTIONS
    doubts = (house.doubted.get(entry.operation) or 0) + 1
    house.doubted.put(entry.operation, doubts)
    return doubts >= _PERHAPS_TIMES
