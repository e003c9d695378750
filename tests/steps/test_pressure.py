"""The proactive trigger: when it fires, when it must not, and what it leaves behind."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import pytest

from proxy.compaction.patience import Patience
from proxy.core.surface import Put
from proxy.dialects.chat import CHAT
from proxy.house import House
from proxy.steps.pressure import packed
from proxy.steps.report import Report
from proxy.steps.sight import Sight, estimated, force
from proxy.store import StoreError
from tests.houses import seen, turned
from tests.phrases import HISTORY, LONG, SHORT, body, message
from tests.store.servers import Server


class Notes:
    """A compactor that replaces all but the newest unit by a note, and counts its calls."""

    def __init__(self) -> None:
        self.triggers: list[str] = []

    async def compact(self, job: Any) -> None:
        """Propose."""
        self.triggers.append(job.view.trigger)
        await job.propose((Put(CHAT.user("note: all that went before")),), job.view.units[-1][0])


@pytest.fixture
def notes() -> Notes:
    """The compactor of this test."""
    return Notes()


@pytest.fixture
def compactor(notes: Notes) -> Notes:
    """The house's."""
    return notes


async def pressed(house: House, raw: bytes, report: Report, *, threshold: int, **change: Any) -> Sight:
    """Put one turn of somebody new under pressure."""
    turn = turned(house, raw, credential=change.pop("credential", f"Bearer {secrets.token_hex(8)}"))
    known, sight = await seen(house, turn)
    assert known.limits is not None
    known = replace(known, limits=replace(known.limits, threshold=threshold, **change))
    sight = replace(sight, estimate=await estimated(house, turn, sight))
    return await packed(house, turn, known, sight, Patience(1.0), report)


async def test_it_fires_at_the_threshold_and_not_a_token_below(house: House, notes: Notes) -> None:
    """Measured tokens `>= threshold` (rule 6.3)."""
    turn = turned(house, LONG)
    tokens = await estimated(house, turn, (await seen(house, turn))[1])
    report = Report()
    below = await pressed(house, LONG, report, threshold=tokens + 1)
    assert (below.body, report.skip, notes.triggers) == (None, "below", [])
    report = Report()
    at = await pressed(house, LONG, report, threshold=tokens)
    assert (at.body, report.action, notes.triggers) == (SHORT, "pressure", ["pressure"])
    assert at.estimate is not None
    assert at.estimate < tokens


async def test_what_cannot_be_packed_is_warned_of_once(
    house: House, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    """One message over low water: no attempt, one warning for the conversation."""
    raw, credential = body(message("user", "word " * 3_000)), f"Bearer {secrets.token_hex(8)}"
    for _ in range(2):
        sight = await pressed(house, raw, Report(), threshold=100, low_water=69, credential=credential)
        assert sight.body is None
    assert notes.triggers == []
    assert [record.getMessage() for record in caplog.records].count("cannot-pack") == 1


async def test_requested_output_that_fills_the_window_is_not_packed_for(house: House, notes: Notes) -> None:
    """No compaction cures it (rule 6.2)."""
    sight = await pressed(house, LONG, Report(), threshold=100, hopeless_output=True)
    assert (sight.body, notes.triggers) == (None, [])


async def test_after_a_rejection_it_rests_and_then_tries_again(
    house: House, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an upstream rejected is not made again for ten minutes, else each request would be refused (I17)."""
    credential = f"Bearer {secrets.token_hex(8)}"
    first = await pressed(house, LONG, Report(), threshold=100, low_water=2_000, credential=credential)
    assert first.entry is not None
    house.retired.put(first.entry.operation, value=True)
    report = Report()
    second = await pressed(house, LONG, report, threshold=100, low_water=2_000, credential=credential)
    assert (second.body, report.skip, notes.triggers) == (None, "paused", ["pressure"])
    monkeypatch.setattr("proxy.steps.guards.time.time", lambda: first.entry.at + 601.0)
    third = await pressed(house, LONG, Report(), threshold=100, low_water=2_000, credential=credential)
    assert (third.generation, notes.triggers) == (2, ["pressure", "pressure"])


async def test_a_small_conversation_never_writes(house: House, valkey: Server) -> None:
    """Below the threshold nothing is pruned or written (rule 6.3)."""
    turn = turned(house, body(*HISTORY[:2]), credential=f"Bearer {secrets.token_hex(8)}")
    await seen(house, turn)
    await house.background.close(1.0)
    assert valkey.client().keys(f"*{turn.conversation}*") == []


async def test_a_note_that_forces_packing_waits_for_an_attempt(house: House, notes: Notes) -> None:
    """One request that may not pack does not use it up; the attempt does (rule 9.3)."""
    credential = f"Bearer {secrets.token_hex(8)}"
    force(house, turned(house, LONG, credential=credential))
    await house.background.close(1.0)
    for headers, action, triggers in (
        ((("x-carryon", "no-store"),), "pass", []),
        ((), "pressure", ["overflow"]),
        ((), "pass", ["overflow"]),
    ):
        turn, report = turned(house, LONG, *headers, credential=credential), Report()
        known, sight = await seen(house, turn)
        await packed(house, turn, known, sight, Patience(1.0), report)
        await house.background.close(1.0)
        assert (report.action, notes.triggers) == (action, triggers)


async def test_a_store_that_takes_no_commit_is_packed_for_again_when_it_takes_a_note(
    house: House, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full or read-only: the first attempt finds out, the next wait for no compactor, until a trial succeeds."""

    async def full(*_: Any, **__: Any) -> Any:
        raise StoreError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(house.ledger, "commit", full)
        patched.setattr(house.ledger, "note", full)
        await pressed(house, LONG, Report(), threshold=1)
        assert len(notes.triggers) == 1
        report = Report()
        await pressed(house, LONG, report, threshold=1)
        assert (len(notes.triggers), report.skip) == (1, "redis")
    report = Report()
    await pressed(house, LONG, report, threshold=1)
    assert (len(notes.triggers), report.action) == (2, "pressure")
