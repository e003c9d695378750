"""Questions of our own: whole answers, bounded in size and time."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest

from proxy.upstream import Call, UpstreamError
from tests.sockets import Peer as End
from tests.sockets import raw_upstream, reply

if TYPE_CHECKING:
    from tests.upstream.conftest import Calling


async def test_an_answer_is_whole_and_decoded(calling: Calling) -> None:
    """Status, headers and body."""
    raw = reply(gzip.compress(b"[1]", mtime=0), status="404 X", headers=b"Content-Encoding: gzip\r\n")
    async with raw_upstream(raw, keep=True) as up, calling() as client:
        for _ in range(2):
            answer = await client.ask(Call(upstream="a", method="GET", url=up.url + "/v1/models"), within=5)
            assert (answer.status, answer.body) == (404, b"[1]")
        assert up.connections == 1


async def test_time_is_bounded(calling: Calling) -> None:
    """The connection is closed with it."""
    gone: asyncio.Queue[float] = asyncio.Queue()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"a", b"b", pause=0.1)
        await gone.put(await peer.gone())

    async with raw_upstream(script) as up, calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.ask(Call(upstream="a", method="GET", url=up.url), within=0.3)
        assert caught.value.kind == "first_byte"
        async with asyncio.timeout(1):
            await gone.get()


@pytest.mark.parametrize(
    "raw",
    [
        reply(bytes(2000)),
        reply(gzip.compress(bytes(2000), mtime=0), headers=b"Content-Encoding: gzip\r\n"),
        reply(b"x", headers=b"Content-Encoding: exi\r\n"),
    ],
)
async def test_size_is_bounded_as_sent_and_decoded(calling: Calling, raw: bytes) -> None:
    """What is larger, or cannot be decoded, is no answer."""
    async with raw_upstream(raw) as up, calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.ask(Call(upstream="a", method="GET", url=up.url), within=5, limit=1000)
    assert caught.value.kind == "malformed"
