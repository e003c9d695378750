"""The one path of a request through the door."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from proxy.message import Incoming, Outgoing
from tests.sockets import client, exchange, until

if TYPE_CHECKING:
    from tests.server.conftest import Serving

POST = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"


async def test_a_fault_of_ours_is_502_counted_and_logged_without_content(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 3.5: never 500. The log says where, not what; the answer has the dialect's shape."""

    async def broken(_: Incoming) -> Outgoing:
        raise ValueError("sk-secret")

    async with serving(broken) as served, client(served.port) as peer:
        await peer.send(POST)
        raw = await peer.message()
        assert raw.status == 502
        assert raw.values(b"x-carryon-error") == [b"PROXY_INTERNAL"]
        assert raw.body.startswith(b'{"type": "error"')
        await peer.send(POST)
        assert (await peer.message()).status == 502
    assert served.faults == [1, 1]
    assert "sk-secret" not in caplog.text
    assert "test_handler.py" in caplog.text
    assert "builtins.ValueError" in caplog.text


@pytest.mark.parametrize("path", [b"/v1/responses", b"/", b"/v1/realtime?model=x"])
async def test_a_websocket_is_426_at_once(serving: Serving, path: bytes) -> None:
    """Clients fall back to HTTP; nothing reaches the exchange."""
    raw = (
        b"GET %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: x\r\n\r\n"
        % path
    )
    async with serving() as served:
        got = await exchange(served.port, raw)
    assert got.startswith(b"HTTP/1.1 426 ")
    assert served.seen == []


async def test_another_upgrade_is_ignored(serving: Serving) -> None:
    """`h2c` is an offer; the request is answered in HTTP/1.1."""
    raw = b"GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    async with serving() as served:
        assert (await exchange(served.port, raw)).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_leaves_cancels_its_exchange(serving: Serving) -> None:
    """Within a second, while the exchange still waits for the upstream."""
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def waiting(_: Incoming) -> Outgoing:
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with serving(waiting) as served:
        async with client(served.port) as peer:
            await peer.send(POST)
            await began.wait()
        async with asyncio.timeout(1):
            await cancelled.wait()
        assert served.faults == []


async def test_a_client_that_leaves_a_stream_closes_it(serving: Serving) -> None:
    """`aclose` runs within a second, though the stream itself is silent."""
    began, closed = asyncio.Event(), asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield b"x"
        began.set()
        await asyncio.sleep(30)

    async def aclose() -> None:
        closed.set()

    async def answer(_: Incoming) -> Outgoing:
        return Outgoing(status=200, headers=(), body=frames(), aclose=aclose)

    async with serving(answer) as served:
        async with client(served.port) as peer:
            await peer.send(POST)
            await began.wait()
        async with asyncio.timeout(1):
            await closed.wait()
        await asyncio.sleep(0.05)
        assert served.server.active == 0
        assert served.server.inflight_bytes == 0


async def test_a_broken_upload_is_answered_as_such(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """Where the client's own body stopped, 408 says so, and one line of the log."""
    caplog.set_level(logging.INFO)

    async def answer(incoming: Incoming) -> Outgoing:
        assert not isinstance(incoming.body, bytes)
        async for _ in incoming.body:
            pass
        raise AssertionError

    async with serving(answer, body_idle=0.2) as served:
        raw = await exchange(served.port, b"POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab")
    assert b" 408 " in raw
    assert served.faults == []
    assert requests(caplog) == [(408, "PROXY_BODY_TIMEOUT")]


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n", (413, "PROXY_BODY_TOO_LARGE")),
        (b"GET /v1/models HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n", (426, "PROXY_NO_WEBSOCKET")),
        (b"GET /v1/../x HTTP/1.1\r\nHost: h\r\n\r\n", (404, "PROXY_NOT_FOUND")),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", (400, "PROXY_BAD_REQUEST")),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", (417, "PROXY_EXPECTATION")),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", (431, "PROXY_HEADERS_TOO_LARGE")),
        (b"nonsense\r\n\r\n", (400, "PROXY_BAD_REQUEST")),
        (b"GET /v1/mod", (408, "PROXY_HEADER_TIMEOUT")),
    ],
)
async def test_what_the_door_turns_away_has_its_line_in_the_log(
    serving: Serving, sent: bytes, line: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Status and code, and nothing of the request."""
    caplog.set_level(logging.DEBUG)
    async with serving(max_body=9, header=0.2) as served:
        raw = await exchange(served.port, sent)
    assert b" %d " % line[0] in raw
    assert requests(caplog) == [line]
    assert served.seen == []


async def test_a_client_that_leaves_its_upload_has_its_line_too(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """As 499, like every client that left."""
    caplog.set_level(logging.INFO)
    async with serving() as served:
        async with client(served.port) as peer:
            await peer.send(b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab")
            await until(lambda: served.server.active == 1)
        await until(lambda: requests(caplog))
    assert requests(caplog) == [(499, None)]


def requests(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str | None]]:
    """Status and code of each request's line."""
    lines = [vars(record) for record in caplog.records if record.getMessage() == "request"]
    return [(line["status"], line.get("error")) for line in lines]
