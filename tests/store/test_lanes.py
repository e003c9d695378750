"""Commits of one conversation take turns in this process; those of others do not wait."""

from __future__ import annotations

import asyncio

import pytest

from proxy.store.lanes import Lanes

LONG = 30.0


class Track:
    """Who is inside at the same time."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.most = 0
        self.leave = asyncio.Event()
        self.lanes = Lanes()

    async def pass_through(self, conversation: str, wait: float = LONG) -> None:
        """Take a turn that ends when it is told to."""
        async with self.lanes.in_turn(conversation, wait):
            self.inside.append(conversation)
            self.most = max(self.most, len(self.inside))
            await self.leave.wait()
            self.inside.remove(conversation)


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_at_a_time_for_a_conversation_and_none_waits_for_another() -> None:
    """Three of one conversation follow each other; one of another goes beside them."""
    track = Track()
    tasks = [asyncio.create_task(track.pass_through(name)) for name in ("a", "a", "a", "b")]
    await settle()
    assert sorted(track.inside) == ["a", "b"]
    track.leave.set()
    await asyncio.gather(*tasks)
    assert track.most == 2
    assert not len(track.lanes)


async def test_whoever_has_waited_long_enough_goes_on_without_a_turn() -> None:
    """A store that hangs holds nobody longer than that; the compare-and-set decides as ever."""
    track = Track()
    first = asyncio.create_task(track.pass_through("a"))
    await settle()
    second = asyncio.create_task(track.pass_through("a", wait=0.01))
    while track.most < 2:  # noqa: ASYNC110 - nothing tells but the clock
        await asyncio.sleep(0.005)
    track.leave.set()
    await asyncio.gather(first, second)
    assert not len(track.lanes)


async def test_a_turn_ends_with_a_failure_and_with_whoever_leaves() -> None:
    """One raises inside, one is cancelled while it waits: the next has its turn."""
    track = Track()
    with pytest.raises(ValueError, match="no"):
        async with track.lanes.in_turn("a", LONG):
            raise ValueError("no")
    first, gone, last = (asyncio.create_task(track.pass_through("a")) for _ in range(3))
    await settle()
    gone.cancel()
    track.leave.set()
    await asyncio.gather(first, last)
    assert gone.cancelled()
    assert not len(track.lanes)


async def test_a_turn_just_released_is_no_free_one_while_others_queue() -> None:
    """Whoever comes at the very moment of a release stands behind the queue, with a timer like all."""
    track = Track()
    first = track.lanes.in_turn("a", LONG)
    await first.__aenter__()
    second = asyncio.create_task(track.pass_through("a"))
    await settle()
    await first.__aexit__(None, None, None)  # the second is not awake yet
    async with asyncio.timeout(LONG), track.lanes.in_turn("a", 0.01):
        assert track.inside == ["a"]
    track.leave.set()
    await second
