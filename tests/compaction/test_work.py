"""The one door to the ledger: what is proposed is planned, validated, and committed whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace as changed
from typing import Any

import pytest

from proxy.compaction.flights import Flights
from proxy.compaction.job import Job, Proposed, TurnedDown
from proxy.compaction.job import Summariser as Other
from proxy.compaction.patience import Patience
from proxy.compaction.work import Committed, Subject, Work
from proxy.core.meter import Meter
from proxy.core.surface import Carry, Keep, Provenance, Put, unpack
from proxy.core.transcript import Transcript
from proxy.dialects import Completion
from proxy.dialects.chat import CHAT
from proxy.policy import Policy, limits
from proxy.store import Record
from proxy.store.within import Within
from proxy.surfaces import apply
from tests.compaction.ledgers import Accidental
from tests.transcripts import calls, result, says, spelt, system, transcript, user

LONG = "word " * 400
#: Nine items: a task, a tool step, system text, talk.
TALK = transcript(
    user("task " + LONG),
    calls("c"),
    result("c", LONG),
    system("rule"),
    says(LONG),
    user("more"),
    says(LONG),
    user("go on"),
)
OTHER = transcript(user("task " + LONG), calls("c"), result("c", LONG), user("another way"))
SUMMARY = Put(spelt(user("summary")))
PARTS: list[Put | Keep] = [SUMMARY, Keep(3, 4)]


@pytest.fixture
async def other(valkey: Any) -> AsyncIterator[Accidental]:
    """Another replica's."""
    found = Accidental(valkey.url)
    yield found
    await found.close()


async def never(body: bytes, seconds: float) -> bytes | None:
    """No summariser."""
    raise AssertionError(body, seconds)


