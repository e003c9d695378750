"""Fixtures for every test: a free port, a wait that ends, a real Valkey on a Unix socket and a ledger on it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from proxy.store import keys
from proxy.store.binary import find_server
from tests.compaction.ledgers import Accidental
from tests.store.servers import Server


@pytest.fixture(autouse=True)
def unchanged_logging() -> Iterator[None]:
    """A command that runs in this process sets up logging for the process; the next test must not find it so."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def free_port() -> int:
    """A TCP port on loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def wait_for() -> Callable[..., Awaitable[None]]:
    """Wait until a condition (plain or async) holds; fails after `within` seconds and says what was awaited."""

    async def wait(
        condition: Callable[[], bool | Awaitable[bool]], what: str = "the condition", within: float = 5.0
    ) -> None:
        deadline = time.monotonic() + within
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come true within {within} s")
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """A real Valkey for the session: empty at start, nothing on disk."""
    server = Server(find_server())
    yield server
    server.stop()


@pytest.fixture
def valkey(valkey_server: Server) -> Server:
    """The session's Valkey, claimed by no secret yet. Tests that share it keep apart by their conversations."""
    valkey_server.client().delete(keys.SECRET)
    return valkey_server


@pytest.fixture
async def ledger(valkey: Server) -> AsyncIterator[Accidental]:
    """A real ledger of the test's own, whose calls may meet with accidents."""
    found = Accidental(valkey.url)
    yield found
    await found.close()


@pytest.fixture
def conversation() -> str:
    """One that nothing is stored of."""
    return f"{secrets.token_hex(16)}.{secrets.token_hex(16)}"
