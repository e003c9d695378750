"""Hand a conversation to the compactor, and believe nothing it says (SPEC 7.4).

Whether it returns, raises, hangs or lies: what counts is what the ledger holds afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from proxy import events
from proxy.compaction.work import Patience, Subject, Work
from proxy.house import House
from proxy.policy import Limits
from proxy.report import Report
from proxy.sight import Sight, Size, suits
from proxy.turn import Turn
from proxy.upstream import UpstreamError

__all__ = ["begun", "run"]

#: Seconds a compactor may take beyond what summaries may: its own thinking, and the ledger.
_SLACK = 5.0
_OK = 200


async def begun(  # noqa: PLR0913 - what a job is about
    house: House,
    turn: Turn,
    known: Size,
    sight: Sight,
    patience: Patience,
    *,
    trigger: Literal["pressure", "overflow"],
    limits: Limits,
    goal: int,
    calibration: float,
) -> Work:
    """A job over what one load showed."""
    subject = Subject(
        ledger=house.ledger,
        conversation=turn.conversation,
        dialect=turn.dialect,
        meter=house.measures.meter(turn.dialect, turn.model),
        calibration=calibration,
        limits=limits,
        policy=turn.policy,
        trigger=trigger,
        goal=goal,
        window=known.window.tokens if known.window else 0,
        post=lambda body, seconds: _posted(house, turn, body, seconds),
        flights=house.flights,
        patience=patience,
        suits=await suits(house, turn, known, sight.applied.record.entries),
    )
    return Work(subject, sight.applied)


async def run(house: House, turn: Turn, work: Work, patience: Patience, report: Report) -> None:
    """Let the compactor work until it ends or its time is up; log what was committed."""
    task = asyncio.ensure_future(house.compactor.compact(work))
    try:
        await asyncio.wait({task}, timeout=patience.left + _SLACK)
    finally:
        work.end()
        task.cancel()
    _judge(task, turn)
    report.summaries += work.answers
    for commit in work.commits:
        events.emit(
            "commit",
            conversation=turn.conversation.rpartition(".")[2],
            trigger=work.view.trigger,
            summary=commit.summary,
            generation=commit.generation,
            before=commit.before,
            after=commit.after,
        )


def _judge(task: asyncio.Task[None], turn: Turn) -> None:
    """A failure of the compactor is a warning, never an outcome."""
    conversation = turn.conversation.rpartition(".")[2]
    if not task.done():
        events.emit("compactor-late", level=logging.WARNING, conversation=conversation)
    elif not task.cancelled() and task.exception() is not None:
        kind = type(task.exception()).__name__
        events.emit("compactor-failed", level=logging.WARNING, conversation=conversation, error=kind)


async def _posted(house: House, turn: Turn, body: bytes, seconds: float) -> bytes | None:
    """One summary request, with the conversation's own URL and credential; None where it was not answered."""
    call = turn.call(body)
    try:
        async with house.summaries:
            answered = await house.upstream.ask(call, timeout=seconds)
    except UpstreamError as error:
        events.emit("summary-failed", level=logging.WARNING, upstream=call.upstream, error=error.kind)
        return None
    if answered.status != _OK:
        events.emit("summary-refused", level=logging.WARNING, upstream=call.upstream, status=answered.status)
        return None
    return answered.body
