"""The proactive trigger: pack before forwarding, while there is still room (rule 6). It may fail.

Only a request that would not fit waits for a summary. One that is over its threshold and fits goes with what
needs no summary, and is packed beside (rule 6.6) for the next.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

from proxy import events
from proxy.compaction.patience import Patience
from proxy.core.meter import measured
from proxy.house import House
from proxy.policy import Limits, overflow_limits
from proxy.steps.background import beside
from proxy.steps.guards import hindered, hopeless, tried
from proxy.steps.packing import begun, least, run
from proxy.steps.report import Report
from proxy.steps.sight import Sight, Size, estimated, forced, forgotten, look, with_applied
from proxy.steps.turn import Turn

__all__ = ["packed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """Why and how far to pack, at `tokens`. `waits`: the client may wait for a summary."""

    trigger: Literal["pressure", "overflow"]
    limits: Limits
    goal: int
    tokens: int
    waits: bool


async def packed(house: House, turn: Turn, known: Size, sight: Sight, patience: Patience, report: Report) -> Sight:
    """Pack where the request is at or over its threshold; give what is to be sent."""
    need = await _need(house, turn, known, sight)
    if need is not None and (running := house.aside.running(turn.conversation, turn.transcript)) is not None:
        if not need.waits:
            return _goes(sight, report)
        sight = await _joined(house, turn, known, sight, running, patience)
        need = await _need(house, turn, known, sight)
    if need is None:
        report.skip = report.skip or "below"
        return sight
    if not await _may(house, turn, known, sight, need, report):
        return sight
    return await _packed(house, turn, known, sight, need, patience, report)


async def _packed(
    house: House, turn: Turn, known: Size, sight: Sight, need: _Need, patience: Patience, report: Report
) -> Sight:
    patience = patience if need.waits else Patience(0.0)
    work = await begun(
        house,
        turn,
        known,
        sight,
        patience,
        trigger=need.trigger,
        limits=need.limits,
        goal=need.goal,
        calibration=known.learned.calibration,
    )
    if need.trigger == "pressure" and hopeless(house, turn, least=least(work), goal=need.goal):
        return sight
    try:
        await run(house, turn, work, patience, report)
    finally:  # a client that left has cut it off: that is a failure too
        if work.commits or (need.waits and work.applied is sight.applied):
            tried(house, turn, sight, landed=bool(work.commits), tokens=need.tokens)
    if need.trigger == "overflow":
        forgotten(house, turn, sight)
    if work.applied is sight.applied:
        report.aside = None if need.waits else beside(house, turn, known, need.limits)
        return sight if need.waits else _goes(sight, report)
    report.action = "pressure" if work.commits else report.action
    found = with_applied(turn, sight, work.applied)
    return replace(found, estimate=await estimated(house, turn, found))


def _goes(sight: Sight, report: Report) -> Sight:
    """Let it go as it is: it is packed beside."""
    report.skip = "background"
    return sight


async def _joined(
    house: House, turn: Turn, known: Size, sight: Sight, running: asyncio.Task[None], patience: Patience
) -> Sight:
    """Wait for the packing that is under way for this dialogue, and look at what came of it."""
    clock = asyncio.get_running_loop().time
    began = clock()
    await asyncio.wait({running}, timeout=patience.left)
    patience.spend(clock() - began)
    found = await look(house, turn, known, sight.records)
    return replace(found, estimate=await estimated(house, turn, found))


async def _need(house: House, turn: Turn, known: Size, sight: Sight) -> _Need | None:
    """Say what the measure asks for, or the overflow that ended this transcript's last stream (rule 9.3)."""
    limits, calibration = known.limits, known.learned.calibration
    if forced(house, turn, sight):
        estimate = sight.estimate if sight.estimate is not None else await estimated(house, turn, sight)
        tokens = measured(estimate, calibration)
        bounds = overflow_limits(
            turn.policy,
            window=known.window.tokens if known.window else None,
            kind=known.window.kind if known.window else "total",
            rejected=tokens,
            requested=turn.transcript.envelope.output,
            adds_output=known.window.adds_output if known.window else True,
        )
        return _Need(trigger="overflow", limits=bounds.limits, goal=bounds.fit, tokens=tokens, waits=True)
    if limits is None or sight.estimate is None:
        return None
    tokens = measured(sight.estimate, calibration)
    if tokens < limits.threshold:
        return None
    waits = not turn.policy.after_reply or tokens > limits.fit
    return _Need(trigger="pressure", limits=limits, goal=limits.low_water, tokens=tokens, waits=waits)


async def _may(house: House, turn: Turn, known: Size, sight: Sight, need: _Need, report: Report) -> bool:
    """Whether an attempt may be made at all; the reason why not goes into the report."""
    if turn.policy.dry_run:
        report.skip = "dry-run"
        events.emit("dry-run", upstream=turn.destination.name, model=turn.model, trigger="pressure")
        return False
    reason = hindered(house, turn, known, sight, tokens=need.tokens)
    report.skip = reason or report.skip
    if reason or (known.limits is not None and known.limits.hopeless_output):
        return False
    if not await house.stores(sight.records, turn.conversation):
        report.skip = "redis"
        return False
    return True
