"""Requests taken in: exact bytes, bounded bodies, patience with an end."""

from __future__ import annotations

import asyncio
import gzip
import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from proxy.encodings import Decoder
from proxy.message import Incoming, Outgoing
from proxy.server.intake import Budget, TurnedAwayError
from tests.sockets import client, exchange, until

if TYPE_CHECKING:
    from tests.server.conftest import Serving

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
FILES = b"POST /v1/files HTTP/1.1\r\nHost: h\r\n"


def status(raw: bytes) -> int:
    """Give the status of the first response."""
    return int(raw.split(b" ", 2)[1])


async def test_a_request_arrives_as_it_was_sent(serving: Serving) -> None:
    """Target, header order, repeats, invalid bytes and the encoded body are untouched."""
    raw = (
        b"POST /u/a/v1/chat/completions?x=%2f&y=a+b HTTP/1.1\r\nHost: h\r\nX-a: 1\r\nx-A: caf\xe9\r\n"
        b"Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: 4\r\n\r\n\x1f\x8b\xff\x00"
    )
    async with serving() as served:
        await exchange(served.port, raw)
    (seen,) = served.seen
    assert seen.target == "/u/a/v1/chat/completions?x=%2f&y=a+b"
    assert seen.headers[1:4] == (("X-a", "1"), ("x-A", "caf\udce9"), ("Content-Encoding", "gzip"))
    assert seen.body == b"\x1f\x8b\xff\x00"


