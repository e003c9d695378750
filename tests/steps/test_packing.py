"""Handing a conversation to a compactor that is not trusted, and asking a model for it."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any, Literal

import pytest

from proxy.compaction.job import Proposed
from proxy.compaction.patience import Patience
from proxy.core.surface import Put
from proxy.dialects.chat import CHAT
from proxy.house import House
from proxy.steps import packing
from proxy.steps.packing import begun, run
from proxy.steps.report import Report
from proxy.upstream import Answered, Call, UpstreamError
from tests.houses import closed, furnished, seen, turned
from tests.phrases import LONG
from tests.store.servers import Server


class Asked:
    """The door to a model: gives one answer, or fails."""

    def __init__(self, answer: Answered | UpstreamError) -> None:
        self.answer = answer
        self.calls: list[tuple[Call, float]] = []

    async def ask(self, call: Call, *, within: float, limit: int = 1 << 24) -> Answered:
        """Answer."""
        self.calls.append((call, within))
        if isinstance(self.answer, UpstreamError):
            raise self.answer
        return self.answer


class Hangs:
    """A compactor that waits for something of its own."""

    async def compact(self, job: Any) -> None:
        """Never end."""
        await asyncio.Event().wait()


async def packs(
    house: House, compactor: Any, *, seconds: float = 1.0, trigger: Literal["pressure", "overflow"] = "overflow"
) -> Report:
    """Let a compactor work on the long history."""
    house.compactor = compactor
    turn, patience, report = turned(house, LONG), Patience(seconds), Report()
    known, sight = await seen(house, turn)
    assert known.limits is not None
    work = await begun(
        house, turn, known, sight, patience, trigger=trigger, limits=known.limits, goal=1, calibration=1.0
    )
    await run(house, turn, work, patience, report)
    return report


class Plain:
    """A compactor that is no coroutine, and fails."""

    def compact(self, job: Any) -> None:
        """Fail."""
        raise ZeroDivisionError


class Deaf:
    """A compactor that ignores its cancellation."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.late: Any = None

    async def compact(self, job: Any) -> None:
        """Go on after the end, then ask, propose and fail."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            gc.collect()
            await asyncio.sleep(0.05)
            self.late = (await job.ask(job.view.items, "x", max_tokens=9), await job.propose((), 1), job.seconds_left)
            self.ended.set()
            raise ZeroDivisionError from None


class Asks:
    """A compactor that asks for a summary."""

    answer: Any = "nothing yet"

    async def compact(self, job: Any) -> None:
        """Ask."""
        self.answer = await job.ask(job.view.items[:2], "sum up", max_tokens=99)


async def test_a_compactor_that_fails_is_a_warning(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Even one that is no coroutine: it is no fault of ours, and nothing raises here."""
    await packs(house, Plain())
    (record,) = [record for record in caplog.records if record.getMessage() == "compactor-failed"]
    assert (record.levelname, record.__dict__["error"]) == ("WARNING", "ZeroDivisionError")
    assert house.internal_faults == 0


async def test_a_compactor_s_own_waiting_counts_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asks a model by means of its own has the request's patience, not one for each trigger (rule 6.7)."""
    monkeypatch.setattr(packing, "_SLACK", 0.05)
    house.compactor, turn, patience = Hangs(), turned(house, LONG), Patience(0.05)
    known, sight = await seen(house, turn)
    assert known.limits is not None
    work = await begun(
        house, turn, known, sight, patience, trigger="pressure", limits=known.limits, goal=1, calibration=1.0
    )
    await run(house, turn, work, patience, Report())
    assert patience.left == 0.0


