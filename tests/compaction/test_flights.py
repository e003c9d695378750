"""One summary for all who want the same one at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.compaction.flights import Flights


class Calls:
    """What was started; each call ends when it is told to."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled = 0
        self.end = asyncio.Event()
        self.slow_to_die: asyncio.Event | None = None
        self.error: Exception | None = None

    async def __call__(self) -> int:
        """Run until told to end."""
        self.started += 1
        mine = self.started
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            if self.slow_to_die is not None:
                await self.slow_to_die.wait()
            raise
        if self.error is not None:
            raise self.error
        return mine


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


def joined(
    flights: Flights[int], start: Callable[[], Awaitable[int]], count: int, key: bytes = b"k"
) -> list[asyncio.Task[int]]:
    """So many who wait."""
    return [asyncio.create_task(flights.join(key, start)) for _ in range(count)]


async def test_all_who_wait_share_one_call() -> None:
    """Five ask, one call is made, all get its answer."""
    flights, calls = Flights[int](), Calls()
    waiting = joined(flights, calls, 5)
    await settle()
    calls.end.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert calls.started == 1


async def test_other_wants_are_other_calls() -> None:
    """Only the same key shares."""
    flights, calls = Flights[int](), Calls()
    calls.end.set()
    assert await flights.join(b"a", calls) == 1
    assert await asyncio.gather(*joined(flights, calls, 1, b"b"), *joined(flights, calls, 1, b"c")) == [2, 3]


async def test_what_has_landed_is_not_remembered() -> None:
    """The next who asks starts anew: what was answered is in the ledger, not here."""
    flights, calls = Flights[int](), Calls()
    calls.end.set()
    assert [await flights.join(b"k", calls) for _ in range(3)] == [1, 2, 3]


async def test_one_who_leaves_does_not_end_it_for_the_rest() -> None:
    """It belongs to all who wait, whoever started it."""
    flights, calls = Flights[int](), Calls()
    waiting = joined(flights, calls, 3)
    await settle()
    waiting[0].cancel()
    await settle()
    calls.end.set()
    assert await asyncio.gather(*waiting[1:]) == [1, 1]
    assert waiting[0].cancelled()
    assert calls.cancelled == 0


async def test_the_last_one_leaving_cancels_it() -> None:
    """Nobody pays for what nobody waits for."""
    flights, calls = Flights[int](), Calls()
    waiting = joined(flights, calls, 2)
    await settle()
    for task in waiting:
        task.cancel()
    await settle()
    assert calls.cancelled == 1


async def test_a_failure_is_the_failure_of_all() -> None:
    """And the next who asks may try again."""
    flights, calls = Flights[int](), Calls()
    calls.error = RuntimeError("no")
    waiting = joined(flights, calls, 3)
    await settle()
    calls.end.set()
    assert [type(found) for found in await asyncio.gather(*waiting, return_exceptions=True)] == [RuntimeError] * 3
    calls.error = None
    assert await flights.join(b"k", calls) == 2


async def test_a_cancelled_call_that_takes_its_time_does_not_hide_the_next() -> None:
    """Who asks while the old one still ends starts a new one, and those after share that."""
    flights, calls = Flights[int](), Calls()
    calls.slow_to_die = asyncio.Event()
    (first,) = joined(flights, calls, 1)
    await settle()
    first.cancel()
    await settle()
    second = joined(flights, calls, 1)
    await settle()
    calls.slow_to_die.set()
    await settle()
    third = joined(flights, calls, 1)
    await settle()
    calls.end.set()
    assert await asyncio.gather(*second, *third) == [2, 2]


async def test_a_time_out_is_a_leaving() -> None:
    """The patience of one ends; the call goes on for the other."""
    flights, calls = Flights[int](), Calls()
    (patient,) = joined(flights, calls, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await flights.join(b"k", calls)
    calls.end.set()
    assert await patient == 1
    assert calls.started == 1


async def test_an_answer_that_is_kept_serves_whoever_asks_until_it_is_released() -> None:
    """Between an answer and what becomes of it nobody makes the same call again; afterwards somebody does."""
    flights, calls = Flights[int](), Calls()
    calls.end.set()
    first = await flights.join(b"k", calls, keep=lambda answer: answer == 1)
    second = await flights.join(b"k", calls, keep=lambda answer: answer == 1)
    assert (first, second, calls.started) == (1, 1, 1)
    flights.release(b"k")
    assert await flights.join(b"k", calls) == 1
    flights.release(b"k")
    assert await flights.join(b"k", calls) == 2


async def test_an_answer_that_nobody_keeps_is_gone_with_those_who_waited() -> None:
    """So is a failure: the next who asks makes a call of its own."""
    flights, calls = Flights[int](), Calls()
    calls.end.set()
    assert [await flights.join(b"k", calls, keep=lambda answer: answer > 9) for _ in range(2)] == [1, 2]
    calls.error = ValueError("no")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await flights.join(b"k", calls, keep=lambda _: True)
    assert calls.started == 4