def subject(ledger: Accidental, conversation: str, **changes: Any) -> Subject:
    """A job's frame over a small window."""
    policy = Policy()
    plain = Subject(
        ledger=Within(ledger, 60.0, each=5.0),
        conversation=conversation,
        dialect=CHAT,
        meter=Meter(CHAT.weigh, lambda text: len(text) // 4),
        calibration=1.0,
        limits=limits(policy, window=2_048, kind="input"),
        policy=policy,
        trigger="pressure",
        goal=1_000,
        window=2_048,
        post=never,
        flights=Flights(),
        patience=Patience(30.0),
    )
    return changed(plain, **changes)


async def work_on(about: Subject, found: Transcript = TALK) -> Work:
    """A job begun with a load."""
    record = await about.ledger.load(about.conversation)
    return Work(about, await apply(about.ledger, about.conversation, record, found, about.dialect))


async def packed_by(other: Accidental, conversation: str, found: Transcript, through: int = 3) -> None:
    """Another replica packs the beginning of this transcript."""
    theirs = await work_on(subject(other, conversation), found)
    parts: list[Put | Keep] = [Put(spelt(user("theirs"))), *([Keep(3, through)] if through > 3 else [])]
    assert await theirs.propose(parts, through) == Proposed()


def raws(work: Work) -> list[bytes]:
    """What the model sees."""
    return [item.raw for item in work.view.items]


async def test_the_view_is_what_one_load_showed(ledger: Accidental, conversation: str) -> None:
    """Items, their tokens, units without gaps, the budgets of the subject."""
    work = await work_on(subject(ledger, conversation, calibration=2.0))
    job: Job = work
    view = job.view
    assert view.items == TALK.items
    assert view.tokens == tuple(2 * tokens for tokens in (await work_on(subject(ledger, conversation))).view.tokens)
    assert view.units == ((0, 1), (1, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8))
    assert (view.fixed, view.covered, view.goal, view.trigger) == (0, 0, 1_000, "pressure")
    assert view.total == view.envelope + sum(view.tokens)
    assert job.measure([item.raw for item in view.items]) == sum(view.tokens)


async def test_a_sound_proposal_is_committed_and_the_view_is_new(ledger: Accidental, conversation: str) -> None:
    """One generation, one entry, and what the model sees now begins with the surface."""
    work = await work_on(subject(ledger, conversation))
    before = work.view.total
    assert await work.propose(PARTS, 5, carry=Carry(task="task"), summary="S4") == Proposed()
    record = await ledger.load(conversation)
    (entry,) = record.entries
    assert (record.generation, entry.generation, entry.covered, entry.base) == (1, 1, 5, 0)
    assert (entry.model, entry.window, entry.before, entry.after) == ("m", 2_048, before, work.view.total)
    assert raws(work) == [SUMMARY.raw, *(TALK.items[at].raw for at in (3, 5, 6, 7))]
    assert (work.view.fixed, work.view.covered, work.view.carry.task) == (2, 5, "task")
    assert (work.applied.record, work.applied.projection.generation) == (record, 1)
    assert work.commits == [Committed(generation=1, summary="S4", before=before, after=work.view.total)]


async def test_a_second_proposal_builds_on_the_first(ledger: Accidental, conversation: str) -> None:
    """Its base is the surface that applied; what was handed on stays where nothing else is said."""
    work = await work_on(subject(ledger, conversation))
    await work.propose(PARTS, 5, carry=Carry(task="task"))
    assert await work.propose([Put(spelt(user("s"))), Keep(1, 2)], 4) == Proposed()
    record = await ledger.load(conversation)
    assert [(entry.generation, entry.base, entry.covered) for entry in record.entries] == [(1, 0, 5), (2, 1, 7)]
    assert work.view.carry.task == "task"
    assert [done.generation for done in work.commits] == [1, 2]


async def test_another_process_projects_what_this_one_packed(
    ledger: Accidental, other: Accidental, conversation: str
) -> None:
    """The ledger is all they share."""
    await (await work_on(subject(ledger, conversation))).propose(PARTS, 5)
    assert raws(await work_on(subject(other, conversation)))[0] == SUMMARY.raw


PRUNED = CHAT.shrink(TALK.items[2].raw, lambda text: text[:20])
assert PRUNED is not None
OBJECTIONS: dict[str, tuple[list[Put | Keep], int, str]] = {
    "no surface": ([Keep(0, 99)], 5, "no surface"),
    "a cut inside a unit": ([SUMMARY], 2, "splits a unit"),
    "a call without its result": ([SUMMARY, Keep(1, 2), Keep(3, 4)], 5, "call without its result"),
    "a result without its call": ([SUMMARY, Put(PRUNED), Keep(3, 4)], 5, "result without its call"),
    "system text dropped": ([SUMMARY], 5, "system text"),
    "system text rewritten": ([SUMMARY, Put(spelt(system("rules")))], 5, "system text"),
    "system text added": ([Put(spelt(system("obey"))), *PARTS], 5, "system text"),
    "system text twice": ([SUMMARY, Keep(3, 4), Put(spelt(system("rule")))], 5, "system text"),
    "an empty assistant": ([Put(spelt(says(""))), *PARTS], 5, "empty assistant message"),
    "the newest unit summarised": ([SUMMARY, Keep(3, 4)], 8, "the newest unit"),
    "the user silenced": ([Put(spelt(says("all is well"))), Keep(3, 4)], 5, "no word of the user"),
    "nothing gained": ([Keep(0, 5)], 5, "it frees 0 tokens"),
    "too little gained": ([Put(spelt(user("task " + LONG[:-500]))), Keep(1, 5)], 5, "is the least"),
    "grown": ([Put(spelt(user(LONG))), Keep(0, 5)], 5, "it frees -"),
}


@pytest.mark.parametrize(("parts", "through", "reason"), OBJECTIONS.values(), ids=OBJECTIONS)
async def test_an_unsound_proposal_changes_nothing(
    ledger: Accidental,
    conversation: str,
    caplog: pytest.LogCaptureFixture,
    parts: list[Put | Keep],
    through: int,
    reason: str,
) -> None:
    """It is turned down with a reason, and the compactor may propose something better; no id of a call is logged."""
    caplog.set_level("INFO")
    work = await work_on(subject(ledger, conversation))
    found = await work.propose(parts, through)
    assert isinstance(found, TurnedDown)
    assert ": " not in found.reason or found.reason not in caplog.text
    assert reason in found.reason
    assert not found.final
    assert ledger.commits == 0
    assert await ledger.load(conversation) == Record()
    assert await work.propose(PARTS, 5) == Proposed()


async def test_under_overflow_any_gain_is_one(ledger: Accidental, conversation: str) -> None:
    """The minimum gain is a guard of pressure only; growing is never one."""
    work = await work_on(subject(ledger, conversation, trigger="overflow"))
    assert isinstance(await work.propose([Keep(0, 5)], 5), TurnedDown)
    assert await work.propose([Put(spelt(user("task " + LONG[:-8]))), Keep(1, 5)], 5) == Proposed()


async def test_what_moved_under_it_is_committed_once_more(
    ledger: Accidental, other: Accidental, conversation: str
) -> None:
    """Another branch advanced the generation: the plan's ground is the same, its numbers are new."""
    work = await work_on(subject(ledger, conversation))
    branches = iter([OTHER])

    async def before() -> None:
        for branch in branches:
            await packed_by(other, conversation, branch, 4)

    ledger.before = before
    assert await work.propose(PARTS, 5) == Proposed()
    record = await ledger.load(conversation)
    assert (ledger.commits, record.generation) == (2, 2)
    assert work.commits[0].generation == 2
    assert raws(work)[0] == SUMMARY.raw


async def test_the_third_time_it_moved_is_the_last(ledger: Accidental, other: Accidental, conversation: str) -> None:
    """A conversation everyone packs is left to the others."""
    work = await work_on(subject(ledger, conversation))
    branches = iter(range(9))

    async def before() -> None:
        branch = transcript(*map(_message, OTHER.items[:3]), user(f"branch {next(branches)}"))
        await packed_by(other, conversation, branch, 4)

    ledger.before = before
    assert await work.propose(PARTS, 5) == TurnedDown(reason="moved", final=True)
    assert ledger.commits == 3
    record = await ledger.load(conversation)
    assert record.generation == 3
    assert await work.propose(PARTS, 5) == TurnedDown(reason="late", final=True)


def _message(item: Any) -> Any:
    return json.loads(item.raw)


async def test_a_lost_race_ends_the_work_and_the_winner_is_used(
    ledger: Accidental, other: Accidental, conversation: str
) -> None:
    """Another replica packed this very transcript: its surface applies, ours is not written."""
    work = await work_on(subject(ledger, conversation))
    ledger.before = lambda: packed_by(other, conversation, TALK)
    assert await work.propose(PARTS, 5) == TurnedDown(reason="lost", final=True)
    record = await ledger.load(conversation)
    assert (ledger.commits, record.generation) == (1, 1)
    assert raws(work)[0] == spelt(user("theirs"))
    assert work.commits == []
    assert work.seconds_left == 0


async def test_a_lost_reply_is_looked_up(ledger: Accidental, conversation: str) -> None:
    """The commit landed, its reply did not: the load finds the operation, and nothing is written twice."""
    work = await work_on(subject(ledger, conversation))
    ledger.lose_reply = True
    assert await work.propose(PARTS, 5) == Proposed()
    assert (ledger.commits, (await ledger.load(conversation)).generation) == (1, 1)


async def test_a_commit_that_never_arrives_is_none(ledger: Accidental, conversation: str) -> None:
    """An unanswered commit that no load shows ends the work; nothing is stored, nothing claimed."""
    work = await work_on(subject(ledger, conversation))
    ledger.lose_commit = True
    assert await work.propose(PARTS, 5) == TurnedDown(reason="unconfirmed", final=True)
    assert ledger.commits == 1
    assert await ledger.load(conversation) == Record()
    assert work.commits == []


async def test_a_commit_that_the_script_refuses_says_so(ledger: Accidental, conversation: str) -> None:
    """It was answered: that is another thing than a commit of which nobody knows."""
    work = await work_on(subject(ledger, conversation))
    ledger.refuse = True
    assert await work.propose(PARTS, 5) == TurnedDown(reason="refused", final=True)
    assert work.commits == []


async def test_a_commit_that_cannot_be_looked_up_is_unconfirmed(ledger: Accidental, conversation: str) -> None:
    """The store went away after it: whether it landed is not assumed."""
    work = await work_on(subject(ledger, conversation))
    ledger.lose_loads = True
    assert await work.propose(PARTS, 5) == TurnedDown(reason="unconfirmed", final=True)
    assert work.commits == []
    ledger.lose_loads = False
    assert (await ledger.load(conversation)).generation == 1


async def test_a_surface_that_cannot_be_fetched_leaves_the_view(ledger: Accidental, conversation: str) -> None:
    """The commit counts; what the model would see is not guessed at."""
    work = await work_on(subject(ledger, conversation))
    ledger.lose_surfaces = True
    assert await work.propose(PARTS, 5) == Proposed()
    assert work.commits[0].generation == 1
    assert work.applied.record.generation == 1


async def test_after_the_end_nothing_is_proposed_or_asked(ledger: Accidental, conversation: str) -> None:
    """The deadline passed or the client left: the job is dead."""
    work = await work_on(subject(ledger, conversation))
    work.end()
    assert await work.propose(PARTS, 5) == TurnedDown(reason="late", final=True)
    assert await work.ask(work.view.items, "sum up", max_tokens=9) is None
    assert work.seconds_left == 0
    assert await ledger.load(conversation) == Record()


async def test_after_the_end_nothing_is_committed_once_more(
    ledger: Accidental, other: Accidental, conversation: str
) -> None:
    """An end between two attempts stops the second."""
    work = await work_on(subject(ledger, conversation))

    async def before() -> None:
        await packed_by(other, conversation, OTHER, 4)
        work.end()

    ledger.before = before
    assert await work.propose(PARTS, 5) == TurnedDown(reason="late", final=True)
    assert ledger.commits == 1
    assert len((await ledger.load(conversation)).entries) == 1


async def test_a_commit_on_its_way_lands_though_the_waiter_is_cancelled(
    ledger: Accidental, conversation: str, wait_for: Callable[..., Awaitable[None]]
) -> None:
    """Once sent it lands whole or not at all, whoever stops waiting."""
    work = await work_on(subject(ledger, conversation))
    ledger.held = asyncio.Event()
    proposing = asyncio.create_task(work.propose(PARTS, 5))
    await wait_for(lambda: ledger.commits == 1, "the commit")
    proposing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await proposing
    assert await ledger.load(conversation) == Record()
    ledger.held.set()

    async def landed() -> bool:
        return (await ledger.load(conversation)).generation == 1

    await wait_for(landed, "the commit that was on its way")
    assert raws(await work_on(subject(ledger, conversation)))[0] == SUMMARY.raw


class Summariser:
    """Answers summary requests after a while and notes them."""

    def __init__(self, reply: bytes | None, after: float = 0.0) -> None:
        self.reply, self.after = reply, after
        self.bodies: list[dict[str, Any]] = []
        self.given: list[float] = []
        self.cancelled = 0

    async def __call__(self, body: bytes, seconds: float) -> bytes | None:
        """Completion."""
        self.bodies.append(json.loads(body))
        self.given.append(seconds)
        try:
            await asyncio.sleep(self.after)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.reply


SUM = spelt({"choices": [{"message": says("sum"), "finish_reason": "stop"}], "model": "n"})
ANSWER = Completion(text="sum", finish="stop", model="n")


async def test_the_summariser_is_asked_over_the_live_prefix(ledger: Accidental, conversation: str) -> None:
    """The items, then the instruction; the answer is kept for the report."""
    post = Summariser(SUM)
    work = await work_on(subject(ledger, conversation, post=post))
    assert await work.ask(work.view.items[:3], "sum up", max_tokens=9) == ANSWER
    assert post.bodies[0]["messages"] == [*map(_message, TALK.items[:3]), user("sum up")]
    assert await work.ask((), "alone", max_tokens=9, alone=True) == ANSWER
    assert post.bodies[1]["messages"] == [user("alone")]
    assert work.answers == [ANSWER, ANSWER]


async def test_another_model_is_asked_by_its_name(ledger: Accidental, conversation: str) -> None:
    """The view says who writes and whether anybody waits."""
    post, other = Summariser(SUM), Other(model="small", window=4_096)
    work = await work_on(subject(ledger, conversation, post=post, summariser=other, waits=False))
    assert (work.view.summariser, work.view.waits) == (other, False)
    assert await work.ask((), "alone", max_tokens=9, alone=True) == ANSWER
    assert (post.bodies[0]["model"], post.bodies[0]["messages"]) == ("small", [user("alone")])
    own = (await work_on(subject(ledger, conversation))).view
    assert (own.summariser, own.waits) == (None, True)


async def test_who_wrote_a_summary_is_stored_with_it(ledger: Accidental, conversation: str) -> None:
    """All calls since the last proposal, the model that answered, the commit's own id; nothing of what code wrote."""
    usage = {"prompt_tokens": 90, "completion_tokens": 7}
    post = Summariser(
        spelt({"choices": [{"message": says("sum"), "finish_reason": "stop"}], "model": "n", "usage": usage})
    )
    work = await work_on(subject(ledger, conversation, post=post))
    for text in ("in part", "in whole"):
        await work.ask((), text, max_tokens=9, alone=True)
    assert await work.propose(PARTS, 4, summary="S3") == Proposed()
    operation = work.applied.projection.operation
    source = Provenance(model="n", prompt=180, completion=14, calls=2, operation=operation)
    assert work.commits[-1].provenance == source
    assert await _stored(ledger, work) == source
    await work.ask((), "in vain", max_tokens=9, alone=True)
    assert await work.propose([Put(spelt(user("s"))), Keep(1, 2)], 3, summary="S4") == Proposed()
    assert work.commits[-1].provenance is None
    assert await _stored(ledger, work) is None


async def _stored(ledger: Accidental, work: Work) -> Provenance | None:
    """What the ledger holds of the newest surface's summary."""
    record, entry = work.applied.record, work.applied.entry
    assert entry is not None
    surface = unpack(await ledger.surface(work._subject.conversation, record.epoch or "", entry) or b"")
    assert surface is not None
    return surface.provenance


@pytest.mark.parametrize("reply", [None, b"", b'{"error":"x"}'])
async def test_no_answer_is_none(ledger: Accidental, conversation: str, reply: bytes | None) -> None:
    """A failed call, an error, anything that is no reply."""
    work = await work_on(subject(ledger, conversation, post=Summariser(reply)))
    assert await work.ask(work.view.items, "sum up", max_tokens=9) is None
    assert work.answers == []


async def test_two_who_want_the_same_summary_pay_once(ledger: Accidental, conversation: str) -> None:
    """Identical requests in flight cause one call; another tenant's causes its own."""
    post, flights = Summariser(SUM, after=0.05), Flights[Completion | None]()
    mine = [await work_on(subject(ledger, conversation, post=post, flights=flights)) for _ in range(3)]
    theirs = await work_on(subject(ledger, f"other.{conversation}", post=post, flights=flights))
    found = await asyncio.gather(*(one.ask(one.view.items, "sum up", max_tokens=9) for one in (*mine, theirs)))
    assert found == [ANSWER] * 4
    assert len(post.bodies) == 2


async def test_another_spelling_of_the_same_head_is_the_same_summary(ledger: Accidental, conversation: str) -> None:
    """What an agent spells otherwise when it repeats a request, and the room left by it, make no second call."""
    post, flights = Summariser(SUM, after=0.05), Flights[Completion | None]()
    plain, spaced = (json.dumps(json.loads(TALK.body), indent=indent).encode() for indent in (None, 1))
    found = [CHAT.split(one) for one in (plain, spaced)]
    both = [await work_on(subject(ledger, conversation, post=post, flights=flights), one) for one in found if one]
    asked = (one.ask(one.view.items, "sum up", max_tokens=9 + at) for at, one in enumerate(both))
    assert await asyncio.gather(*asked) == [ANSWER] * 2
    assert len(post.bodies) == 1


async def test_who_asks_for_a_summary_that_is_being_committed_gets_the_same(
    ledger: Accidental, conversation: str
) -> None:
    """The answer is there, the commit is not yet: nothing is paid for again until the first job is over."""
    post, flights = Summariser(SUM), Flights[Completion | None]()
    first, second, third = [await work_on(subject(ledger, conversation, post=post, flights=flights)) for _ in range(3)]
    assert await first.ask(first.view.items[:3], "sum up", max_tokens=9) == ANSWER
    assert await second.ask(second.view.items[:3], "sum up", max_tokens=9) == ANSWER
    assert len(post.bodies) == 1
    assert await first.propose(PARTS, 4, summary="S1") == Proposed()
    for one in (first, second):
        one.end()
    assert await third.ask(third.view.items[:3], "sum up", max_tokens=9) is None
    assert len(post.bodies) == 1
    assert third.applied.projection.operation == first.applied.projection.operation
    assert await third.propose(PARTS, 4) == TurnedDown(reason="late", final=True)


async def test_what_was_packed_of_another_history_stops_no_summary(ledger: Accidental, conversation: str) -> None:
    """The record moved by a stranger's commit: no surface of it applies here, so the summary is asked for."""
    post = Summariser(SUM)
    stranger = transcript(user("stranger " + LONG), calls("c"), result("c", LONG), user("on"))
    mine = await work_on(subject(ledger, conversation, post=post))
    assert await (await work_on(subject(ledger, conversation), stranger)).propose([SUMMARY], 3) == Proposed()
    assert await mine.ask(mine.view.items[:3], "sum up", max_tokens=9) == ANSWER


async def test_many_histories_of_one_record_are_all_packed_at_once(ledger: Accidental, conversation: str) -> None:
    """Unrelated sessions that begin alike do not starve each other: each commit waits for its turn."""
    histories = [
        transcript(user("task " + LONG), calls("c"), result("c", f"{number} {LONG}"), user("on"))
        for number in range(12)
    ]
    works = [await work_on(subject(ledger, conversation), one) for one in histories]
    assert await asyncio.gather(*(one.propose([SUMMARY], 3) for one in works)) == [Proposed()] * len(works)
    assert sorted(one.commits[0].generation for one in works) == list(range(1, 1 + len(works)))


async def test_a_summary_that_cannot_be_read_is_warned_of(
    ledger: Accidental, conversation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No failure of a summariser is silent (rule 6.7)."""
    work = await work_on(subject(ledger, conversation, post=Summariser(b"no completion")))
    assert await work.ask(work.view.items, "sum up", max_tokens=9) is None
    assert [record.getMessage() for record in caplog.records] == ["summary-rejected"]


async def test_patience_is_shared_by_all_rounds(
    ledger: Accidental, conversation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was waited for is gone, with one warning; when nothing is left nobody is asked."""
    post = Summariser(SUM, after=10)
    patience = Patience(0.15)
    work = await work_on(subject(ledger, conversation, post=post, patience=patience))
    assert work.seconds_left == 0.15
    assert await work.ask(work.view.items, "sum up", max_tokens=9) is None
    await asyncio.sleep(0)  # the call hears of it in the next turn of the loop
    assert post.given == [0.15]
    assert post.cancelled == 1
    assert patience.left == work.seconds_left == 0
    assert 0.15 <= patience.waited < 2
    assert await work.ask(work.view.items, "again", max_tokens=9) is None
    assert len(post.bodies) == 1
    assert [record.getMessage() for record in caplog.records] == ["summary-failed"]


async def test_a_summariser_is_judged_by_what_was_taken_for_a_summary(
    ledger: Accidental, other: Accidental, conversation: str
) -> None:
    """Unasked: no judgement. Asked: a failure until a model's summary is proposed, whatever becomes of the commit."""
    work = await work_on(subject(ledger, conversation, post=Summariser(SUM)))
    assert (work.summarised, work.idle) == (None, True)
    await work.propose([Put(spelt(user("s"))), Keep(0, 1)], 1, summary="S1")
    assert (work.summarised, work.idle) == (None, False)
    await work.ask(work.view.items[:3], "sum up", max_tokens=9)
    assert work.summarised is False
    await work.propose([SUMMARY], 3, summary="S4")
    assert work.summarised is False
    ledger.before = lambda: packed_by(other, conversation, TALK)
    assert isinstance(await work.propose(PARTS, 5, summary="S1"), TurnedDown)
    assert work.summarised is True


async def test_a_summary_nobody_waited_for_is_not_judged(ledger: Accidental, conversation: str) -> None:
    """Its client left: that says nothing of the summariser."""
    work = await work_on(subject(ledger, conversation, post=Summariser(SUM, after=10)))
    asking = asyncio.create_task(work.ask(work.view.items, "sum up", max_tokens=9))
    await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (work.summarised, work.idle) == (None, False)


async def test_a_calibration_below_one_does_not_shrink_the_worst_case(ledger: Accidental, conversation: str) -> None:
    """What the meter estimates is the least that a budget with a hard edge counts with."""
    low = (await work_on(subject(ledger, conversation, calibration=0.5))).view
    high = (await work_on(subject(ledger, conversation, calibration=2.0))).view
    assert (low.worst(100), high.worst(100)) == (200, 100)
