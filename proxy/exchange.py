"""The life of one request, top to bottom. The only file that knows the order.

    read ─ look ─ project ─ measure ─ [pressure] ─ send ─ hold ─┬─ delivered ─ relay ─ learn
                     ▲                                          ├─ refused ─── relay
                     └────── evidence? ◀── compact ◀─ overflowed┘

A request that is not ours, or that we fail to read, goes on as it came: Carryon fails open for
traffic and closed for retries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from proxy.compaction.work import Patience
from proxy.core.meter import measured
from proxy.errors import Answer
from proxy.healing import concluded, retire
from proxy.house import House
from proxy.message import Incoming, Outgoing
from proxy.pressure import packed
from proxy.recovery import recovered
from proxy.relay import outgoing, refusal
from proxy.report import Report
from proxy.sight import Sight, Size, counted, estimated, look, size, surely_below, unseen
from proxy.turn import Passage, Turn, read
from proxy.upstream import Delivered, Outcome, Overflowed, Refused, UpstreamError

__all__ = ["exchange"]


async def exchange(house: House, incoming: Incoming) -> Outgoing:
    """Answer one request. Never raises but for cancellation: what goes wrong is an answer."""
    report = Report(shown=house.settings.response_headers)
    try:
        request = read(house, incoming)
        if isinstance(request, Answer):
            return refusal(request, report)
        if isinstance(request, Passage):
            return await _passed(house, request, report)
        return await _carried(house, request, report)
    except UpstreamError as error:
        answer = Answer(status=error.status, code=f"PROXY_UPSTREAM_{error.kind.upper()}", message=str(error))
        return refusal(answer, report)


async def _passed(house: House, passage: Passage, report: Report) -> Outgoing:
    """A request nothing is done with but to pass it on."""
    report.upstream, report.skip = passage.call.upstream, passage.skip
    report.copies = 1
    outcome = await house.upstream.send(passage.call, dialect=passage.dialect, inspect=passage.inspect)
    if isinstance(outcome, Overflowed):
        report.action, report.refused = "overflow-refused", passage.skip or "off"
    return outgoing(outcome, report)


async def _carried(house: House, turn: Turn, report: Report) -> Outgoing:
    """One turn of a conversation: projected, perhaps packed, sent, perhaps packed harder and sent again."""
    report.upstream, report.model = turn.destination.name, turn.model
    known, sight, patience = await _prepared(house, turn, report)
    outcome = await _sent(house, turn, known, sight, report)
    for _ in range(turn.policy.max_overflow_retries):
        if not isinstance(outcome, Overflowed):
            break
        again = await recovered(house, turn, known, sight, outcome.verdict, patience, report)
        if again is None:
            break
        retried = await _retried(house, turn, known, again, outcome, report)
        if retried is outcome:
            break
        outcome, sight = retried, again
    return await _concluded(house, turn, known, sight, outcome, report)


async def _retried(
    house: House, turn: Turn, known: Size, again: Sight, refused: Overflowed, report: Report
) -> Outcome:
    """Send once more. Where the upstream rejects our surface as such, the original refusal stands (SPEC 4.10)."""
    action, report.action = report.action, "overflow-retry"
    try:
        retried = await _sent(house, turn, known, again, report)
    except BaseException:
        await refused.reply.aclose()
        raise
    if await retire(house, turn, again, retried):
        await retried.reply.aclose()
        report.action, report.refused = action, "invalid"
        return refused
    await refused.reply.aclose()
    report.refused = "too-large" if isinstance(retried, Overflowed) else ""
    return retried


async def _prepared(house: House, turn: Turn, report: Report) -> tuple[Size, Sight, Patience]:
    """Everything before sending. A fault of our own costs the client nothing: its bytes go out (SPEC 2.11)."""
    known, sight = Size(), unseen(turn)
    patience = Patience(turn.policy.summary.timeout)
    try:
        known = size(house, turn)
        if surely_below(turn, known):
            report.skip = "below"
        else:
            sight = await _projected(house, turn, known, report)
            sight = await packed(house, turn, known, sight, patience, report)
    except Exception:  # noqa: BLE001 - protects the client from every fault between reading and sending
        house.fault("a request is forwarded as it came")
        sight = unseen(turn)
    return known, sight, patience


async def _projected(house: House, turn: Turn, known: Size, report: Report) -> Sight:
    """The surface that applies, and how large the request is with it."""
    sight = await look(house, turn, known)
    if sight.store_away:
        report.skip = "redis"
    if known.limits is None:
        report.skip = report.skip or "no-window"
        return sight
    sight = replace(sight, estimate=await estimated(house, turn, sight))
    whole = sight.estimate if sight.entry is None else counted(house, turn, unseen(turn))
    report.raw = None if whole is None else measured(whole, known.learned.calibration)
    return sight


async def _sent(house: House, turn: Turn, known: Size, sight: Sight, report: Report) -> Outcome:
    """Send the projection, or the client's own bytes where nothing was replaced."""
    report.copies += 1
    report.generation = sight.generation
    if sight.estimate is not None:
        report.sent = measured(sight.estimate, known.learned.calibration)
    if sight.entry is not None:
        report.conversation = turn.conversation
        report.action = "projected" if report.action == "pass" else report.action
    return await house.upstream.send(turn.call(sight.body(turn)), dialect=turn.dialect.name, inspect=True)


async def _concluded(
    house: House, turn: Turn, known: Size, sight: Sight, outcome: Outcome, report: Report
) -> Outgoing:
    """What the client gets, and what is noted once it has it."""
    match outcome:
        case Delivered():
            return outgoing(outcome, report, ended=lambda reply: concluded(house, turn, known, sight, reply))
        case Overflowed():
            report.action, report.refused = "overflow-refused", report.refused or "off"
            return outgoing(outcome, report)
        case Refused():
            await retire(house, turn, sight, outcome)
            return outgoing(outcome, report)
        case _:
            assert_never(outcome)
