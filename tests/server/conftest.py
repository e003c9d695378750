"""A served exchange on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from proxy.message import Incoming, Outgoing
from proxy.server import ServerBounds
from proxy.server.handler import Exchange
from proxy.server.lifecycle import Server


@dataclass
class Served:
    """A running server, what its exchange was given, and its faults."""

    server: Server
    port: int = 0
    seen: list[Incoming] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)


Serving = Callable[..., AbstractAsyncContextManager[Served]]


async def echo(incoming: Incoming) -> Outgoing:
    """Answer with the body that came."""
    body = incoming.body
    if not isinstance(body, bytes):
        body = b"".join([chunk async for chunk in body])
    return Outgoing(status=200, headers=(("Content-Type", "text/plain"),), body=body)


@pytest.fixture
def serving() -> Serving:
    """Return a context manager: `serving(exchange=echo, **bounds)`."""

    @asynccontextmanager
    async def serve(exchange: Exchange = echo, **bounds: float) -> AsyncIterator[Served]:
        faults: list[int] = []
        seen: list[Incoming] = []
        bounds.setdefault("linger", 0.2)

        async def noted(incoming: Incoming) -> Outgoing:
            seen.append(incoming)
            return await exchange(incoming)

        server = Server(noted, ServerBounds(**bounds), on_fault=lambda: faults.append(1))  # type: ignore[arg-type]
        served = Served(server, seen=seen, faults=faults)
        served.port = await server.listen()
        try:
            yield served
        finally:
            await server.close()

    return serve
