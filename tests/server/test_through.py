"""Both doors together: a client, a plain relay between them, an upstream, and every byte compared."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from proxy.message import Incoming, Outgoing, outbound
from proxy.server.handler import Exchange
from proxy.upstream import Bounds, Call, UpstreamError
from proxy.upstream.client import Client
from tests.sockets import Peer, RawUpstream, client, raw_upstream, reply, until

if TYPE_CHECKING:
    from tests.server.conftest import Served, Serving
    from tests.sockets import Script

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'


def relay(door: Client, origin: str) -> Exchange:
    """Make an exchange that sends everything on and relays what comes."""

    async def exchange(incoming: Incoming) -> Outgoing:
        call = Call(
            upstream="up",
            method=incoming.method,
            url=origin + incoming.target,
            headers=outbound(incoming.headers),
            body=incoming.body,
        )
        try:
            outcome = await door.send(
                call, dialect="chat", inspect=incoming.method == "POST" and isinstance(incoming.body, bytes)
            )
        except UpstreamError as error:
            return Outgoing(status=error.status, headers=(), body=error.kind.encode())
        got = outcome.reply
        return Outgoing(status=got.status, reason=got.reason, headers=got.headers, body=aiter(got), aclose=got.aclose)

    return exchange


@asynccontextmanager
async def relaying(
    serving: Serving, script: Script | bytes, *, keep: bool = False, **bounds: float
) -> AsyncIterator[tuple[Served, RawUpstream]]:
    """Serve a relay before a scripted upstream."""
    async with raw_upstream(script, keep=keep) as up:
        door = Client(bounds=Bounds(**bounds))  # type: ignore[arg-type]
        try:
            async with serving(relay(door, up.url)) as served:
                yield served, up
        finally:
            await door.close()


async def test_requests_and_replies_pass_to_the_byte(serving: Serving) -> None:
    """Fifty generated ones on one connection: any bytes, any chunking, both ways."""
    chance = random.Random(11)
    replies: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            await peer.message()
            body = gzip.compress(chance.randbytes(chance.randint(0, 3000)))
            replies.append(body)
            if chance.random() < 0.5:
                await peer.send(reply(body, headers=b"Content-Encoding: gzip\r\n"))
                continue
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 100):
                await peer.send(b"%x\r\n%s\r\n" % (len(body[at : at + 100]), body[at : at + 100]))
            await peer.send(b"0\r\n\r\n")

    async with relaying(serving, script) as (served, up), client(served.port) as peer:
        for _ in range(50):
            body = chance.randbytes(chance.randint(0, 5000))
            await peer.send(POST + b"X-A: \xc3\xa9\r\nx-a: 2\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            got = await peer.message()
            assert got.body == replies[-1]
            assert up.requests[-1].body == body
            assert up.requests[-1].values(b"x-a") == ["é".encode(), b"2"]
        assert len(up.requests) == 50
        assert up.connections == 1


async def test_an_event_stream_passes_to_the_byte_and_at_once(serving: Serving) -> None:
    """Comments, CRLF, unknown fields, invalid UTF-8; each frame before the next is sent."""
    frames = [
        b": hi\r\n\r\n",
        CONTENT,
        b"x-field: \xff\n\n",
        b"id: 1\nretry: 5\ndata: \xe2\x82",
        b"\xac\n\n",
        b"data: [DONE]\n\n",
    ]
    step = asyncio.Queue[int]()

    async def script(peer: Peer) -> None:
        await peer.message()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for frame in frames:
            await peer.send(b"%x\r\n%s\r\n" % (len(frame), frame))
            if frame is not frames[0]:
                await step.get()
        await peer.send(b"0\r\n\r\n")

    async with relaying(serving, script) as (served, _), client(served.port) as peer:
        await peer.send(POST + b"Content-Length: 2\r\n\r\n{}")
        async with asyncio.timeout(5):
            await peer.reader.readuntil(b"\r\n\r\n")
            got = b""
            for number in range(1, len(frames)):
                while len(got) < sum(map(len, frames[: number + 1])):
                    size = int((await peer.reader.readuntil(b"\r\n")).strip(), 16)
                    got += (await peer.reader.readexactly(size + 2))[:-2]
                step.put_nowait(number)
            assert await peer.reader.readuntil(b"0\r\n\r\n")
    assert got == b"".join(frames)


@pytest.mark.parametrize("moment", ["upload", "prefill", "held", "stream"])
async def test_a_client_that_leaves_closes_the_upstream_within_a_second(serving: Serving, moment: str) -> None:
    """Whatever the request was waiting for (I8)."""
    left: asyncio.Queue[float] = asyncio.Queue()
    reached = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    sends = {"upload": b"", "prefill": b"", "held": head + b": ping\n\n", "stream": head + CONTENT}[moment]

    async def script(peer: Peer) -> None:
        if moment == "upload":
            await peer.reader.readuntil(b"abc")
        else:
            await peer.message()
        await peer.send(sends)
        reached.set()
        await left.put(await peer.gone())

    upload = b"POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc"
    async with relaying(serving, script) as (served, up):
        async with client(served.port) as peer:
            await peer.send(upload if moment == "upload" else POST + b"Content-Length: 2\r\n\r\n{}")
            await reached.wait()
            if moment == "stream":
                await peer.reader.readuntil(b"Hi")
            await asyncio.sleep(0.05)
        async with asyncio.timeout(1):
            await left.get()
        assert up.connections == 1
        await until(lambda: served.server.active == 0)
        assert served.faults == []


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n|abc", b"\r\n\r\nabc"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n|zz", b"3\r\nabc\r\n"),
    ],
)
async def test_a_reply_that_breaks_off_does_not_look_whole(serving: Serving, sent: bytes, seen: bytes) -> None:
    """The client's connection ends in the middle of the message."""

    async def script(peer: Peer) -> None:
        await peer.message()
        await peer.send(*sent.split(b"|"), pause=0.05)

    async with relaying(serving, script) as (served, _), client(served.port) as peer:
        await peer.send(b"GET /v1/files HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await peer.rest()).endswith(seen)


async def test_an_upload_streams_with_its_length(serving: Serving) -> None:
    """`Expect` is answered here, the body passes while it comes, and its length stays."""
    async with relaying(serving, reply(b"ok")) as (served, up), client(served.port) as peer:
        await peer.send(b"POST /v1/files HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n")
        assert (await peer.message(bodiless=True)).status == 100
        await peer.send(b"abc", b"def", pause=0.05)
        assert (await peer.message()).body == b"ok"
    (raw,) = up.requests
    assert raw.body == b"abcdef"
    assert raw.values(b"content-length") == [b"6"]
    assert not raw.values(b"expect")


async def test_head_passes(serving: Serving) -> None:
    """With the length of what GET would give."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.message()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n")

    async with relaying(serving, script) as (served, _), client(served.port) as peer:
        for _ in range(2):
            await peer.send(b"HEAD /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await peer.message(bodiless=True)).values(b"content-length") == [b"77"]


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_bodiless_replies_pass(serving: Serving, status: bytes) -> None:
    """And the connections on both sides go on."""
    raw = b"HTTP/1.1 %s\r\nETag: x\r\n\r\n" % status
    async with relaying(serving, raw, keep=True) as (served, up), client(served.port) as peer:
        for _ in range(2):
            await peer.send(b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
            got = await peer.message(bodiless=True)
            assert got.head == raw
        assert up.connections == 1


async def test_an_endless_reply_to_a_client_that_does_not_read_stays_small(serving: Serving) -> None:
    """Back-pressure reaches the upstream: it cannot send without bound (I12)."""
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.message()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n")
        while sent < 256 << 20:
            await peer.send(bytes(1 << 16))
            sent += 1 << 16

    async with relaying(serving, script) as (served, _), client(served.port) as peer:
        await peer.send(b"GET /v1/files HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.5)
        before = sent
        await asyncio.sleep(0.2)
        assert sent == before < 64 << 20
