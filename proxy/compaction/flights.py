"""One summary for all who want the same one at the same time (rule 5.7, within this process).

A flight belongs to all who wait. It is cancelled when the last has gone; its failure is theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Flights"]

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


class Flights(Generic[T]):
    """Calls under way, by what they are for."""

    def __init__(self) -> None:
        """Start with none."""
        self._flying: dict[bytes, _Flight[T]] = {}

    async def join(self, key: bytes, start: Callable[[], Awaitable[T]]) -> T:
        """Wait for the call with this key, starting it if nobody did."""
        flight = self._flying.get(key)
        if flight is None:
            flight = self._flying[key] = _Flight(asyncio.ensure_future(_run(start)))
            flight.task.add_done_callback(lambda task: self._landed(key, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._landed(key, flight.task)
                flight.task.cancel()

    def _landed(self, key: bytes, task: asyncio.Task[T]) -> None:
        """Forget this flight, not a later one for the same thing: a cancelled one may take its time to end."""
        flight = self._flying.get(key)
        if flight is not None and flight.task is task:
            del self._flying[key]


async def _run(start: Callable[[], Awaitable[T]]) -> T:
    return await start()
