"""Packing beside the requests: no client waits for its summary (rule 6.6).

It starts where a request is over its threshold and fits all the same, and after a reply whose usage says so. One
for a dialogue at a time: in this process by `Aside`, across replicas by a lease among the notes (rule 5.7).
"""

from __future__ import annotations

import asyncio

from proxy.compaction.patience import Patience
from proxy.core.chain import place
from proxy.core.meter import measured
from proxy.house import House
from proxy.policy import Limits
from proxy.steps.guards import hindered, hopeless, tried
from proxy.steps.packing import begun, least, run
from proxy.steps.report import Report
from proxy.steps.sight import Sight, Size, estimated, look
from proxy.steps.turn import Turn
from proxy.store import StoreError

__all__ = ["after_reply", "beside"]

#: Seconds by which a lease outlives the time that a summary may take.
_LEASE_SLACK = 10.0


def beside(house: House, turn: Turn, known: Size, limits: Limits) -> asyncio.Task[None] | None:
    """Pack beside a request that goes as it is; what was started, None where it is under way."""
    if house.aside.running(turn.conversation, turn.transcript) is not None:
        return None
    return house.aside.start(turn.conversation, turn.transcript, _packed(house, turn, known, limits))


def after_reply(house: House, turn: Turn, known: Size, sight: Sight, tokens: int) -> None:
    """Pack after a reply that ended well, where the next request will be over the threshold.

    `tokens` is what the upstream counted, the reply included.
    """
    limits = known.limits
    if limits is None or tokens < limits.threshold or limits.hopeless_output or turn.policy.dry_run:
        return
    talks = any(item.facts.role == "assistant" for item in turn.transcript.items)
    if talks and turn.policy.after_reply and not hindered(house, turn, known, sight, tokens=tokens):
        beside(house, turn, known, limits)


async def _packed(house: House, turn: Turn, known: Size, limits: Limits) -> None:
    """Take the lease, look anew, pack. A store that is away ends it: nothing could be stored."""
    seconds, name = turn.policy.summary.background_timeout, f"lease:{place(turn.transcript)}"
    try:
        if not await house.ledger.claim(turn.conversation, name, house.owner, seconds + _LEASE_SLACK):
            return
    except StoreError:
        return
    try:
        await _worked(house, turn, known, limits, Patience(seconds))
    finally:
        house.background.spawn(house.note(turn.conversation, name, ""))


async def _worked(house: House, turn: Turn, known: Size, limits: Limits, patience: Patience) -> None:
    sight = await look(house, turn, known)
    tokens = measured(await estimated(house, turn, sight), known.learned.calibration)
    if hindered(house, turn, known, sight, tokens=tokens) or not await house.stores(sight.records, turn.conversation):
        return
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
        waits=False,
    )
    if hopeless(house, turn, least=least(work), goal=limits.low_water):
        return
    try:
        await run(house, turn, work, patience, Report())
    finally:  # one that was cut off is a failure too
        if work.applied is sight.applied or work.commits:
            tried(house, turn, sight, landed=bool(work.commits), tokens=tokens)
