"""The compactor that comes with Carryon: prune first, then summarise the head, then measure again.

Every step is a proposal through the job's one door; nothing here is trusted with the record. A summary is
a model's where one of the rungs fits on which it may be asked (`rungs`), else S4, the outline without a model.
Planning is pure and may take seconds for a million tokens, so it is done in a thread while the event loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from proxy.compaction import carrier, outline, prune, rungs
from proxy.compaction.counting import counter, empty
from proxy.compaction.head import Head, already_packed, head, kept
from proxy.compaction.job import Job, Proposed, TurnedDown, View
from proxy.core.ranges import head_for_overflow, head_for_pressure
from proxy.core.surface import Carry, Keep, Put

__all__ = ["Builtin"]


#: What part of what fits an overflow's pruning leaves free, where a level of it can.
_ROOMY = 0.9


class Builtin:
    """The pipeline of pruning, range, summary and proposal. Stateless; one serves all conversations."""

    async def compact(self, job: Job) -> None:
        """Shrink the conversation of `job` to its goal, or as far as it goes."""
        if job.view.trigger == "overflow":
            await _overflow(job)
        else:
            await _pressure(job)


async def _pressure(job: Job) -> None:
    """Rounds of pruning and summary until the goal is reached; each commits at most once."""
    for _ in range(1 + job.view.policy.compaction_retries):
        if job.view.total <= job.view.goal or not await _round(job):
            return


async def _round(job: Job) -> bool:
    """One round under pressure; whether something was committed."""
    view = job.view
    pruned = await asyncio.to_thread(lambda: _pruned(job, prune.for_pressure(view)))
    only_prune = view.policy.summary.method == "off"
    if pruned.changes and (pruned.total <= view.goal or only_prune):
        return isinstance(await _propose_prune(job, pruned), Proposed)
    if only_prune:
        return False
    plan = await asyncio.to_thread(_plan_for_pressure, job, pruned)
    if plan is None:
        return False
    written = await _summarised(job, plan, must=not _fits(view))
    if written is None:
        return False
    return isinstance(await _propose_summary(job, plan, written), Proposed)


async def _overflow(job: Job) -> None:
    """Pruning by itself, then the summary of all but the newest unit, then that unit's own results."""
    if await _prune_to_goal(job, newest=False):
        return
    if job.view.policy.summary.method != "off":
        plan = await asyncio.to_thread(_plan_for_overflow, job)
        written = await _summarised(job, plan, must=True) if plan else None
        if plan and written:
            answer = await _propose_summary(job, plan, written)
            if job.view.total <= job.view.goal or (isinstance(answer, TurnedDown) and answer.final):
                return
    await _prune_to_goal(job, newest=True)


async def _prune_to_goal(job: Job, *, newest: bool) -> bool:
    """Commit the lowest level that reaches the goal, else the deepest; whether the work is over."""
    pruned = await asyncio.to_thread(_lowest_level, job, newest)
    if not pruned.changes:
        return False
    answer = await _propose_prune(job, pruned)
    if isinstance(answer, TurnedDown):
        return answer.final
    return job.view.total <= job.view.goal


def _lowest_level(job: Job, newest: bool) -> _Pruned:  # noqa: FBT001 - the one flag of a private step
    """The lowest level of pruning that leaves some room, else the lowest that reaches the goal, else the deepest.

    A history cut to just what fits is refused again by its next turn.
    """
    view = job.view
    fitting, pruned = None, _Pruned(changes={}, tokens=view.tokens, total=view.total)
    for level in range(prune.LEVELS):
        pruned = _pruned(job, prune.for_overflow(view, level, newest=newest))
        if pruned.changes and pruned.total <= view.goal:
            fitting = fitting or pruned
            if pruned.total <= view.goal * _ROOMY:
                return pruned
    return fitting or pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pruned:
    """A simulated pruning: new bytes by item, the tokens of every item after it, and of the whole request."""

    changes: Mapping[int, bytes]
    tokens: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What a summary replaces: the first `cut` items by a carrier of `budget` tokens; `kept` stay beside it."""

    view: View
    pruned: _Pruned
    cut: int
    kept: tuple[int, ...]
    budget: int
    head: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A carrier's text, what is carried on, and the rung that made its summary."""

    text: str
    carry: Carry
    rung: str


def _pruned(job: Job, changes: prune.Changes) -> _Pruned:
    view = job.view
    new = {at: job.measure([raw]) for at, raw in changes}
    tokens = tuple(new.get(at, size) for at, size in enumerate(view.tokens))
    return _Pruned(changes=dict(changes), tokens=tokens, total=view.envelope + sum(tokens))


def _plan_for_pressure(job: Job, pruned: _Pruned) -> _Plan | None:
    """The head whose replacement reaches the goal; None without a cut, or where pins and newest unit are too much.

    The tail is shorter than its budget where envelope and surface leave it less.
    """
    view = job.view
    beside = sum(view.tokens[at] for at in kept(view, len(view.items)))
    free = view.goal - view.envelope - view.limits.surface - beside - _acknowledgement(job)
    cut = head_for_pressure(
        view.items,
        view.units,
        pruned.tokens,
        tail=max(0, min(view.limits.tail, free)),
        packed=already_packed(view),
    )
    plan = _plan(job, pruned, cut)
    return plan if plan is not None and _least(job, plan) <= plan.budget else None


