"""The proactive trigger: pack before forwarding, while there is still room (SPEC 6). It may fail."""

from __future__ import annotations

import logging
from dataclasses import replace

from proxy import events
from proxy.compaction.work import Patience
from proxy.core.meter import measured
from proxy.house import House
from proxy.packing import begun, run
from proxy.report import Report
from proxy.sight import Sight, Size, estimated
from proxy.turn import Turn

__all__ = ["packed"]


async def packed(house: House, turn: Turn, known: Size, sight: Sight, patience: Patience, report: Report) -> Sight:
    """Pack where the request is at or over its threshold; give what is to be sent."""
    limits = known.limits
    if limits is None or sight.estimate is None:
        return sight
    tokens = measured(sight.estimate, known.learned.calibration)
    if tokens < limits.threshold:
        report.skip = report.skip or "below"
        return sight
    if not _may(turn, sight, known, report):
        return sight
    work = await begun(
        house,
        turn,
        known,
        sight,
        patience,
        trigger="pressure",
        limits=limits,
        goal=limits.low_water,
        calibration=known.learned.calibration,
    )
    if work.view.envelope + _newest(work.view.tokens, work.view.units) > limits.low_water:
        _warn_once(house, turn, tokens=tokens)
        return sight
    await run(house, turn, work, patience, report)
    if work.applied is sight.applied:
        return sight
    report.action = "pressure" if work.commits else report.action
    found = replace(sight, applied=work.applied)
    return replace(found, estimate=await estimated(house, turn, found))


def _may(turn: Turn, sight: Sight, known: Size, report: Report) -> bool:
    """Whether an attempt may be made at all; the reason why not goes into the report."""
    if turn.policy.dry_run:
        report.skip = "dry-run"
        events.emit("dry-run", upstream=turn.destination.name, model=turn.model, trigger="pressure")
        return False
    if not turn.may_pack:
        report.skip = report.skip or "off"
        return False
    if sight.store_away:
        report.skip = "redis"
        return False
    return not (known.limits is None or known.limits.hopeless_output)


def _newest(tokens: tuple[int, ...], units: tuple[tuple[int, int], ...]) -> int:
    return sum(tokens[slice(*units[-1])]) if units else 0


def _warn_once(house: House, turn: Turn, *, tokens: int) -> None:
    """Envelope and newest unit alone are over low water: packing cannot help (SPEC 6.8)."""
    if house.warned.get(turn.conversation) is None:
        house.warned.put(turn.conversation, True)
        conversation = turn.conversation.rpartition(".")[2]
        events.emit("cannot-pack", level=logging.WARNING, conversation=conversation, tokens=tokens)
