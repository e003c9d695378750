"""The reactive trigger's own decisions; its branches are the playbooks' (`test_exchange`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.compaction.patience import Patience
from proxy.core.overflow import Kind, Verdict
from proxy.core.surface import Put
from proxy.dialects.chat import CHAT
from proxy.house import House
from proxy.steps.recovery import _frozen, recovered
from proxy.steps.report import Report
from proxy.steps.sight import estimated
from proxy.store import StoreError
from proxy.store.redis import RedisLedger
from tests.houses import closed, furnished, seen, turned
from tests.phrases import LONG
from tests.store.servers import Server


def refused(**fields: Any) -> Verdict:
    """An overflow as it was classified."""
    return Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="test", **fields)


#: The long history, with output requested.
WITH_OUTPUT = json.dumps({**json.loads(LONG), "max_tokens": 500}).encode()


class Nobody:
    """A compactor that must not be called."""

    async def compact(self, job: Any) -> None:
        """Fail the test: a fault of ours would be counted."""
        raise AssertionError


@pytest.fixture
def compactor() -> Nobody:
    """The house's."""
    return Nobody()


@pytest.mark.parametrize(
    ("requested", "estimate", "calibration", "frozen"),
    [
        (None, 1_000, 1.2, 1.2),
        (1_500, 1_000, 1.2, 1.5),
        (90_000, 1_000, 1.2, 4.0),
        (10, 1_000, 1.2, 0.5),
        (1_500, 0, 1.2, 1.2),
    ],
)
def test_one_calibration_is_frozen_for_a_recovery(
    requested: int | None, estimate: int, calibration: float, frozen: float
) -> None:
    """What the refusal counted over what we estimated, within bounds; else what was learned."""
    assert _frozen(refused(requested=requested), estimate, calibration) == frozen


@pytest.mark.parametrize(
    ("verdict", "headers", "reason"),
    [
        (refused(compactable=False), (), "too-large"),
        (refused(), (("x-carryon", "no-store"),), "off"),
    ],
)
async def test_what_may_not_be_recovered_is_refused_before_any_work(
    house: House, verdict: Verdict, headers: Any, reason: str
) -> None:
    """Nothing is asked of the compactor, nothing is loaded."""
    turn = turned(house, LONG, *headers)
    known, sight = await seen(house, turn)
    report = Report()
    assert await recovered(house, turn, known, sight, verdict, Patience(1.0), report) is None
    assert (report.refused, house.internal_faults) == (reason, 0)


class Packs:
    """A compactor that replaces all but the newest unit."""

    async def compact(self, job: Any) -> None:
        """Propose it."""
        await job.propose((Put(CHAT.user("note")),), job.view.units[-1][0], summary="S1")


@pytest.mark.parametrize("reads", [True, False], ids=["it still reads", "it answers nothing"])
async def test_a_commit_that_does_not_land_is_the_store_s_fault(
    house: House, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """The refusal names it; where not even the look after it was answered, no more is asked."""
    asked: list[str] = []

    async def fails(*_: Any, **__: Any) -> Any:
        raise StoreError("down")

    async def confirm(conversation: str, **wait: float) -> Any:
        asked.append(conversation)
        return await RedisLedger.confirm(house.ledger, conversation, **wait)  # type: ignore[arg-type]

    house.compactor, turn, report = Packs(), turned(house, LONG), Report()
    known, sight = await seen(house, turn)
    monkeypatch.setattr(house.ledger, "commit", fails)
    monkeypatch.setattr(house.ledger, "confirm", confirm)
    if not reads:
        monkeypatch.setattr(house.ledger, "load", fails)
    assert await recovered(house, turn, known, sight, refused(), Patience(1.0), report) is None
    assert (report.refused, house.internal_faults) == ("redis", 0)
    assert bool(asked) is reads


async def test_where_nothing_can_be_stored_no_summary_is_paid_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit did not land and a small note does not either: the compactor is not called, the store is the reason."""

    async def full(*_: Any, **__: Any) -> Any:
        raise StoreError("out of memory")

    monkeypatch.setattr(house.ledger, "note", full)
    house.unstored = True
    turn, report = turned(house, LONG), Report()
    known, sight = await seen(house, turn)
    assert await recovered(house, turn, known, sight, refused(), Patience(1.0), report) is None
    assert (report.refused, house.internal_faults, house.unstored) == ("redis", 0, True)


async def test_a_dry_run_says_what_it_would_do(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Decide and log, change nothing (rule 11.6)."""
    house = furnished(valkey.url, compactor=Nobody(), defaults={"dry_run": True})
    turn = turned(house, LONG)
    known, sight = await seen(house, turn)
    with caplog.at_level("INFO", logger="carryon"):
        assert await recovered(house, turn, known, sight, refused(), Patience(1.0), Report()) is None
    assert "dry-run" in [record.getMessage() for record in caplog.records]
    await closed(house)


class Idle:
    """A compactor that does nothing."""

    async def compact(self, job: Any) -> None:
        """Return."""


@pytest.mark.parametrize(
    ("body", "verdict", "learned"),
    [
        (LONG, {"requested": 2.0}, 2.0),
        (LONG, {}, 1.0),
        (WITH_OUTPUT, {"requested": 2.0, "limit_kind": "input"}, 2.0),
        (WITH_OUTPUT, {"requested": 2.0, "limit_kind": "total"}, 1.0),
    ],
)
async def test_what_a_refusal_counted_corrects_the_meter(
    house: House, body: bytes, verdict: dict[str, Any], learned: float
) -> None:
    """Unless requested output may be in its count."""
    house.compactor = Idle()
    turn = turned(house, body)
    known, sight = await seen(house, turn)
    estimate = await estimated(house, turn, sight)
    counted = {**verdict, "requested": int(verdict["requested"] * estimate)} if "requested" in verdict else verdict
    await recovered(house, turn, known, sight, refused(**counted), Patience(1.0), Report())
    assert house.learning.known(turn.keys).calibration == learned
