"""What takes long to read, of a client or of an upstream, goes on to the byte, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import time

import pytest

from tests.e2e.hostile import answered, between, heard, spelled
from tests.sockets import Peer, raw_upstream, reply
from tests.store.servers import Server

_SMALL = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
_OPEN = b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":['
#: Bodies that no client has: small ones with more values than all of a long session, and large ones.
BODIES = {
    "empty parts": (b"/v1/chat/completions", _OPEN + b"{}," * 1_000_000 + b"{}]}]}"),
    "empty lists": (b"/v1/chat/completions", _OPEN + b"[]," * 1_000_000 + b"[]]}]}"),
    "numbers": (b"/v1/chat/completions", _OPEN + b"1.5," * 1_000_000 + b"1]}]}"),
    "messages": (b"/v1/messages", b'{"model":"m","messages":[' + b'{"role":"user","content":"a"},' * 200_000 + b"{}]}"),
    "items": (b"/v1/responses", b'{"model":"m","input":[' + b'{"role":"user","content":"a"},' * 200_000 + b"{}]}"),
    "keys": (b"/v1/chat/completions", b'{"model":"m",' + b'"k":1,' * 600_000 + _SMALL[1:]),
}
_CONTENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
_EVENTS = b"Content-Type: text/event-stream\r\n"
_JSON = b"Content-Type: application/json\r\n"


def _members(body: bytes) -> bytes:
    """Make gzip that a bound on the ratio does not stop."""
    return b"".join(gzip.compress(body[at : at + 4_096], 1) for at in range(0, len(body), 4_096))


#: Replies that were minutes of work, all within `hold.bytes` as sent.
REPLIES = {
    "blank lines": reply(b"\n" * 4_000_000 + _CONTENT, headers=_EVENTS),
    "comments": reply(b":\n\n" * 1_000_000 + _CONTENT, headers=_EVENTS),
    "one frame of choices": reply(b'data: {"choices":[' + b"{}," * 1_500_000 + b"{}]}\n\n" + _CONTENT, headers=_EVENTS),
    "lines of one frame": reply(b"data:\n" * 800_000 + b"\n" + _CONTENT, headers=_EVENTS),
    "a body of choices": reply(b'{"choices":[' + b"{}," * 1_500_000 + b"{}]}", headers=_JSON),
    "a body of choices, encoded": reply(
        _members(b'{"choices":[' + b"[]," * 8_000_000 + b"{}]}"), headers=_JSON + b"Content-Encoding: gzip\r\n"
    ),
    "a large refusal": reply(b'{"error":[' + b"{}," * 300_000 + b"{}]}", status="400 Bad", headers=_JSON),
}


async def _meanwhile(port: int, work: asyncio.Task[object], what: str) -> None:
    """Send small requests until that is done; print how long the slowest took."""
    slowest, served = 0.0, 0
    while not work.done():
        began = time.monotonic()
        assert (await answered(port, spelled(_SMALL, case=0))).status == 200
        slowest, served = max(slowest, time.monotonic() - began), served + 1
    print(f"\n{what}: {served} small requests meanwhile, the slowest {slowest * 1e3:.0f} ms")


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_is_no_conversation_passes_while_others_are_served(name: str, valkey: Server) -> None:
    """It reaches the upstream once and to the byte, unread."""
    target, body = BODIES[name]
    async with (
        raw_upstream(reply(b"{}")) as upstream,
        between(f"{upstream.url}/v1", valkey, window=100_000) as run,
    ):
        work = asyncio.ensure_future(heard(run.port, spelled(body, case=1, target=target)))
        await _meanwhile(run.port, work, name)
        got = await work
        assert got.brief == (200, "", b"{}", True)
        assert got.head.values(b"x-carryon-conversation") == []
        (copy,) = [seen for seen in upstream.requests if seen.values(b"x-case") == [b"1"]]
        assert copy.body == body


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_that_is_long_to_read_passes_while_others_are_served(name: str, valkey: Server) -> None:
    """Its client gets its very bytes; nobody waits until all of it was looked at."""
    head, _, body = REPLIES[name].partition(b"\r\n\r\n")

    async def script(peer: Peer) -> None:
        seen = await peer.message()
        await peer.send(REPLIES[name] if seen.values(b"x-case") == [b"1"] else reply(b"{}"))

    async with raw_upstream(script) as upstream, between(f"{upstream.url}/v1", valkey, window=100_000) as run:
        work = asyncio.ensure_future(heard(run.port, spelled(_SMALL, case=1)))
        await _meanwhile(run.port, work, name)
        assert (await work).brief == (int(head[9:12]), "", body, True)