async def test_a_dialects_body_is_whole_and_others_stream(serving: Serving) -> None:
    """A file upload is not held; its chunks come as they arrive."""
    first = asyncio.Event()

    async def answer(incoming: Incoming) -> Outgoing:
        assert not isinstance(incoming.body, bytes)
        got = []
        async for chunk in incoming.body:
            got.append(chunk)
            first.set()
        return Outgoing(status=200, headers=(), body=b"|".join(got))

    async with serving(answer) as served, client(served.port) as peer:
        await peer.send(FILES + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        async with asyncio.timeout(2):
            await first.wait()
        await peer.send(b"2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n")
        assert (await peer.message()).body == b"abc|de"


async def test_a_body_said_to_be_too_large_is_refused_before_it_is_sent(serving: Serving) -> None:
    """413 comes instead of `100 Continue`."""
    async with serving(max_body=100) as served, client(served.port) as peer:
        await peer.send(POST + b"Expect: 100-continue\r\nContent-Length: 101\r\n\r\n")
        raw = await peer.rest()
    assert status(raw) == 413
    assert b"PROXY_BODY_TOO_LARGE" in raw
    assert not served.seen


async def test_a_body_that_turns_out_too_large_is_refused(serving: Serving) -> None:
    """Chunked bodies are counted as they come."""
    async with serving(max_body=100) as served:
        raw = await exchange(
            served.port, POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"64\r\n%s\r\n" % bytes(100) * 2
        )
    assert status(raw) == 413
    assert not served.seen


async def test_expect_is_answered_here(serving: Serving) -> None:
    """`100 Continue` comes when the body is wanted, once, and the request goes on."""
    async with serving() as served, client(served.port) as peer:
        await peer.send(POST + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
        assert (await peer.message(bodiless=True)).head == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.send(b"hi")
        assert (await peer.message()).body == b"hi"


async def test_another_expectation_is_417(serving: Serving) -> None:
    """What is not understood is not promised."""
    async with serving() as served:
        raw = await exchange(served.port, POST + b"Expect: the-moon\r\nContent-Length: 2\r\n\r\nhi")
    assert status(raw) == 417


@pytest.mark.parametrize("start", [POST, FILES])
async def test_a_body_that_stops_coming_is_408(serving: Serving, start: bytes) -> None:
    """The client gets an answer and the connection ends."""
    async with serving(body_idle=0.2) as served:
        raw = await exchange(served.port, start + b"Content-Length: 10\r\n\r\nabc")
    # A streamed body fails inside the exchange: here the echo raises, and our answer says so.
    assert status(raw) == 408


async def test_a_trickle_is_not_idle(serving: Serving) -> None:
    """Slow is allowed as long as something comes."""
    async with serving(body_idle=0.3) as served, client(served.port) as peer:
        await peer.send(POST + b"Content-Length: 5\r\n\r\n")
        await peer.send(b"a", b"b", b"c", b"d", b"e", pause=0.1)
        assert (await peer.message()).body == b"abcde"


async def test_more_bytes_in_flight_than_allowed_is_503_before_reading(serving: Serving) -> None:
    """The second body does not fit; once the first is done it does."""
    release = asyncio.Event()

    async def answer(_: Incoming) -> Outgoing:
        await release.wait()
        return Outgoing(status=200, headers=(), body=b"ok")

    async with serving(answer, max_inflight_bytes=150) as served, client(served.port) as peer:
        await peer.send(POST + b"Content-Length: 100\r\n\r\n" + bytes(100))
        await until(lambda: served.seen)
        raw = await exchange(served.port, POST + b"Content-Length: 100\r\n\r\n")
        assert status(raw) == 503
        assert b"\r\nRetry-After: 1\r\n" in raw
        release.set()
        assert (await peer.message()).body == b"ok"
        assert served.server.inflight_bytes == 0
        raw = await exchange(served.port, POST + b"Connection: close\r\nContent-Length: 100\r\n\r\n" + bytes(100))
        assert status(raw) == 200


async def test_a_chunked_body_counts_as_it_comes(serving: Serving) -> None:
    """What did not say its length is turned away when it no longer fits, and gives back what it held."""
    chunk = b"64\r\n%s\r\n" % bytes(100)
    async with serving(max_inflight_bytes=150) as served:
        raw = await exchange(served.port, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2)
        assert status(raw) == 503
        assert served.seen == []
        assert served.server.inflight_bytes == 0


def zipped(raw: bytes, coding: bytes = b"gzip") -> bytes:
    """A whole request with this body."""
    head = b"Content-Encoding: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (coding, len(raw))
    return POST + head + raw


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        (zipped(gzip.compress(b"hi" * 300_000)), b"hi" * 300_000),
        (zipped(b"hi", b"identity"), b"hi"),
        (zipped(b"hi", b"unheard-of"), None),
        (zipped(b"not gzip"), None),
        (POST + b"Connection: close\r\n\r\n", b""),
        (FILES + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", None),
    ],
)
async def test_a_whole_body_comes_decoded_beside_its_own_bytes(
    serving: Serving, raw: bytes, plain: bytes | None
) -> None:
    """What cannot be decoded goes on as it came."""
    async with serving() as served:
        await exchange(served.port, raw)
    (seen,) = served.seen
    assert seen.plain == plain
    assert not isinstance(seen.body, bytes) or raw.endswith(seen.body)


async def test_a_bomb_is_413(serving: Serving) -> None:
    """A body that grows beyond the ratio is not read further, and reaches nobody."""
    async with serving() as served:
        raw = await exchange(served.port, zipped(gzip.compress(bytes(3 << 20))))
        assert served.server.inflight_bytes == 0
    assert status(raw) == 413
    assert not served.seen


async def test_a_decoded_body_counts_as_in_flight(serving: Serving) -> None:
    """Small on the wire and large in memory is 503 where there is no room for it (I12)."""
    body = gzip.compress(bytes(900_000))
    async with serving(max_inflight_bytes=500_000) as served:
        raw = await exchange(served.port, zipped(body))
        assert status(raw) == 503
        assert served.server.inflight_bytes == 0
    held: list[int] = []

    async def answer(_: Incoming) -> Outgoing:
        held.append(served.server.inflight_bytes)
        return Outgoing(status=200, headers=(), body=b"ok")

    async with serving(answer) as served:
        await exchange(served.port, zipped(body))
    assert held == [len(body) + 900_000]


async def test_a_large_body_is_decoded_beside_the_loop(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning here, all beyond 256 KiB in a thread."""
    inline: list[tuple[bool, int]] = []
    feed = Decoder.feed

    def noted(self: Decoder, data: bytes) -> bytes:
        found = feed(self, data)
        inline.append((threading.current_thread() is threading.main_thread(), len(found)))
        return found

    monkeypatch.setattr(Decoder, "feed", noted)
    async with serving() as served:
        await exchange(served.port, zipped(gzip.compress(Random(1).randbytes(1 << 20))))
        assert sum(size for here, size in inline if here) < (256 + 16) << 10
        assert [here for here, _ in inline] == sorted((here for here, _ in inline), reverse=True)
        assert not inline[-1][0]
        inline.clear()
        await exchange(served.port, zipped(gzip.compress(b"small" * 1_000)))
        assert all(here for here, _ in inline)


async def test_broken_chunks_are_400(serving: Serving) -> None:
    """A body that is not framed as it says never reaches the exchange."""
    async with serving() as served:
        raw = await exchange(served.port, POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\nsecret")
    assert status(raw) == 400
    assert b"secret" not in raw
    assert not served.seen


def test_a_budget_is_given_back() -> None:
    """A lease grows to what it holds, never beyond the budget, and returns all of it."""
    budget = Budget(10)
    lease, other = budget.lease(), budget.lease()
    lease.reach(6)
    lease.reach(4)
    other.reach(4)
    with pytest.raises(TurnedAwayError):
        other.reach(5)
    assert budget.taken == 10
    lease.release()
    other.release()
    assert budget.taken == 0
