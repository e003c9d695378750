"""Replies on the wire: the upstream's bytes in our framing."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from proxy.message import Headers, Incoming, Outgoing
from proxy.upstream import UpstreamError
from tests.sockets import client, exchange

if TYPE_CHECKING:
    from tests.server.conftest import Serving

GET = b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
CLOSING = b"GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


async def giving(*chunks: bytes, pause: float = 0.0) -> AsyncIterator[bytes]:
    """Give chunks."""
    for chunk in chunks:
        await asyncio.sleep(pause)
        yield chunk


def outgoing(*chunks: bytes, status: int = 200, headers: Headers = (), reason: str = "", pause: float = 0.0):  # noqa: ANN201 - what the outlet takes
    """Make an exchange that answers so."""

    async def answer(_: Incoming) -> Outgoing:
        return Outgoing(status=status, reason=reason, headers=headers, body=giving(*chunks, pause=pause))

    return answer


async def test_the_head_goes_out_as_it_came(serving: Serving) -> None:
    """Order, case, repeats, invalid UTF-8 and the reason stay; nothing of ours is added but framing."""
    headers = (("X-b", "2"), ("Set-Cookie", "a=1"), ("x-A", "caf\udce9"), ("set-cookie", "b=2"), ("Server", "up"))
    async with serving(outgoing(b"x", headers=headers, reason="Fine \udce9")) as served:
        raw = await exchange(served.port, CLOSING)
    assert raw == (
        b"HTTP/1.1 200 Fine \xe9\r\nX-b: 2\r\nSet-Cookie: a=1\r\nx-A: caf\xe9\r\nset-cookie: b=2\r\nServer: up\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    )


async def test_a_known_length_is_kept(serving: Serving) -> None:
    """A `Content-Length` of the upstream frames the reply, whatever the chunks."""
    body = gzip.compress(b"hello" * 100)
    headers = (("content-length", str(len(body))), ("Content-Encoding", "gzip"))
    async with serving(outgoing(body[:5], b"", body[5:], headers=headers)) as served:
        raw = await exchange(served.port, CLOSING)
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert rest == body
    assert b"chunked" not in head
    assert head.count(b"ength: %d" % len(body)) == 1


async def test_each_chunk_is_flushed_at_once(serving: Serving) -> None:
    """A stream's first frame arrives while the second is not there yet."""
    gate = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield b": ping\n\n"
        await gate.wait()
        yield b"data: [DONE]\n\n"

    async def answer(_: Incoming) -> Outgoing:
        return Outgoing(status=200, headers=(("Content-Type", "text/event-stream"),), body=frames())

    async with serving(answer) as served, client(served.port) as peer:
        await peer.send(GET)
        async with asyncio.timeout(2):
            await peer.reader.readuntil(b"\r\n\r\n8\r\n: ping\n\n\r\n")
        gate.set()
        await peer.reader.readuntil(b"0\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
async def test_bodiless_replies_have_no_body_and_keep_the_connection(serving: Serving, status: int) -> None:
    """The next request on the same connection is answered."""
    async with serving(outgoing(status=status, headers=(("ETag", "x"),))) as served, client(served.port) as peer:
        for _ in range(2):
            await peer.send(GET)
            raw = await peer.message(bodiless=True)
            assert raw.status == status
            assert not raw.values(b"transfer-encoding")


async def test_head_keeps_the_length_and_sends_no_body(serving: Serving) -> None:
    """The length of what GET would give is end-to-end information."""
    request = b"HEAD /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
    async with serving(outgoing(headers=(("Content-Length", "123"),))) as served, client(served.port) as peer:
        for _ in range(2):
            await peer.send(request)
            raw = await peer.message(bodiless=True)
            assert raw.values(b"content-length") == [b"123"]


@pytest.mark.parametrize("chunks", [(b"abc",), (b"abc", b"defgh")])
async def test_a_body_of_another_length_than_promised_cuts_the_connection(
    serving: Serving, chunks: tuple[bytes, ...]
) -> None:
    """Neither too few nor too many bytes look like a whole reply."""
    async with serving(outgoing(*chunks, headers=(("Content-Length", "6"),))) as served:
        raw = await exchange(served.port, GET)
    assert raw.endswith(b"\r\n\r\nabc")


@pytest.mark.parametrize(("error", "ours"), [(UpstreamError("dropped", "secret"), False), (ValueError("secret"), True)])
async def test_a_body_that_breaks_off_is_not_ended(
    serving: Serving, caplog: pytest.LogCaptureFixture, error: Exception, *, ours: bool
) -> None:
    """The client sees what came, then the connection close without the last chunk; `aclose` is called once.

    Only a fault of our own is logged, by its place.
    """
    closed: list[int] = []

    async def broken() -> AsyncIterator[bytes]:
        yield b"part"
        raise error

    async def aclose() -> None:
        closed.append(1)

    async def answer(_: Incoming) -> Outgoing:
        return Outgoing(status=200, headers=(), body=broken(), aclose=aclose)

    async with serving(answer) as served:
        raw = await exchange(served.port, GET)
    assert raw.endswith(b"4\r\npart\r\n")
    assert closed == [1]
    assert ("a fault of our own: builtins.ValueError at test_outlet.py" in caplog.text) is ours
    assert "secret" not in caplog.text


async def test_a_header_cannot_end_the_head(serving: Serving) -> None:
    """Line breaks in what an upstream sent become spaces."""
    async with serving(outgoing(headers=(("A", "1\r\nEvil: 1"), ("B\n", "\0")), reason="a\r\nEvil: 2")) as served:
        raw = await exchange(served.port, CLOSING)
    assert b"\nEvil" not in raw
    assert b"\0" not in raw


async def test_an_old_client_gets_its_reply_without_chunks(serving: Serving) -> None:
    """HTTP/1.0 knows no chunks: the end of the connection ends the reply."""
    async with serving(outgoing(b"a", b"b")) as served:
        raw = await exchange(served.port, b"GET /v1/models HTTP/1.0\r\n\r\n")
    assert raw == b"HTTP/1.0 200 OK\r\n\r\nab"


async def test_a_client_that_does_not_read_holds_the_upstream_back(serving: Serving) -> None:
    """Back-pressure: of an endless body only what the buffers hold is taken."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1 << 16
            yield bytes(1 << 16)

    async def answer(_: Incoming) -> Outgoing:
        return Outgoing(status=200, headers=(), body=endless())

    async with serving(answer) as served, client(served.port) as peer:
        await peer.send(GET)
        await asyncio.sleep(0.3)
        first = taken
        await asyncio.sleep(0.2)
        assert taken == first
        assert taken < 64 << 20


async def test_a_client_that_never_reads_is_cut_off(serving: Serving) -> None:
    """Its upstream is not held for ever."""
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    async def aclose() -> None:
        closed.set()

    async def answer(_: Incoming) -> Outgoing:
        return Outgoing(status=200, headers=(), body=endless(), aclose=aclose)

    async with serving(answer, stall=0.3) as served, client(served.port) as peer:
        await peer.send(GET)
        async with asyncio.timeout(3):
            await closed.wait()
        assert served.server.active == 0
