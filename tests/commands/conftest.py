"""A store for commands: a real server of the module's own, settings that name it, and conversations on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from proxy.settings import Settings
from proxy.store import Record
from proxy.store.binary import find_server
from proxy.store.redis import RedisLedger
from proxy.store.sealing import Seals
from tests.shelf import shelve
from tests.store.servers import Server

SECRET = "a secret of at least thirty-two characters"


@dataclass(frozen=True, slots=True)
class Store:
    """A store by URL."""

    server: Server

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead a command there."""
        return {"CARRYON_REDIS__URL": self.server.url, "CARRYON_SECRET": SECRET}

    def settings(self, **more: object) -> Settings:
        """The settings that lead there."""
        return Settings.model_validate({"redis": {"url": self.server.url}, "secret": SECRET, **more})

    def shelve(self, conversation: str, content: bytes, **options: object) -> Record:
        """Store one more surface of a conversation."""

        async def stored() -> Record:
            ledger = RedisLedger(self.server.url, seals=Seals([SECRET.encode()]), timeout=5.0, durability="memory")
            try:
                return await shelve(ledger, conversation, content, **options)  # type: ignore[arg-type]
            finally:
                await ledger.close()

        return asyncio.run(stored())


@pytest.fixture(scope="module")
def _server() -> Iterator[Server]:
    server = Server(find_server())
    yield server
    server.stop()


@pytest.fixture
def store(_server: Server) -> Store:
    """Nothing is stored on it yet."""
    _server.client().flushall()
    return Store(_server)
