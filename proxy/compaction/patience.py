"""How long one client request may still wait for summaries (rule 6.7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from proxy.dialects import Completion

__all__ = ["Patience"]


class Patience:
    """The seconds that are left, for all rounds and both triggers together."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` in all; only time spent in `waiting` counts."""
        self.left = seconds
        self.waited = 0.0
        self._clock = clock

    def spend(self, seconds: float) -> None:
        """Take off what was waited elsewhere; nothing where it is negative."""
        self.left = max(0.0, self.left - max(0.0, seconds))

    async def waiting(self, what: Awaitable[Completion | None]) -> Completion | None:
        """Wait for a summary; the time it takes is gone. A time-out is a failure, None."""
        started = self._clock()
        try:
            async with asyncio.timeout(self.left):
                return await what
        except TimeoutError:
            return None
        finally:
            spent = self._clock() - started
            self.waited += spent
            self.spend(spent)
