"""Hand a conversation to the compactor, and believe nothing it says (rule 7.4).

Whether it returns, raises, hangs or lies: what counts is what the ledger holds afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any, Literal

from proxy import events
from proxy.compaction.job import Compactor
from proxy.compaction.patience import Patience
from proxy.compaction.work import Subject, Work
from proxy.core.surface import Provenance
from proxy.house import House
from proxy.policy import Limits, Policy
from proxy.steps.report import Report
from proxy.steps.sight import Sight, Size, suits
from proxy.steps.summariser import Writer, writer
from proxy.steps.turn import Turn
from proxy.upstream import UpstreamError

__all__ = ["begun", "least", "run"]

#: Seconds a compactor may take beyond what summaries may: its own thinking, and the ledger.
_SLACK = 5.0
_OK = 200
#: Compactors at work: held here, since one that ignores its cancellation outlives its request.
_WORKING: set[asyncio.Task[None]] = set()


async def begun(
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
    waits: bool = True,
) -> Work:
    """Make a job over what one load showed. `waits`: a client waits for it."""
    writes = writer(house, turn)
    subject = Subject(
        ledger=sight.records,
        conversation=turn.conversation,
        dialect=turn.dialect,
        meter=house.measures.meter(turn.dialect, turn.model),
        calibration=calibration,
        limits=limits,
        policy=_policy(house, turn, writes),
        trigger=trigger,
        goal=goal,
        window=known.window.tokens if known.window else 0,
        post=lambda body, seconds: _posted(house, turn, writes, body, seconds),
        flights=house.flights,
        patience=patience,
        suits=await suits(house, turn, known, sight.applied.record.entries),
        summariser=writes.summariser(house, turn, limits.window),
        waits=waits,
    )
    return Work(subject, sight.applied)


def least(work: Work) -> int:
    """Tokens of the envelope and the newest unit: no packing gets below that."""
    view = work.view
    return view.envelope + (sum(view.tokens[slice(*view.units[-1])]) if view.units else 0)


def _policy(house: House, turn: Turn, writes: Writer) -> Policy:
    """The turn's policy; where the summariser rests, its ladder starts at the outline."""
    summary = turn.policy.summary
    if summary.method != "model" or not house.ladder.starts_low(writes.destination.name, writes.model):
        return turn.policy
    return replace(turn.policy, summary=replace(summary, method="outline"))


async def run(house: House, turn: Turn, work: Work, patience: Patience, report: Report) -> None:
    """Let the compactor work until it ends or its time is up; log what was committed."""
    began, waited = time.monotonic(), patience.waited
    task = asyncio.ensure_future(_compacted(house.compactor, work))
    _WORKING.add(task)
    task.add_done_callback(_ended)
    try:
        await asyncio.wait({task}, timeout=patience.left + _SLACK)
    finally:
        work.end()
        task.cancel()
        # A compactor may wait for a model by other means than `Job.ask`: what is beyond its slack counts (rule 6.7).
        patience.spend(time.monotonic() - began - (patience.waited - waited) - _SLACK)
    _judge(task, turn)
    house.unstored = house.unstored or work.unstored
    _judge_summary(house, turn, work, ended=task.done())
    if work.idle and patience.left > 0 and work.view.trigger == "pressure":
        _warn_once(house, turn, work)
    report.summaries += work.answers
    for commit in work.commits:
        events.emit(
            "commit",
            conversation=turn.opaque,
            trigger=work.view.trigger,
            summary=commit.summary,
            generation=commit.generation,
            before=commit.before,
            after=commit.after,
            **_told(commit.provenance, writer(house, turn).model),
        )


def _told(source: Provenance | None, model: str) -> dict[str, Any]:
    """Who was asked for the summary, and the tokens of its calls; the name that a reply gives itself is its content."""
    return {} if source is None else {"model": model, "in": source.prompt, "out": source.completion}


async def _compacted(compactor: Compactor, work: Work) -> None:
    """Call it inside a task, so that even one that is no coroutine fails there."""
    try:
        await compactor.compact(work)
    except (SystemExit, KeyboardInterrupt) as error:  # out of a task they would end the whole process
        raise RuntimeError(type(error).__name__) from None


def _ended(task: asyncio.Task[None]) -> None:
    _WORKING.discard(task)
    if not task.cancelled():
        task.exception()  # seen, also where nobody waits any more


def _judge(task: asyncio.Task[None], turn: Turn) -> None:
    """Log a failure of the compactor: it is a warning, never an outcome."""
    conversation = turn.opaque
    if not task.done():
        events.emit("compactor-late", level=logging.WARNING, conversation=conversation)
    elif not task.cancelled() and task.exception() is not None:
        kind = type(task.exception()).__name__
        events.emit("compactor-failed", level=logging.WARNING, conversation=conversation, error=kind)


def _judge_summary(house: House, turn: Turn, work: Work, *, ended: bool) -> None:
    """Tell the ladder how the summariser did: what the compactor took for a summary was one, committed or not.

    A client that left cancels `run` before this. What a compactor that was cut off had in hand is not judged.
    """
    if work.summarised is not None and (work.summarised or ended):
        writes = writer(house, turn)
        house.ladder.judged(writes.destination.name, writes.model, good=work.summarised)


def _warn_once(house: House, turn: Turn, work: Work) -> None:
    """Say, once for a conversation, that its compactor found nothing to do; it is asked again every turn."""
    if house.once(f"{turn.conversation}:nothing-packed"):
        tokens, goal = work.view.total, work.view.goal
        events.emit("nothing-packed", level=logging.WARNING, conversation=turn.opaque, tokens=tokens, goal=goal)


async def _posted(house: House, turn: Turn, writes: Writer, body: bytes, seconds: float) -> bytes | None:
    """Send one summary request; None where it was not answered."""
    call = writes.call(turn, body)
    try:
        async with house.summaries:
            answered = await house.upstream.ask(call, within=seconds)
    except UpstreamError as error:
        events.emit(
            "summary-failed",
            level=logging.WARNING,
            conversation=turn.opaque,
            upstream=call.upstream,
            error=error.kind,
        )
        return None
    if answered.status != _OK:
        events.emit(
            "summary-refused",
            level=logging.WARNING,
            conversation=turn.opaque,
            upstream=call.upstream,
            status=answered.status,
        )
        return None
    return answered.body
