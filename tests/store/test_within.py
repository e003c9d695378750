"""The time that one request may spend on the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest

from proxy.store import Commit, Entry, Record, StoreError
from proxy.store.redis import RedisLedger
from proxy.store.within import Within
from tests.store.chaos import Chaos
from tests.store.conftest import commit_one, entry

T = TypeVar("T")


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
    """The commit may take `each`, the look that decides whether it landed only the rest."""
    ledger = open_ledger(chaos.url)
    await ledger.load("t.c")
    chaos.silent = True
    noting = _Noting(ledger)
    within = Within(noting, 0.2, each=0.15, clock=lambda: noting.now)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await within.commit("t.c", Record(), entry("op1"), b"x")
    with pytest.raises(StoreError):
        await within.load("t.c")
    assert noting.waits == [0.15, pytest.approx(0.05)]


async def test_a_store_that_failed_a_look_is_not_asked_again(
    open_ledger: Callable[..., RedisLedger], chaos: Chaos
) -> None:
    """By this request: what the process holds is given, for the rest there is no time."""
    ledger = open_ledger(chaos.url)
    record = await commit_one(ledger, "t.c", "op1")
    assert record.epoch is not None
    held = await ledger.surface("t.c", record.epoch, record.entries[0])
    chaos.silent = True
    noting = _Noting(ledger)
    within = Within(noting, 0.2, each=0.15, clock=lambda: noting.now)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await within.load("t.c")
    assert await within.surface("t.c", record.epoch, record.entries[0]) == held
    for call in (within.surface("t.c", record.epoch, entry("op2")), within.load("t.c")):
        with pytest.raises(StoreError, match=r"no time is left|long enough"):
            await call
    assert noting.waits == [0.15, 0.0, 0.0]
    assert not ledger.away, "what was not asked is no failure of the server"


async def test_the_turn_is_waited_for_within_the_same_time(
    chaos: Chaos, open_ledger: Callable[..., RedisLedger]
) -> None:
    """Six commits of one conversation meet a store that hangs: none of them takes longer than one would (I10)."""
    ledger = open_ledger(chaos.url, timeout=1.0)
    await ledger.load("t.c")
    chaos.silent = True
    loop = asyncio.get_running_loop()

    async def one() -> float:
        within, began = Within(ledger, 1.3, each=1.0), loop.time()
        async with within.in_turn("t.c"):
            for call in (partial(within.commit, "t.c", Record(), entry("op1"), b"x"), partial(within.load, "t.c")):
                with pytest.raises(StoreError):
                    await call()
        return loop.time() - began

    assert max(await asyncio.gather(*(one() for _ in range(6)))) < 1.3 + 0.5


async def test_a_turn_leaves_half_of_the_time_to_whoever_waited_for_it(ledger: RedisLedger) -> None:
    """And one that comes at once costs nothing."""
    now = [0.0]
    within = Within(ledger, 5.0, each=5.0, clock=lambda: now[0])
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with within.in_turn("t.c"):
            entered.set()
            await leave.wait()

    held = asyncio.create_task(first())
    await entered.wait()
    short = Within(ledger, 0.1, each=5.0)
    async with short.in_turn("t.c"):
        assert 0 < short.left <= 0.06
    leave.set()
    await held
    assert within.left == 5.0


async def test_notes_and_evidence_are_part_of_the_time_and_an_overflow_has_more(ledger: RedisLedger) -> None:
    """Spent is spent, for what is tried and for what is confirmed; what an overflow adds lets the store be asked."""
    spent = Within(ledger, 0.0, each=5.0)
    for call in (spent.note("t.c", "trial", "1", wait=1.0), spent.confirm("t.c")):
        with pytest.raises(StoreError, match="long enough"):
            await call
    more = spent.extended(5.0)
    await more.note("t.c", "trial", "1", wait=1.0)
    found = await more.confirm("t.c")
    assert found is not None
    assert dict(found.notes) == {"trial": "1"}
    assert 0 < more.left < 5.0


class _Noting:
    """A ledger whose calls are noted by how long each may take; a failed one took all of it."""

    def __init__(self, ledger: RedisLedger) -> None:
        self._ledger = ledger
        self.waits: list[float] = []
        self.now = 0.0

    async def load(self, conversation: str, *, wait: float) -> Record:
        """Load."""
        return await self._noted(self._ledger.load(conversation, wait=wait), wait)

    async def surface(self, conversation: str, epoch: str, which: Entry, *, wait: float) -> bytes | None:
        """Fetch."""
        return await self._noted(self._ledger.surface(conversation, epoch, which, wait=wait), wait)

    async def commit(self, conversation: str, loaded: Record, new: Entry, surface: bytes, *, wait: float) -> Commit:
        """Commit."""
        return await self._noted(self._ledger.commit(conversation, loaded, new, surface, wait=wait), wait)

    async def _noted(self, call: Awaitable[T], wait: float) -> T:
        self.waits.append(wait)
        try:
            return await call
        except StoreError:
            self.now += wait
            raise
