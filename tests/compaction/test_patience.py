from __future__ import annotations

import asyncio

from proxy.compaction.patience import Patience
from proxy.dialects import Completion

ANSWER = Completion(text="sum", finish="stop", model="n")


async def test_only_waiting_spends_patience() -> None:
    """By the clock, and never below nothing."""
    now = [0.0]
    patience = Patience(10.0, clock=lambda: now[0])

    async def takes(seconds: float) -> Completion | None:
        now[0] += seconds
        return ANSWER

    now[0] += 100
    assert await patience.waiting(takes(4)) == ANSWER
    assert (patience.left, patience.waited) == (6.0, 4.0)
    assert await patience.waiting(takes(7)) == ANSWER
    assert (patience.left, patience.waited) == (0.0, 11.0)


async def test_what_was_waited_elsewhere_can_be_taken_off() -> None:
    """A compactor may ask a model by other means; less than nothing gives no patience back."""
    patience = Patience(10.0)
    patience.spend(4.0)
    patience.spend(-100.0)
    assert (patience.left, patience.waited) == (6.0, 0.0)
    patience.spend(7.0)
    assert patience.left == 0.0


async def test_what_takes_longer_is_given_up() -> None:
    """A time-out is no answer, and ends what was waited for."""
    patience, never = Patience(0.01), asyncio.get_running_loop().create_future()
    assert await patience.waiting(never) is None
    assert never.cancelled()
    assert patience.left == 0.0
