"""The ledger as one request may use it: all its calls together take no longer than so (rule 5.9).

A store that failed a look is not asked again by the same request: what this process holds then serves. Waiting
for commits of others to the same conversation is part of that time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from proxy.store import Commit, Entry, Ledger, Record, StoreError

__all__ = ["Within"]

T = TypeVar("T")

#: What part of the time that is left a commit may wait for those before it; the rest is for itself.
_WAIT = 0.5


class Within:
    """Implements `proxy.store.Records`. `seconds` in all, of which one call may take `each` at most."""

    def __init__(
        self, ledger: Ledger, seconds: float, *, each: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._each, self._clock = ledger, each, clock
        #: Seconds that all calls together may still take.
        self.left = seconds

    def extended(self, seconds: float) -> Within:
        """Give the same with so many seconds more: an overflow may take them (rule 5.6), and ask the store anew."""
        return Within(self._ledger, max(0.0, self.left) + seconds, each=self._each, clock=self._clock)

    async def load(self, conversation: str, *, wait: float | None = None) -> Record:
        """Load within what is left."""
        self._refuse_when_spent()
        return await self._looked(lambda left: self._ledger.load(conversation, wait=left), wait)

    def remembered(self, conversation: str) -> Record | None:
        """Return the record as this process last loaded it: that takes no time."""
        return self._ledger.remembered(conversation)

    async def surface(self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None) -> bytes | None:
        """Fetch within what is left; one that the process holds takes no time and is given also when all is spent."""
        return await self._looked(lambda left: self._ledger.surface(conversation, epoch, entry, wait=left), wait)

    async def commit(
        self, conversation: str, loaded: Record, entry: Entry, surface: bytes, *, wait: float | None = None
    ) -> Commit:
        """Commit within what is left."""
        self._refuse_when_spent()
        return await self._spend(
            lambda left: self._ledger.commit(conversation, loaded, entry, surface, wait=left), wait
        )

    async def note(self, conversation: str, name: str, value: str, *, wait: float) -> None:
        """Set a note within what is left."""
        self._refuse_when_spent()
        await self._spend(lambda left: self._ledger.note(conversation, name, value, wait=left), wait)

    async def confirm(self, conversation: str) -> Record | None:
        """Load as evidence within what is left."""
        self._refuse_when_spent()
        return await self._spend(lambda left: self._ledger.confirm(conversation, wait=left), self.left)

    @asynccontextmanager
    async def in_turn(self, conversation: str) -> AsyncIterator[None]:
        """Hold the turn to commit, or go on without it when half of the time that is left was waited."""
        began = self._clock()
        async with self._ledger.lanes.in_turn(conversation, max(0.0, self.left) * _WAIT):
            self.left -= self._clock() - began
            yield

    def _refuse_when_spent(self) -> None:
        if self.left <= 0:
            raise StoreError("this request has waited for the store long enough")

    async def _looked(self, call: Callable[[float], Awaitable[T]], wait: float | None) -> T:
        try:
            return await self._spend(call, wait)
        except StoreError:
            self.left = 0.0
            raise

    async def _spend(self, call: Callable[[float], Awaitable[T]], wait: float | None) -> T:
        began = self._clock()
        try:
            return await call(max(0.0, min(self.left, self._each if wait is None else wait)))
        finally:
            self.left -= self._clock() - began
