"""A client of the upstream door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from proxy.upstream import Bounds, Peer
from proxy.upstream.client import Client

Calling = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def calling() -> Calling:
    """Return a context manager: `calling(peers={}, **bounds)`."""

    @asynccontextmanager
    async def call(peers: dict[str, Peer] | None = None, **bounds: float) -> AsyncIterator[Client]:
        client = Client(peers or {}, Bounds(**bounds))  # type: ignore[arg-type]
        try:
            yield client
        finally:
            await client.close()

    return call
