"""One summary for all who want the same one at the same time (rule 5.7, within this process).

A flight belongs to all who wait. It is cancelled when the last has gone; its failure is theirs. An answer serves
latecomers until all who took it are done with it: until then nobody can see what became of it.
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
    kept: int = 0


class Flights(Generic[T]):
    """Calls under way, and answers in use, by what they are for."""

    def __init__(self) -> None:
        """Start with none."""
        self._flying: dict[bytes, _Flight[T]] = {}

    async def join(
        self, key: bytes, start: Callable[[], Awaitable[T]], *, keep: Callable[[T], bool] | None = None
    ) -> T:
        """Wait for the call with this key, starting it if nobody did.

        Whoever says that it keeps the answer must `release` the key when it is done with it.
        """
        flight = self._flying.get(key)
        if flight is None:
            flight = self._flying[key] = _Flight(asyncio.ensure_future(_run(start)))
        flight.waiting += 1
        try:
            answer = await asyncio.shield(flight.task)
            flight.kept += keep is not None and keep(answer)
            return answer
        finally:
            flight.waiting -= 1
            self._forget(key, flight)

    def release(self, key: bytes) -> None:
        """Let go of an answer that was kept."""
        flight = self._flying[key]
        flight.kept -= 1
        self._forget(key, flight)

    def _forget(self, key: bytes, flight: _Flight[T]) -> None:
        """Forget a flight that nobody needs, not a later one for the same thing: a cancelled one may take its time."""
        if flight.waiting or flight.kept or self._flying.get(key) is not flight:
            return
        del self._flying[key]
        flight.task.cancel()


async def _run(start: Callable[[], Awaitable[T]]) -> T:
    return await start()
