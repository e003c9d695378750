"""The time that one request may spend on the ledger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.store import Commit, Record, StoreError
from proxy.store.redis import RedisLedger
from proxy.store.within import Within
from tests.store.chaos import Chaos
from tests.store.conftest import commit_one, entry


async def test_calls_within_the_time_are_the_ledgers_own(ledger: RedisLedger) -> None:
    """Load, surface and commit do what they always do."""
    within = Within(ledger, 5.0, each=5.0)
    assert await within.commit("t.c", Record(), entry("op1"), b"text") is Commit.DONE
    record = await within.load("t.c")
    assert record.epoch is not None
    assert await within.surface("t.c", record.epoch, record.entries[0]) == b"text"
    assert within.remembered("t.c") == record


async def test_when_the_time_is_spent_only_what_is_held_is_given(
    chaos: Chaos, open_ledger: Callable[..., RedisLedger]
) -> None:
    """Nothing is asked any more; a surface that this process holds takes no time."""
    ledger = open_ledger(chaos.url)
    record = await commit_one(ledger, "t.c", "op1")
    assert record.epoch is not None
    held = await ledger.surface("t.c", record.epoch, record.entries[0])
    chaos.silent = True
    spent = Within(ledger, 0.0, each=0.15)
    for call in (spent.load("t.c"), spent.commit("t.c", record, entry("op2"), b"")):
        with pytest.raises(StoreError, match="long enough"):
            await call
    assert await spent.surface("t.c", record.epoch, record.entries[0]) == held


async def test_no_call_gets_more_than_is_left(open_ledger: Callable[..., RedisLedger], chaos: Chaos) -> None:
    """The first may take `each`, the next only the rest."""
    ledger = open_ledger(chaos.url)
    await ledger.load("t.c")
    chaos.silent = True
    waits: list[float] = []
    now = [0.0]
    within = Within(_Noting(ledger, waits, now), 0.2, each=0.15, clock=lambda: now[0])  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(StoreError):
            await within.load("t.c")
    assert waits == [0.15, pytest.approx(0.05)]


class _Noting:
    """A ledger whose time-outs are noted, and put the clock forward."""

    def __init__(self, ledger: RedisLedger, waits: list[float], now: list[float]) -> None:
        self._ledger, self._waits, self._now = ledger, waits, now

    async def load(self, conversation: str, *, wait: float) -> Record:
        """Load, and note how long that may take."""
        self._waits.append(wait)
        try:
            return await self._ledger.load(conversation, wait=wait)
        finally:
            self._now[0] += wait
