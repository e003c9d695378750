"""The ledger as one request may use it: all its calls together take no longer than so (rule 5.9).

A store that failed a look is not asked again by the same request: what this process holds then serves.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proxy.store import Commit, Entry, Record, Records, StoreError

__all__ = ["Within"]

T = TypeVar("T")


class Within:
    """Implements `proxy.store.Records`. `seconds` in all, of which one call may take `each` at most."""

    def __init__(
        self, records: Records, seconds: float, *, each: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._records, self._left, self._each, self._clock = records, seconds, each, clock

    async def load(self, conversation: str, *, wait: float | None = None) -> Record:
        """Load within what is left."""
        self._refuse_when_spent()
        return await self._looked(lambda left: self._records.load(conversation, wait=left), wait)

    def remembered(self, conversation: str) -> Record | None:
        """Return the record as this process last loaded it: that takes no time."""
        return self._records.remembered(conversation)

    async def surface(self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None) -> bytes | None:
        """Fetch within what is left; one that the process holds takes no time and is given also when all is spent."""
        return await self._looked(lambda left: self._records.surface(conversation, epoch, entry, wait=left), wait)

    async def commit(
        self, conversation: str, loaded: Record, entry: Entry, surface: bytes, *, wait: float | None = None
    ) -> Commit:
        """Commit within what is left."""
        self._refuse_when_spent()
        return await self._spend(
            lambda left: self._records.commit(conversation, loaded, entry, surface, wait=left), wait
        )

    def _refuse_when_spent(self) -> None:
        if self._left <= 0:
            raise StoreError("this request has waited for the store long enough")

    async def _looked(self, call: Callable[[float], Awaitable[T]], wait: float | None) -> T:
        try:
            return await self._spend(call, wait)
        except StoreError:
            self._left = 0.0
            raise

    async def _spend(self, call: Callable[[float], Awaitable[T]], wait: float | None) -> T:
        began = self._clock()
        try:
            return await call(max(0.0, min(self._left, self._each if wait is None else wait)))
        finally:
            self._left -= self._clock() - began
