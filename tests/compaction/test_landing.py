from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest

from proxy.compaction.landing import landed, shielded
from proxy.store import Commit, StoreError


async def test_a_commit_outlives_who_waited_for_it_and_is_waited_for_before_the_end() -> None:
    """The waiter is cancelled; whoever closes the ledger gives the commit its time."""
    go, done = asyncio.Event(), []

    async def commit() -> Commit:
        await go.wait()
        done.append(True)
        return Commit.DONE

    waiter = asyncio.create_task(shielded(commit()))
    await asyncio.sleep(0)
    waiter.cancel()
    with suppress(asyncio.CancelledError):
        await waiter
    await landed(0.01)
    assert done == []
    asyncio.get_running_loop().call_later(0.01, go.set)
    await landed(2.0)
    assert done == [True]


async def test_a_commit_that_fails_when_nobody_waits_troubles_nobody() -> None:
    """Its failure is seen: asyncio has nothing to say of it."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def commit() -> Commit:
        await asyncio.sleep(0)
        raise StoreError("away")

    waiter = asyncio.create_task(shielded(commit()))
    await asyncio.sleep(0)
    waiter.cancel()
    with suppress(asyncio.CancelledError):
        await waiter
    await landed(2.0)
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []


async def test_a_commit_that_fails_by_a_fault_of_ours_is_told_whoever_waits(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is away is told by who waits or by the next load; this would be told by nobody."""

    async def commit() -> Commit:
        raise TypeError

    with pytest.raises(TypeError):
        await shielded(commit())
    await asyncio.sleep(0)
    assert [record.message for record in caplog.records] == ["background-failed"]