def _plan_for_overflow(job: Job) -> _Plan | None:
    """All but the newest unit; the carrier keeps at least the pins, since the newest unit may still be pruned."""
    view = job.view
    unpruned = _Pruned(changes={}, tokens=view.tokens, total=view.total)
    plan = _plan(job, unpruned, head_for_overflow(view.units, packed=already_packed(view)))
    return replace(plan, budget=max(plan.budget, _least(job, plan))) if plan is not None else None


def _least(job: Job, plan: _Plan) -> int:
    """What note and pins take of a full surface."""
    return plan.head.least(plan.view.limits.surface - empty(job), counter(job))


def _plan(job: Job, pruned: _Pruned, cut: int) -> _Plan | None:
    view = job.view
    if not cut:
        return None
    staying = kept(view, cut)
    beside = sum(view.tokens[at] for at in staying) + _acknowledgement(job)
    left = view.goal - view.envelope - beside - sum(pruned.tokens[cut:])
    budget = min(view.limits.surface, left) - empty(job)
    return _Plan(view=view, pruned=pruned, cut=cut, kept=staying, budget=budget, head=head(view, cut))


async def _summarised(job: Job, plan: _Plan, *, must: bool) -> _Written | None:
    """The carrier with a model's summary, else the outline; None where one failed that nobody needs (not `must`)."""
    count, summary = counter(job), plan.view.policy.summary
    surface = carrier.room_for_summary(plan.head.packed(plan.budget, count), plan.budget, count)
    choose = partial(rungs.chosen, job, cut=plan.cut, beside=plan.kept, surface=surface)
    rung = await asyncio.to_thread(choose) if summary.method == "model" else None
    if rung is not None:
        text = await rungs.climbed(job, rung) if job.seconds_left > 0 else None
        if text is not None:
            return await asyncio.to_thread(_written, job, plan, text, outline.with_summary(text), rung.name)
        if not must:
            return None
    most = min(surface, summary.max_tokens, sum(plan.view.tokens[: plan.cut]) // 4)
    return await asyncio.to_thread(_outlined, job, plan, most)


def _outlined(job: Job, plan: _Plan, most: int) -> _Written:
    """S4: the outline, which needs no model."""
    memory = plan.head.memory()
    return _written(job, plan, outline.outline(memory, most, counter(job)), memory, "S4")


def _written(job: Job, plan: _Plan, summary: str, memory: dict[str, tuple[str, ...]], rung: str) -> _Written:
    count = counter(job)
    return _Written(
        text=carrier.written(plan.head.packed(plan.budget, count, summary), plan.budget, count),
        carry=plan.head.carry(plan.view.limits.surface, count, memory),
        rung=rung,
    )


async def _propose_prune(job: Job, pruned: _Pruned) -> Proposed | TurnedDown:
    view = job.view
    through = max(view.fixed, _end(view, max(pruned.changes)))
    return await job.propose(_spelled(pruned.changes, range(through)), through, carry=view.carry)


async def _propose_summary(job: Job, plan: _Plan, written: _Written) -> Proposed | TurnedDown:
    """Carrier, acknowledgement where the order of roles needs one, system items, then the pruned start of the tail."""
    view, changes = plan.view, plan.pruned.changes
    through = max(plan.cut, view.fixed, _end(view, max(changes, default=0)))
    following = view.items[plan.cut].facts.role
    parts: list[Put | Keep] = [Put(view.dialect.user(written.text))]
    if following != "assistant":
        parts.append(Put(view.dialect.assistant(carrier.ACKNOWLEDGEMENT)))
    parts += _spelled({}, plan.kept)
    parts += _spelled(changes, range(plan.cut, through))
    return await job.propose(parts, through, carry=written.carry, summary=written.rung)


def _end(view: View, at: int) -> int:
    """Where the unit of an item ends."""
    return next(stop for _, stop in view.units if at < stop)


def _spelled(changes: Mapping[int, bytes], indices: Sequence[int]) -> list[Put | Keep]:
    """These items as parts: put where changed, else kept, neighbours in one part."""
    parts: list[Put | Keep] = []
    for at in indices:
        last = parts[-1] if parts else None
        if at in changes:
            parts.append(Put(changes[at]))
        elif isinstance(last, Keep) and last.stop == at:
            parts[-1] = Keep(last.start, at + 1)
        else:
            parts.append(Keep(at, at + 1))
    return parts


def _fits(view: View) -> bool:
    """Whether the request would fit the window as it is."""
    return view.total <= view.limits.fit


def _acknowledgement(job: Job) -> int:
    return job.measure([job.view.dialect.assistant(carrier.ACKNOWLEDGEMENT)])
