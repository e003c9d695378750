"""A real ledger whose commits meet with accidents: another replica comes first, replies are lost, the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.store import Commit, Entry, Record, StoreError
from proxy.store.redis import RedisLedger
from tests.store.servers import SEALS

Meddling = Callable[[], Awaitable[object]]


class Accidental(RedisLedger):
    """Every commit and load is a real one. `before` runs before each of our commits."""

    def __init__(self, url: str) -> None:
        super().__init__(url, seals=SEALS, timeout=5.0, durability="memory")
        self.before: Meddling | None = None
        self.commits = 0
        self.lose_commit = False
        self.refuse = False
        self.lose_reply = False
        self.lose_loads = False
        self.lose_surfaces = False
        self.held: asyncio.Event | None = None

    async def commit(
        self, conversation: str, loaded: Record, entry: Entry, surface: bytes, *, wait: float | None = None
    ) -> Commit:
        """Commit, unless the accident says otherwise."""
        self.commits += 1
        if self.before is not None:
            await self.before()
        if self.held is not None:
            await self.held.wait()
        if self.lose_commit:
            raise StoreError("never sent")
        if self.refuse:
            return Commit.REFUSED
        found = await super().commit(conversation, loaded, entry, surface, wait=wait)
        if self.lose_reply:
            raise StoreError("the reply was lost")
        return found

    async def load(self, conversation: str, *, wait: float | None = None) -> Record:
        """Load, unless the store is away."""
        if self.lose_loads:
            raise StoreError("away")
        return await super().load(conversation, wait=wait)

    async def surface(self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None) -> bytes | None:
        """Fetch a surface, unless the store is away."""
        if self.lose_surfaces:
            raise StoreError("away")
        return await super().surface(conversation, epoch, entry, wait=wait)