async def test_a_compactor_that_goes_on_after_its_end_is_not_heard(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The request goes on; what comes later asks nothing, commits nothing, and its failure troubles nobody."""
    monkeypatch.setattr(packing, "_SLACK", 0.05)
    deaf = Deaf()
    await packs(house, deaf, seconds=0.0)
    assert "compactor-late" in [record.getMessage() for record in caplog.records]
    await asyncio.wait_for(deaf.ended.wait(), 2.0)
    answer, proposed, left = deaf.late
    assert (answer, proposed.reason, left) == (None, "late", 0.0)


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (Answered(status=429), "summary-refused"),
        (UpstreamError("first_byte", "slow"), "summary-failed"),
    ],
)
async def test_a_summary_that_is_not_given_is_a_warning(
    house: House, answer: Any, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal, a failure: None for the compactor."""
    asks = Asks()
    house.upstream = Asked(answer)  # type: ignore[assignment]
    await packs(house, asks)
    assert asks.answer is None
    assert event in [record.getMessage() for record in caplog.records]


async def test_a_summary_is_asked_of_the_conversation_s_own_upstream_with_its_credential(house: House) -> None:
    """The same URL and headers, another body, no longer than there is time; it is reported."""
    said = b'{"model":"m-1","choices":[{"message":{"content":"short"},"finish_reason":"stop"}]}'
    asks, asked = Asks(), Asked(Answered(status=200, body=said))
    house.upstream = asked  # type: ignore[assignment]
    report = await packs(house, asks)
    assert asks.answer.text == "short"
    ((call, within),) = asked.calls
    assert call.url == "http://upstream.test/v1/chat/completions"
    assert ("Authorization", "Bearer one") in call.headers
    assert call.body != LONG
    assert 0 < within <= 1.0
    assert ("x-carryon-summary", "model=m-1") in report.headers()


class Sums:
    """A compactor that asks for a summary and proposes it, as one that the ledger may turn down."""

    def __init__(self, *, takes: bool) -> None:
        self.takes = takes

    async def compact(self, job: Any) -> None:
        """Ask; propose where it takes the answer for a summary."""
        answer = await job.ask(job.view.items[:2], "sum up", max_tokens=99)
        if self.takes:
            assert (await job.propose((Put(CHAT.user(answer.text)),), 10_000, summary="S1")).reason


@pytest.mark.parametrize(("takes", "rests"), [(True, False), (False, True)])
async def test_the_ladder_hears_of_summaries_and_not_of_commits(house: House, *, takes: bool, rests: bool) -> None:
    """A summary that was good stays good where its commit did not come about."""
    said = b'{"model":"m-1","choices":[{"message":{"content":"short"},"finish_reason":"stop"}]}'
    house.upstream = Asked(Answered(status=200, body=said))  # type: ignore[assignment]
    for _ in range(2):
        await packs(house, Sums(takes=takes))
    turn = turned(house, LONG)
    assert house.ladder.starts_low(turn.destination.name, turn.model) is rests


async def test_a_commit_names_who_was_asked_for_its_summary_and_what_that_took(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """The model that was asked, and its tokens; the client sees how the reply names itself. Of pruning nothing."""
    said = (
        b'{"model":"m-1","choices":[{"message":{"content":"short"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":90,"completion_tokens":7}}'
    )
    house.upstream = Asked(Answered(status=200, body=said))  # type: ignore[assignment]
    with caplog.at_level("INFO", logger="carryon"):
        report = await packs(house, Writes("S2"))
        await packs(house, Writes("prune"))
    written, pruned = [vars(record) for record in caplog.records if record.getMessage() == "commit"]
    assert (written["summary"], written["model"], written["in"], written["out"]) == ("S2", "m", 90, 7)
    assert not {"model", "in", "out"} & {*pruned}
    assert ("x-carryon-summary", "model=m-1, in=90, out=7") in report.headers()


class Writes:
    """A compactor that asks, and packs all but the newest item of what has no surface yet."""

    def __init__(self, rung: str) -> None:
        self.rung = rung

    async def compact(self, job: Any) -> None:
        """Ask and propose; what it proposes is smaller each time."""
        if self.rung != "prune":
            await job.ask((), "sum up", max_tokens=99, alone=True)
        through = len(job.view.items) - 1
        assert (
            await job.propose((Put(CHAT.user("x" * 90 if self.rung != "prune" else "x")),), through, summary=self.rung)
            == Proposed()
        )


@pytest.mark.parametrize("upstream", ["", "cheap"])
async def test_another_model_writes_where_the_policy_names_one_and_rests_by_its_own_name(
    valkey: Server, upstream: str
) -> None:
    """What it is asked, where, and whose failures count: the conversation's own model is none of it."""
    summary = {"model": "small", **({"upstream": upstream} if upstream else {})}
    defaults = {"context_window": 10_000, "window_kind": "total", "summary": summary}
    upstreams = {"home": "http://home.test/v1", "cheap": {"base_url": "http://cheap.test/v1", "api_key": "sk-cheap"}}
    house = furnished(valkey.url, upstreams=upstreams, defaults=defaults)
    asked = Asked(Answered(status=400))
    house.upstream = asked  # type: ignore[assignment]
    for _ in range(2):
        await packs(house, Asks())
    home = upstream or "home"
    for call, _ in asked.calls:
        assert (call.upstream, call.url) == (home, f"http://{home}.test/v1/chat/completions")
        assert isinstance(call.body, bytes)
        assert json.loads(call.body)["model"] == "small"
        assert (("Authorization", "Bearer one") in call.headers) is not bool(upstream)
    assert house.ladder.starts_low(home, "small")
    assert not house.ladder.starts_low("home", "m")
    await closed(house)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_compactor_is_told_whether_a_client_waits(house: House, *, waits: bool) -> None:
    """In the background there is time for more and longer summaries."""
    turn = turned(house, LONG)
    known, sight = await seen(house, turn)
    assert known.limits is not None
    more = {} if waits else {"waits": False}
    work = await begun(
        house,
        turn,
        known,
        sight,
        Patience(1.0),
        trigger="pressure",
        limits=known.limits,
        goal=1,
        calibration=1.0,
        **more,  # type: ignore[arg-type]
    )
    assert work.view.waits is waits


class Idle:
    """A compactor that does nothing."""

    async def compact(self, job: Any) -> None:
        """Return."""


async def test_that_nothing_could_be_packed_is_said_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """It is planned again every turn; the log hears of it once for a conversation, and only under pressure."""
    await packs(house, Idle())
    assert "nothing-packed" not in [record.getMessage() for record in caplog.records]
    for _ in range(3):
        await packs(house, Idle(), trigger="pressure")
    assert [record.getMessage() for record in caplog.records].count("nothing-packed") == 1
