"""The life of one request, top to bottom. The only file that knows the order.

    read ─ look ─ project ─ measure ─ [pressure] ─ send ─ hold ─┬─ delivered ─ relay ─ learn
                     ▲                                          ├─ refused ─── relay
                     └────── evidence? ◀── compact ◀─ overflowed┘

A request that is not ours, or that we fail to read, goes on as it came: Carryon fails open for
traffic and closed for retries.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import assert_never

from proxy.compaction.patience import Patience
from proxy.core.meter import measured
from proxy.core.split import marks
from proxy.errors import Answer
from proxy.house import House
from proxy.message import Incoming, Outgoing
from proxy.steps.healing import broken_off, concluded, retire, taught
from proxy.steps.pressure import packed
from proxy.steps.recovery import recovered
from proxy.steps.relay import outgoing, refusal, unreached
from proxy.steps.report import Report
from proxy.steps.sight import Sight, Size, counted, estimated, look, size, surely_below, unseen
from proxy.steps.turn import Passage, Turn, read, spoken
from proxy.upstream import Delivered, Outcome, Overflowed, Refused, UpstreamError

__all__ = ["exchange"]

#: The status that the log gives a request whose client left before there was one.
_CLIENT_GONE = 499
#: Bodies up to this many bytes, with so many JSON values, are read on the event loop: a few milliseconds.
_INLINE, _FEW = 262_144, 2_000


async def exchange(house: House, incoming: Incoming) -> Outgoing:
    """Answer one request. What goes wrong is an answer; only cancellation and our own faults after sending raise."""
    report = Report(shown=house.settings.response_headers, metrics=house.metrics)
    try:
        request = await _read(house, incoming)
        match request:
            case Answer():
                return refusal(request, report, spoken(incoming))
            case Passage():
                return await _passed(house, request, report)
            case Turn():
                return await _carried(house, request, report)
            case _:
                assert_never(request)
    except UpstreamError as error:
        return refusal(unreached(error), report, spoken(incoming))
    except asyncio.CancelledError:
        report.left()
        report.log(_CLIENT_GONE)
        raise


async def _read(house: House, incoming: Incoming) -> Answer | Passage | Turn:
    """Read a request; a large body in a thread, since a long history takes over a second."""
    body = incoming.plain
    if body is None or (len(body) <= _INLINE and marks(body) <= _FEW):
        return read(house, incoming)
    return await house.reading.run(partial(read, house, incoming))


async def _passed(house: House, passage: Passage, report: Report) -> Outgoing:
    """Pass a request on with which nothing else is done."""
    report.upstream, report.skip = passage.call.upstream, passage.skip
    report.copies = 1
    outcome = await house.upstream.send(passage.call, dialect=passage.dialect, inspect=passage.inspect)
    if isinstance(outcome, Overflowed):
        report.denied("server-history" if passage.skip == "server-history" else "off")
    return outgoing(outcome, report)


async def _carried(house: House, turn: Turn, report: Report) -> Outgoing:
    """One turn of a conversation: projected, perhaps packed, sent, perhaps packed harder and sent again."""
    report.upstream, report.model, report.conversation = turn.destination.name, turn.model, turn.conversation
    known, sight, patience = await _prepared(house, turn, report)
    outcome = await _sent(house, turn, known, sight, report)
    try:
        retire(house, turn, sight, outcome)
        for _ in range(turn.policy.max_overflow_retries):
            if not isinstance(outcome, Overflowed):
                break
            again = await recovered(house, turn, known, sight, outcome.verdict, patience, report)
            if again is None:
                break
            retried = await _retried(house, turn, known, again, outcome, report)
            if retried is outcome:
                _describe(report, known, sight)
                break
            outcome, sight = retried, again
        return _concluded(house, turn, known, sight, outcome, report)
    except BaseException:  # a client that left, a failed retry: the reply in hand is nobody's any more
        await outcome.reply.aclose()
        raise


async def _retried(house: House, turn: Turn, known: Size, again: Sight, refused: Overflowed, report: Report) -> Outcome:
    """Send once more. Where the upstream rejects our surface as such, the original refusal stands (rule 4.10)."""
    before, report.action, report.refused = report.action, "overflow-retry", ""
    retried = await _sent(house, turn, known, again, report)
    try:
        if retire(house, turn, again, retried):
            await retried.reply.aclose()
            report.action, report.refused = before, "invalid"
            return refused
    except BaseException:
        await retried.reply.aclose()
        raise
    await refused.reply.aclose()
    report.refused = "too-large" if isinstance(retried, Overflowed) else ""
    return retried


async def _prepared(house: House, turn: Turn, report: Report) -> tuple[Size, Sight, Patience]:
    """Do everything before sending. A fault of our own costs the client nothing: its bytes go out (rule 2.11)."""
    patience = Patience(turn.policy.summary.timeout)
    try:
        known, sight = await _fitted(house, turn, patience, report)
    except Exception:  # noqa: BLE001 - protects the client from every fault between reading and sending
        house.fault("a request is forwarded as it came")
        report.action, known, sight = "pass", Size(), unseen(house, turn)
    return known, sight, patience


async def _fitted(house: House, turn: Turn, patience: Patience, report: Report) -> tuple[Size, Sight]:
    """Project, measure, pack: whatever the window asks for and the policy allows."""
    known = size(house, turn)
    if surely_below(house, turn, known):
        report.skip = "below"
        return known, unseen(house, turn)
    sight = await _projected(house, turn, known, report)
    sight = await packed(house, turn, known, sight, patience, report)
    if turn.policy.dry_run and sight.body is not None:
        report.skip = "dry-run"
        return known, unseen(house, turn)
    return known, sight


async def _projected(house: House, turn: Turn, known: Size, report: Report) -> Sight:
    """Find the surface that applies, and how large the request is with it."""
    sight = await look(house, turn, known)
    if sight.store_away:
        report.skip = "redis"
    if known.limits is None:
        report.skip = report.skip or "no-window"
        return sight
    sight = replace(sight, estimate=await estimated(house, turn, sight))
    whole = sight.estimate if sight.entry is None else counted(house, turn, unseen(house, turn))
    report.raw = None if whole is None else measured(whole, known.learned.calibration)
    return sight


async def _sent(house: House, turn: Turn, known: Size, sight: Sight, report: Report) -> Outcome:
    """Send the projection, or the client's own bytes where nothing was replaced."""
    report.copies += 1
    _describe(report, known, sight)
    if sight.entry is not None and report.action == "pass":
        report.action = "projected"
    window = known.window.tokens if known.window else None
    outcome = await house.upstream.send(turn.call(sight.body), dialect=turn.dialect.name, inspect=True, window=window)
    taught(house, turn, known, outcome)
    return outcome


def _describe(report: Report, known: Size, sight: Sight) -> None:
    """Put what a body holds into the report."""
    report.generation = sight.generation
    report.sent = None if sight.estimate is None else measured(sight.estimate, known.learned.calibration)


def _concluded(house: House, turn: Turn, known: Size, sight: Sight, outcome: Outcome, report: Report) -> Outgoing:
    """Give what the client gets; what it proves is noted once the client has it."""
    match outcome:
        case Delivered():
            return outgoing(
                outcome,
                report,
                ended=partial(concluded, house, turn, known, sight, outcome),
                cut=partial(broken_off, house, turn, known, outcome),
            )
        case Overflowed():
            report.denied(report.refused or "off")
            return outgoing(outcome, report)
        case Refused():
            return outgoing(outcome, report)
        case _:
            assert_never(outcome)
