"""Work beside the requests: one packing of a dialogue at a time, ended at a stop."""

from __future__ import annotations

import asyncio

import pytest

from proxy.compaction.aside import Aside
from tests.transcripts import says, transcript, user

FIRST = transcript(user("task"))
LATER = transcript(user("task"), says("ok"), user("go on"))
OTHER = transcript(user("another"))


async def test_it_is_found_by_later_turns_of_the_dialogue_only() -> None:
    """Until it has ended."""
    aside, ends = Aside(), asyncio.Event()

    async def work() -> None:
        await ends.wait()

    task = aside.start("c", FIRST, work())
    assert [aside.running("c", one) for one in (FIRST, LATER, OTHER)] == [task, task, None]
    assert aside.running("another", FIRST) is None
    ends.set()
    await task
    await asyncio.sleep(0)
    assert aside.running("c", FIRST) is None
    assert aside._running == {}


async def test_a_stop_ends_all_of_it() -> None:
    """Also what takes a moment to end."""
    aside, ended = Aside(), []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(name)

    for name, one in (("a", FIRST), ("b", OTHER)):
        aside.start("c", one, work(name))
    await asyncio.sleep(0)
    await aside.abandon()
    assert sorted(ended) == ["a", "b"]
    await aside.abandon()


async def test_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for it, so nobody else would know."""

    async def work() -> None:
        raise ZeroDivisionError

    task = Aside().start("c", FIRST, work())
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == ["background-failed"]
