"""Real servers, ledgers on them, and entries to store."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.store import Commit, Entry, Record
from proxy.store.binary import find_server
from proxy.store.redis import RedisLedger
from tests.store.chaos import Chaos
from tests.store.servers import SEALS, Server


@pytest.fixture(scope="session")
def binary() -> Path:
    """Find the server that the embedded store runs."""
    return find_server()


#: What the contract suite runs against: the server that Carryon brings, and Debian's Redis where it is installed.
_REDIS = shutil.which("redis-server")
SERVERS = {"valkey": find_server()} | ({"redis": Path(_REDIS)} if _REDIS else {})


@pytest.fixture(scope="session", params=SERVERS)
def shared_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for the whole session, of each kind on this machine."""
    server = Server(SERVERS[request.param])
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """Empty the shared server."""
    client = shared_server.client()
    client.flushall()
    client.config_set("maxmemory", "0")
    return shared_server


@pytest.fixture
def start_server(binary: Path) -> Iterator[Callable[..., Server]]:
    """Start a Valkey server with its own settings."""
    started: list[Server] = []

    def start(**options: str) -> Server:
        started.append(Server(binary, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
async def open_ledger() -> AsyncIterator[Callable[..., RedisLedger]]:
    """Open a ledger on a URL; generous time-outs unless the test is about them."""
    opened: list[RedisLedger] = []

    def make(url: str, *, clock: Callable[[], float] = time.monotonic, **terms: Any) -> RedisLedger:
        opened.append(RedisLedger(url, seals=SEALS, clock=clock, **{"timeout": 5.0, "durability": "memory", **terms}))
        return opened[-1]

    yield make
    for ledger in opened:
        await ledger.close()


@pytest.fixture
async def ledger(server: Server, open_ledger: Callable[..., RedisLedger]) -> RedisLedger:
    """Open a ledger on the shared server."""
    return open_ledger(server.url)


@pytest.fixture
async def chaos(server: Server) -> AsyncIterator[Chaos]:
    """Put a misbehaving proxy before the shared server."""
    async with Chaos(server.socket) as proxy:
        yield proxy


def entry(operation: str, *, covered: int = 4, base: int = 0, at: int = 1_790_000_000) -> Entry:
    """Return an entry as a compaction would make it."""
    return Entry(
        generation=0,
        operation=operation,
        digest=b"\xd1" * 32,
        covered=covered,
        base=base,
        model="gpt-5",
        window=128_000,
        before=100_000,
        after=20_000,
        at=at,
        summarised=max(0, covered - 1),
    )


async def commit_one(ledger: RedisLedger, conversation: str, operation: str, **options: int) -> Record:
    """Commit on top of what is stored and return the record after it."""
    loaded = await ledger.load(conversation)
    assert (
        await ledger.commit(conversation, loaded, entry(operation, **options), b"surface of " + operation.encode())
        is Commit.DONE
    )
    return await ledger.load(conversation)
