"""The proactive trigger: pack before forwarding, while there is still room (rule 6). It may fail."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Literal

from proxy import events
from proxy.compaction.patience import Patience
from proxy.core.identity import covered_digests
from proxy.core.meter import measured
from proxy.house import House
from proxy.policy import Limits, overflow_limits
from proxy.steps.packing import begun, run
from proxy.steps.report import Report
from proxy.steps.sight import Sight, Size, estimated, forced, forgotten, with_applied
from proxy.steps.turn import Turn
from proxy.store import Entry

__all__ = ["packed"]

#: Seconds for which nothing is packed after an upstream rejected what was packed.
_REST = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """Why and how far to pack; `goal` and `limits` are in tokens."""

    trigger: Literal["pressure", "overflow"]
    limits: Limits
    goal: int


async def packed(house: House, turn: Turn, known: Size, sight: Sight, patience: Patience, report: Report) -> Sight:
    """Pack where the request is at or over its threshold; give what is to be sent."""
    need = await _need(house, turn, known, sight)
    if need is None:
        report.skip = report.skip or "below"
        return sight
    if not _may(house, turn, sight, known, report):
        return sight
    if not await house.stores(sight.records, turn.conversation):
        report.skip = "redis"
        return sight
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
    least = work.view.envelope + _newest(work.view.tokens, work.view.units)
    if need.trigger == "pressure" and least > need.goal:
        _warn_once(house, turn, tokens=least)
        return sight
    await run(house, turn, work, patience, report)
    if need.trigger == "overflow":
        forgotten(house, turn)
    if work.applied is sight.applied:
        return sight
    report.action = "pressure" if work.commits else report.action
    found = with_applied(turn, sight, work.applied)
    return replace(found, estimate=await estimated(house, turn, found))


async def _need(house: House, turn: Turn, known: Size, sight: Sight) -> _Need | None:
    """Say what the measure asks for, or the overflow that ended this transcript's last stream (rule 9.3)."""
    limits, calibration = known.limits, known.learned.calibration
    if forced(house, turn, sight):
        estimate = sight.estimate if sight.estimate is not None else await estimated(house, turn, sight)
        bounds = overflow_limits(
            turn.policy,
            window=known.window.tokens if known.window else None,
            kind=known.window.kind if known.window else "total",
            rejected=measured(estimate, calibration),
            requested=turn.transcript.envelope.output,
            adds_output=known.window.adds_output if known.window else True,
        )
        return _Need(trigger="overflow", limits=bounds.limits, goal=bounds.fit)
    if limits is None or sight.estimate is None or measured(sight.estimate, calibration) < limits.threshold:
        return None
    return _Need(trigger="pressure", limits=limits, goal=limits.low_water)


def _may(house: House, turn: Turn, sight: Sight, known: Size, report: Report) -> bool:
    """Whether an attempt may be made at all; the reason why not goes into the report."""
    if turn.policy.dry_run:
        report.skip = "dry-run"
        events.emit("dry-run", upstream=turn.destination.name, model=turn.model, trigger="pressure")
        return False
    reasons = (
        (not turn.may_pack, "off"),
        (sight.store_away, "redis"),
        (_rests(house, turn, sight), "paused"),
    )
    reason = next((name for holds, name in reasons if holds), "")
    report.skip = reason or report.skip
    return not reason and not (known.limits is not None and known.limits.hopeless_output)


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


def _newest(tokens: tuple[int, ...], units: tuple[tuple[int, int], ...]) -> int:
    return sum(tokens[slice(*units[-1])]) if units else 0


def _warn_once(house: House, turn: Turn, *, tokens: int) -> None:
    """Envelope and newest unit alone are over low water: packing cannot help (rule 6.8)."""
    if house.once(f"{turn.conversation}:cannot-pack"):
        events.emit("cannot-pack", level=logging.WARNING, conversation=turn.opaque, tokens=tokens)
