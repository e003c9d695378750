"""A reply on its way: held bytes first, then the rest, and a bounded copy of its end."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import pytest

from proxy.encodings import PART, decoder
from proxy.upstream.reply import Reply, Tail
from tests.phrases import chunks_of
from tests.sockets import collect


async def test_held_bytes_come_first() -> None:
    """Then the source; then it is finished."""
    reply = Reply(status=200, held=(b"a", b"b"), source=chunks_of(b"c"))
    assert [chunk async for chunk in reply] == [b"a", b"b", b"c"]
    assert reply.finished
    assert [chunk async for chunk in reply] == []


async def test_a_reply_that_fails_is_not_finished() -> None:
    """The held bytes still came."""

    async def source() -> AsyncIterator[bytes]:
        yield b"b"
        raise ValueError("broken")

    reply = Reply(status=200, held=(b"a",), source=source())
    got: list[bytes] = []
    with pytest.raises(ValueError, match="broken"):
        await collect(reply, got)
    assert got == [b"a", b"b"]
    assert not reply.finished


async def test_closing_twice_closes_once() -> None:
    """Whoever holds a reply may close it."""
    closed: list[int] = []

    async def close() -> None:
        closed.append(1)

    reply = Reply(status=200, source=chunks_of(), close=close)
    await reply.aclose()
    await reply.aclose()
    assert closed == [1]


def test_a_tail_keeps_the_end() -> None:
    """At least the last `limit` bytes, not much more."""
    tail = Tail(decoder((), 1), 10)
    for number in range(100):
        tail.feed(b"%03d" % number)
    kept = tail.read()
    assert kept is not None
    assert kept.endswith(b"096097098099")
    assert 10 <= len(kept) < 16


async def test_a_tail_is_decoded_in_small_steps() -> None:
    """One chunk may become megabytes: others are served meanwhile, and no more than the end of it is kept."""
    page, turns = gzip.compress(bytes(4_096), 1), list[int]()
    tail = Tail(decoder(("gzip",), 1 << 28), 10_000)
    chunk = page * 2_000

    async def turning() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(turning())
    reply = Reply(status=200, source=chunks_of(chunk), tail=tail)
    assert [piece async for piece in reply] == [chunk]
    ticking.cancel()
    assert len(turns) >= len(chunk) // PART
    kept = reply.tail()
    assert kept is not None
    assert len(kept) < 20_000


def test_of_one_large_piece_only_the_end_is_kept() -> None:
    """What one step decodes to may be a megabyte."""
    tail = Tail(decoder(("gzip",), 1 << 28), 1_000)
    tail.feed(gzip.compress(bytes(1_000_000) + b"end"))
    kept = tail.read()
    assert kept is not None
    assert (len(kept), kept[-3:]) == (1_000, b"end")


def test_a_tail_is_decoded_and_may_be_whole() -> None:
    """A small encoded JSON reply is kept whole."""
    tail = Tail(decoder(("gzip",), 1 << 20), 1000)
    for byte in gzip.compress(b'{"usage":{}}'):
        tail.feed(bytes([byte]))
    assert tail.read() == b'{"usage":{}}'


@pytest.mark.parametrize("raw", [b"nonsense", zlib.compress(bytes(1 << 22))])
def test_what_does_not_decode_within_bounds_has_no_tail(raw: bytes) -> None:
    """Reading is given up, relaying is not."""
    tail = Tail(decoder(("deflate",), 1 << 20), 1000)
    tail.feed(raw)
    tail.feed(b"more")
    assert tail.read() is None
