"""Packing beside the requests: when it starts, and what ends it (rules 3.6, 5.7, 6.6)."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.surface import Put
from proxy.dialects.chat import CHAT
from proxy.house import House
from proxy.steps.background import after_reply, beside
from proxy.steps.report import Report
from proxy.steps.sight import Size
from proxy.steps.turn import Turn
from proxy.store import StoreError
from tests.houses import seen, turned
from tests.phrases import HISTORY, body


class Notes:
    """A compactor that replaces all but the newest unit, when it is let, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.open = asyncio.Event()
        self.open.set()

    async def compact(self, job: Any) -> None:
        """Propose."""
        self.calls += 1
        await self.open.wait()
        await job.propose((Put(CHAT.user("note: all that went before")),), job.view.units[-1][0])


@pytest.fixture
def compactor() -> Notes:
    """The house's."""
    return Notes()


@pytest.fixture
async def sized(house: House, turn: Turn) -> Size:
    """The turn's limits, with a threshold and a low water it is over."""
    known, _ = await seen(house, turn)
    assert known.limits is not None
    return replace(known, limits=replace(known.limits, threshold=100, low_water=2_000))


def background(turn: Turn) -> Turn:
    """The same, where the policy wants it."""
    return replace(turn, policy=replace(turn.policy, after_reply=True))


async def test_it_packs_for_the_next_request(house: House, turn: Turn, sized: Size, compactor: Notes) -> None:
    """One at a time; the lease is given back."""
    assert sized.limits is not None
    task = beside(house, turn, sized, sized.limits)
    assert task is not None
    assert beside(house, turn, sized, sized.limits) is None
    await task
    await house.background.close(1.0)
    _, sight = await seen(house, turn)
    assert (sight.generation, compactor.calls) == (1, 1)
    assert not [name for name, _ in sight.applied.record.notes if name.startswith("lease:")]
    assert [name.partition(":")[0] for name, _ in sight.applied.record.notes] == ["tried"]


async def test_another_replica_s_lease_stops_it(house: House, turn: Turn, sized: Size, compactor: Notes) -> None:
    """Its summary is paid for there."""
    compactor.open.clear()
    assert sized.limits is not None
    first = beside(house, turn, sized, sized.limits)
    assert first is not None
    while not compactor.calls:  # noqa: ASYNC110 - the compactor tells nobody
        await asyncio.sleep(0.01)
    mine, house.aside = house.aside, type(house.aside)()
    owner, house.owner = house.owner, "another"
    second = beside(house, turn, sized, sized.limits)
    assert second is not None
    await second
    house.aside, house.owner = mine, owner
    compactor.open.set()
    await first
    assert compactor.calls == 1


async def test_what_its_client_left_is_cut_off_and_counts_as_a_failure(
    house: House, turn: Turn, sized: Size, compactor: Notes
) -> None:
    """The reply was not relayed whole (rules 3.6, 6.7)."""
    compactor.open.clear()
    assert sized.limits is not None
    report = Report(aside=beside(house, turn, sized, sized.limits))
    while not compactor.calls:  # noqa: ASYNC110 - the compactor tells nobody
        await asyncio.sleep(0.01)
    report.left()
    assert report.aside is not None
    await asyncio.wait({report.aside})
    await house.background.close(1.0)
    _, sight = await seen(house, turn)
    assert sight.generation == 0
    assert [value.partition(":")[0] for name, value in sight.applied.record.notes if name.startswith("tried:")] == [
        "failed"
    ]


@pytest.mark.parametrize(
    ("tokens", "starts"), [(99, False), (100, True)], ids=["below the threshold", "at the threshold"]
)
async def test_a_reply_s_usage_starts_it(house: House, turn: Turn, sized: Size, tokens: int, *, starts: bool) -> None:
    """Where the policy wants it, and the transcript holds an answer."""
    _, sight = await seen(house, turn)
    off = replace(turn, policy=replace(turn.policy, after_reply=False))
    first = turned(house, body(*HISTORY[:1]), credential=f"Bearer {secrets.token_hex(8)}")
    for one in (off, background(first), replace(background(turn), may_pack=False)):
        after_reply(house, one, sized, sight, tokens)
        assert house.aside.running(one.conversation, one.transcript) is None
    after_reply(house, background(turn), sized, sight, tokens)
    running = house.aside.running(turn.conversation, turn.transcript)
    assert (running is not None) is starts
    if running is not None:
        await running


async def test_a_store_that_is_away_ends_it(
    turn: Turn, sized: Size, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a fault of ours: nothing could be stored."""

    async def away(*_: Any, **__: Any) -> bool:
        raise StoreError("away")

    monkeypatch.setattr(house.ledger, "claim", away)
    assert sized.limits is not None
    task = beside(house, turn, sized, sized.limits)
    assert task is not None
    await task
    assert (await seen(house, turn))[1].generation == 0
