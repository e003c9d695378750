"""The job as it is handed to a compactor: it plans, validates and commits what is proposed.

This is the one door through which a replacement reaches the ledger (rules 5.4, I16).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial

import msgspec

from proxy import events
from proxy.compaction.job import BY_MODEL, Proposed, TurnedDown, View
from proxy.compaction.landing import shielded
from proxy.compaction.objections import objections
from proxy.compaction.provenance import provenance
from proxy.compaction.subject import Subject
from proxy.core.identity import framed
from proxy.core.meter import measured
from proxy.core.ranges import units
from proxy.core.replacement import Replacement, replace
from proxy.core.surface import Carry, Keep, Provenance, Put, pack
from proxy.core.transcript import Item
from proxy.dialects import Completion
from proxy.store import Commit, Entry, Record, StoreError
from proxy.surfaces import Applied, apply

__all__ = ["Committed", "Subject", "Work"]

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One replacement this job brought about, for the log; `provenance` where a model wrote the summary."""

    generation: int
    summary: str
    before: int
    after: int
    provenance: Provenance | None = None


class Work:
    """Implements `proxy.compaction.job.Job` over a real ledger."""

    def __init__(self, subject: Subject, applied: Applied) -> None:
        """Begin with what one load showed."""
        self._subject = subject
        self._now = applied
        self._over = False
        self._view = self._look()
        #: Answers of the summariser that wait for what becomes of them.
        self._kept: list[bytes] = []
        self.commits: list[Committed] = []
        self.answers: list[Completion] = []
        #: Those that came since the last proposal: what the next one may be made of.
        self._fresh: list[Completion] = []
        #: Whether the last summary that was asked for was accepted as one: None where none was asked for, or
        #: nobody waited for it to the end. What became of its commit says nothing of the summariser.
        self.summarised: bool | None = None
        #: Whether a commit did not land: the store is full, read-only or away; and whether it did not even say so.
        self.unstored = False
        self.away = False
        #: Whether nothing was asked of this job and nothing proposed to it.
        self.idle = True

    @property
    def view(self) -> View:
        """The conversation as it stands now."""
        return self._view

    @property
    def applied(self) -> Applied:
        """What the last load of the ledger made of the transcript."""
        return self._now

    @property
    def seconds_left(self) -> float:
        """How long summaries may still take."""
        return 0.0 if self._over else self._subject.patience.left

    def end(self) -> None:
        """From now on nothing is proposed or asked: the deadline passed, or the client left."""
        self._over = True
        while self._kept:
            self._subject.flights.release(self._kept.pop())

    def measure(self, raws: Sequence[bytes]) -> int:
        """Measured tokens of rendered items."""
        return sum(measured(self._subject.meter.raw(raw), self._subject.calibration) for raw in raws)

    async def propose(
        self, parts: Sequence[Put | Keep], through: int, *, carry: Carry | None = None, summary: str = "prune"
    ) -> Proposed | TurnedDown:
        """Plan, validate, commit (see `Job.propose`)."""
        self.idle = False
        answers, self._fresh = self._fresh if summary in BY_MODEL else [], []
        if summary in BY_MODEL and self.summarised is not None:
            self.summarised = True
        if self._over:
            return TurnedDown(reason="late", final=True)
        now = self._now.projection
        plan = replace(now, parts, through, self._subject.dialect.item, carry=carry or now.carry, summary=summary)
        if plan is None:
            return TurnedDown(reason="no surface")
        after = self._total(plan.projection.items)
        objection = next(objections(self._view, plan, through, after), None)
        if objection is not None:
            word = objection.partition(":")[0]  # what follows is a client's: the id of a call
            events.emit("proposal-turned-down", conversation=self._subject.opaque, reason=word)
            return TurnedDown(reason=objection)
        async with self._subject.ledger.in_turn(self._subject.conversation):
            return await self._commit(plan, after, answers)

    async def ask(
        self, items: Sequence[Item], instruction: str, *, max_tokens: int, alone: bool = False
    ) -> Completion | None:
        """Ask the summariser, once for all who ask the same at the same time (see `Job.ask`)."""
        if self._over or self._subject.patience.left <= 0:
            return None
        self.idle = False
        if await self._overtaken():
            return None
        about = (self._subject.conversation, self._model, instruction)
        # By what the items mean: an agent that repeats a request may spell it otherwise each time (rule 5.7).
        key = framed((*about, str(alone), *(item.facts.digest for item in items if item.facts.significant)))
        start, keep = partial(self._ask, items, instruction, max_tokens, alone), partial(self._keeps, key)
        asked = self._subject.flights.join(key, start, keep=keep)
        answer = await self._subject.patience.waiting(asked)
        self.summarised = False  # until the compactor proposes what it took from it
        if answer is None and self._subject.patience.left <= 0:
            events.emit("summary-failed", level=logging.WARNING, conversation=self._subject.opaque, error="time is up")
        if answer is not None:
            self.answers.append(answer)
            self._fresh.append(answer)
        return answer

    @property
    def _model(self) -> str:
        """The model that writes the summaries."""
        other = self._subject.summariser
        return other.model if other else self._now.projection.transcript.envelope.model

    async def _overtaken(self) -> bool:
        """Whether another job of this process packed this history while ours was planned: then nothing is paid for."""
        record = self._subject.ledger.remembered(self._subject.conversation)
        mine = self._now.record
        if record is None or (record.epoch == mine.epoch and record.generation <= mine.generation):
            return False
        before, now = self._now, await self._applied(record)
        if now.projection.operation != before.projection.operation:
            self._now, self._over = now, True
            self._view = self._look()
        return self._over

    def _keeps(self, key: bytes, answer: Completion | None) -> bool:
        """Whether an answer is held until this job is over: whoever asks the same meanwhile gets it too."""
        keeps = answer is not None and not self._over
        self._kept += [key] if keeps else []
        return keeps

    async def _ask(self, items: Sequence[Item], instruction: str, max_tokens: int, alone: bool) -> Completion | None:  # noqa: FBT001 - as `ask` has it
        dialect, transcript = self._subject.dialect, self._now.projection.transcript
        other = self._model if self._subject.summariser else ""
        body = dialect.summary_request(transcript, items, instruction, max_tokens=max_tokens, alone=alone, model=other)
        reply = await self._subject.post(body, self._subject.patience.left)
        answer = dialect.answer(reply) if reply is not None else None
        if reply is not None and answer is None:
            events.emit(
                "summary-rejected", level=logging.WARNING, conversation=self._subject.opaque, finish="unreadable"
            )
        return answer

    def _look(self) -> View:
        subject, now = self._subject, self._now.projection
        return View(
            dialect=subject.dialect,
            trigger=subject.trigger,
            items=now.items,
            tokens=tuple(measured(subject.meter.item(item), subject.calibration) for item in now.items),
            units=units(now.items),
            envelope=measured(subject.meter.envelope(now.transcript.envelope), subject.calibration),
            fixed=now.fixed,
            covered=now.covered,
            put=now.put,
            goal=subject.goal,
            limits=subject.limits,
            policy=subject.policy,
            carry=now.carry,
            calibration=subject.calibration,
            summariser=subject.summariser,
            waits=subject.waits,
        )

    def _total(self, items: Sequence[Item]) -> int:
        tokens = (measured(self._subject.meter.item(item), self._subject.calibration) for item in items)
        return self._view.envelope + sum(tokens)

    async def _commit(self, plan: Replacement, after: int, answers: Sequence[Completion]) -> Proposed | TurnedDown:
        entry = self._entry(plan, after)
        source = provenance(answers, entry.operation)
        surface = pack(msgspec.structs.replace(plan.surface, provenance=source))
        for _ in range(_ATTEMPTS):
            if self._over:
                return TurnedDown(reason="late", final=True)
            record = await self._write(entry, surface)
            if isinstance(record, str):
                self.unstored = record == "unconfirmed"
                return self._finished(record)
            mine = next((known for known in record.entries if known.operation == entry.operation), None)
            before, self._now = self._now, await self._applied(record)
            if mine is not None:
                self.commits.append(
                    Committed(
                        generation=mine.generation,
                        summary=plan.surface.summary,
                        before=entry.before,
                        after=after,
                        provenance=source,
                    )
                )
                self._view = self._look()
                return Proposed()
            if self._now.projection.operation != before.projection.operation:  # another surface applies now (rule 5.4)
                self._view = self._look()
                return self._finished("lost")
        return self._finished("moved")

    def _entry(self, plan: Replacement, after: int) -> Entry:
        now = self._now.projection
        return Entry(
            generation=0,
            operation=secrets.token_hex(16),
            digest=plan.digest,
            covered=plan.surface.covered,
            summarised=plan.surface.summarised,
            base=now.generation,
            model=now.transcript.envelope.model,
            window=self._subject.window,
            before=self._view.total,
            after=after,
            at=int(time.time()),
        )

    async def _write(self, entry: Entry, surface: bytes) -> Record | str:
        """One commit, then the load that decides; why there is none, which ends the work (rule 5.4).

        The commit is shielded: once sent it lands whole or not at all, whoever stops waiting.
        """
        subject, answered = self._subject, True
        try:
            commit = subject.ledger.commit(subject.conversation, self._now.record, entry, surface)
            if await shielded(commit) is Commit.REFUSED:
                return "refused"
        except StoreError:  # the store itself warns, once per interval: this may come with every request
            answered = False
            events.emit("commit-unanswered", conversation=subject.opaque)
        try:
            record = await subject.ledger.load(subject.conversation)
        except StoreError:
            self.away = not answered
            return "unconfirmed"
        there = any(known.operation == entry.operation for known in record.entries)
        return record if answered or there else "unconfirmed"

    async def _applied(self, record: Record) -> Applied:
        subject = self._subject
        transcript = self._now.projection.transcript
        try:
            return await apply(
                subject.ledger, subject.conversation, record, transcript, subject.dialect, suits=subject.suits
            )
        except StoreError:
            return changed(self._now, record=record)

    def _finished(self, reason: str) -> TurnedDown:
        self._over = True
        return TurnedDown(reason=reason, final=True)
