"""The reactive trigger: an upstream refused a request as too long. Pack hard, then ask for proof (rule 7).

A retry is authorised by `core.evidence` alone, from the load that built the rejected body and one
load after compaction. Everything that goes wrong here leaves the original refusal to the client.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from proxy import events
from proxy.compaction.patience import Patience
from proxy.core.evidence import Authorised, Denied, Fit, Seen, authorise, fits
from proxy.core.meter import CALIBRATION_RANGE, measured
from proxy.core.overflow import Verdict
from proxy.house import House
from proxy.policy import OverflowLimits, overflow_limits
from proxy.steps.packing import begun, run
from proxy.steps.report import Report
from proxy.steps.sight import Sight, Size, estimated, evident, look
from proxy.steps.turn import Turn
from proxy.store import StoreError

__all__ = ["recovered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rejection:
    """What was rejected, measured with the calibration that is frozen for this recovery."""

    sight: Sight
    seen: Seen
    calibration: float
    bounds: OverflowLimits
    fit: Fit


async def recovered(
    house: House, turn: Turn, known: Size, sight: Sight, verdict: Verdict, patience: Patience, report: Report
) -> Sight | None:
    """What to send once more, None where there is no evidence; `report.refused` then says why."""
    reason = _hindrance(turn, verdict)
    if reason:
        report.refused = reason
        return None
    try:
        found = await _decided(house, turn, known, sight, verdict, patience, report)
    except StoreError:
        found = Denied(reason="redis")
    except Exception:  # noqa: BLE001 - protects the original refusal from every fault of a recovery
        house.fault("an overflow is handed over as it came")
        found = Denied(reason="no-advance")
    if isinstance(found, Denied):
        report.refused = found.reason
        upstream, reason = turn.destination.name, found.reason
        level = logging.INFO if reason == "redis" else logging.WARNING  # of the store it is said once per interval
        events.emit("retry-refused", level=level, upstream=upstream, model=turn.model, reason=reason)
        return None
    return found


def _hindrance(turn: Turn, verdict: Verdict) -> str:
    if turn.policy.dry_run:
        events.emit("dry-run", upstream=turn.destination.name, model=turn.model, trigger="overflow")
    return turn.hindrance or ("" if verdict.compactable else "too-large")


async def _decided(
    house: House, turn: Turn, known: Size, sight: Sight, verdict: Verdict, patience: Patience, report: Report
) -> Sight | Denied:
    rejected = await _rejection(house, turn, known, sight, verdict)
    if rejected.bounds.hopeless_output:
        return Denied(reason="too-large")
    without = await _packed(house, turn, known, rejected, patience, report)
    now = await evident(house, turn, known, rejected.sight.records)
    if now is not None:
        now = replace(now, estimate=await estimated(house, turn, now))
    decision = authorise(
        rejected.seen,
        _seen(turn, now, rejected.calibration) if now else None,
        fit=rejected.fit,
        problem=_problem(turn, now),
    )
    await asyncio.sleep(0)  # a client that left cancels this task: here at the latest that takes effect (rule 7.3)
    if isinstance(decision, Authorised) and now is not None:
        return now
    if isinstance(decision, Denied) and decision.reason == "no-advance":
        return without
    return decision if isinstance(decision, Denied) else Denied(reason="unconfirmed")


async def _rejection(house: House, turn: Turn, known: Size, sight: Sight, verdict: Verdict) -> _Rejection:
    """Measure what was rejected; a request that skipped its look-up has it now (rule 7.3)."""
    estimate = sight.estimate if sight.estimate is not None else await estimated(house, turn, sight)
    records = sight.records.extended(house.settings.redis.wait_timeout)
    looked = replace(sight, records=records) if sight.looked else await look(house, turn, known, records)
    if looked.store_away:
        raise StoreError("the store is away")
    output = turn.transcript.envelope.output or 0
    kind = known.window.kind if known.window else "total"
    adds = known.window.adds_output if known.window else True
    calibration = _frozen(verdict, estimate, known.learned.calibration)
    tokens = measured(estimate, calibration)
    added = output if adds and (verdict.limit_kind or kind) == "total" else 0
    _learn(house, turn, verdict, estimate, added=added)
    # The surface in the rejected body names its epoch; a body without one is compared with the load made now.
    record = sight.applied.record if sight.entry is not None else looked.applied.record
    return _Rejection(
        sight=looked,
        seen=Seen(
            epoch=record.epoch, generation=sight.generation, body=sight.body or turn.transcript.body, tokens=tokens
        ),
        calibration=calibration,
        bounds=overflow_limits(
            turn.policy,
            window=known.window.tokens if known.window else None,
            kind=kind,
            rejected=tokens,
            revealed=verdict.limit,
            revealed_kind=verdict.limit_kind,
            requested=output or None,
            adds_output=adds,
        ),
        fit=Fit(limit=verdict.limit, output=added),
    )


async def _packed(
    house: House, turn: Turn, known: Size, rejected: _Rejection, patience: Patience, report: Report
) -> Denied:
    """Let the compactor work, unless what the ledger holds by now already fits; what to say if nothing came of it.

    Raises `StoreError` where the store answers no more and nothing was committed before: it has no proof to give.
    """
    work = await begun(
        house,
        turn,
        known,
        rejected.sight,
        patience,
        trigger="overflow",
        limits=rejected.bounds.limits,
        goal=rejected.bounds.fit,
        calibration=rejected.calibration,
    )
    newer = rejected.sight.generation > rejected.seen.generation
    if newer and fits(rejected.seen.tokens, work.view.total, rejected.fit):
        return Denied(reason="no-advance")
    if not await house.stores(rejected.sight.records, turn.conversation):
        return Denied(reason="redis")
    several = len(work.view.units) > 1 or any(item.facts.answers for item in work.view.items)
    await run(house, turn, work, patience, report)
    if work.away and not work.commits:
        raise StoreError("neither a commit nor the look after it was answered")
    if work.unstored:
        return Denied(reason="redis")
    return Denied(reason="no-advance" if several else "no-cut")


def _learn(house: House, turn: Turn, verdict: Verdict, estimate: int, *, added: int) -> None:
    """Take the count of a refusal as its meter's word, unless requested output may be in it."""
    if verdict.requested and estimate > 0 and not added:
        house.learning.calibration(turn.keys, verdict.requested / estimate)


def _seen(turn: Turn, sight: Sight, calibration: float) -> Seen:
    return Seen(
        epoch=sight.applied.record.epoch,
        generation=sight.generation,
        body=sight.body or turn.transcript.body,
        tokens=measured(sight.estimate or 0, calibration),
    )


def _problem(turn: Turn, now: Sight | None) -> str | None:
    return turn.dialect.invalid(now.applied.projection.items, turn.transcript.items) if now else None


def _frozen(verdict: Verdict, estimate: int, calibration: float) -> float:
    """The calibration of this recovery: what the refusal counted, else what was learned."""
    if not verdict.requested or estimate <= 0:
        return calibration
    low, high = CALIBRATION_RANGE
    return min(high, max(low, verdict.requested / estimate))
