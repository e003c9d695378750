"""Delivered, overflowed or refused: what is decided, and that no byte is lost by deciding."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import re
import time
import zlib
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard

from proxy.core import overflow_evidence
from proxy.core.hold import Hold
from proxy.core.overflow import Kind
from proxy.upstream import Call, Delivered, Overflowed, Peer, Refused, UpstreamError
from proxy.upstream.hold import PIECE
from tests.sockets import Peer as End
from tests.sockets import collect, raw_upstream, reply, sse

if TYPE_CHECKING:
    from proxy.upstream import Outcome
    from tests.upstream.conftest import Calling

TOO_LONG = json.dumps(
    {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
).encode()
OTHER = b'{"error":{"message":"no such model","type":"invalid_request_error","param":null,"code":"model_not_found"}}'
CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def call(url: str, path: str = "/v1/chat/completions") -> Call:
    """Make a chat call."""
    return Call(upstream="up", method="POST", url=url + path, body=b"{}")


async def drain(outcome: Outcome) -> bytes:
    """Read the whole reply."""
    return b"".join([chunk async for chunk in outcome.reply])


@pytest.mark.parametrize("status", ["400 Bad Request", "413 Too Large", "422 X", "500 Internal"])
async def test_an_http_overflow_is_kept_to_the_byte(calling: Calling, status: str) -> None:
    """The verdict is read from it, the original can still be handed over, and the connection is free."""
    headers = b"Content-Type: application/json\r\nX-Request-Id: 1\r\n"
    async with raw_upstream(reply(TOO_LONG, status=status, headers=headers), keep=True) as up, calling() as client:
        for _ in range(2):
            outcome = await client.send(call(up.url), dialect="chat", inspect=True)
            assert isinstance(outcome, Overflowed)
            assert outcome.verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED
            assert (outcome.verdict.limit, outcome.verdict.requested) == (8192, 9000)
            assert await drain(outcome) == TOO_LONG
            assert ("X-Request-Id", "1") in outcome.reply.headers
        assert up.connections == 1


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        (b"gzip", gzip.compress),
        (b"deflate", zlib.compress),
        (b"br", brotli.compress),
        (b"zstd", zstandard.compress),
    ],
)
async def test_an_encoded_refusal_is_read_and_stays_encoded(calling: Calling, coding: bytes, encode) -> None:  # noqa: ANN001 - whatever the test scripts
    """Only a copy is decoded."""
    body = encode(TOO_LONG)
    headers = b"Content-Encoding: %s\r\n" % coding
    async with raw_upstream(reply(body, status="400 X", headers=headers)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Overflowed)
        assert await drain(outcome) == body


async def test_an_unknown_coding_is_relayed_uninspected(calling: Calling) -> None:
    """Whatever it says."""
    headers = b"Content-Encoding: exi\r\n"
    async with raw_upstream(reply(TOO_LONG, status="400 X", headers=headers)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Refused)
        assert outcome.verdict is None
        assert await drain(outcome) == TOO_LONG
    async with raw_upstream(reply(TOO_LONG, headers=headers)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "uninspected"
        assert await drain(outcome) == TOO_LONG


async def test_without_inspection_nothing_is_read(calling: Calling) -> None:
    """Other paths, and the kill switch: the reply is relayed as it comes."""
    async with raw_upstream(reply(TOO_LONG, status="400 X")) as up, calling() as client:
        outcome = await client.send(call(up.url))
        assert isinstance(outcome, Delivered)
        assert outcome.reply.status == 400
        assert outcome.reply.tail() is None
        assert await drain(outcome) == TOO_LONG


async def test_another_refusal_has_its_verdict(calling: Calling) -> None:
    """The exchange needs the kind to heal a surface."""
    async with raw_upstream(reply(OTHER, status="400 X")) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Refused)
        assert outcome.verdict is not None
        assert outcome.verdict.kind is Kind.OTHER
        assert await drain(outcome) == OTHER


async def test_a_users_own_wording_counts(calling: Calling) -> None:
    """`overflow_patterns` of the upstream."""
    body = b'{"error":"der Topf ist voll"}'
    peers = {"up": Peer(overflow_patterns=(re.compile("Topf ist voll"),))}
    async with raw_upstream(reply(body, status="400 X")) as up, calling(peers=peers) as client:
        assert isinstance(await client.send(call(up.url), dialect="chat", inspect=True), Overflowed)


async def test_a_huge_refusal_passes_uninspected(calling: Calling) -> None:
    """Beyond the bound it is relayed while it comes, whole."""
    body = TOO_LONG + b" " * (300 << 10)
    async with raw_upstream(reply(body, status="400 X")) as up, calling(refusal=100 << 10) as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Refused)
        assert outcome.verdict is None
        assert await drain(outcome) == body


async def test_a_refusal_bomb_is_not_decoded(calling: Calling) -> None:
    """A decoded copy is bounded too."""
    body = gzip.compress(bytes(40 << 20))
    headers = b"Content-Encoding: gzip\r\n"
    async with raw_upstream(reply(body, status="400 X", headers=headers)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Refused)
        assert outcome.verdict is None
        assert await drain(outcome) == body


async def test_a_cut_refusal_gives_what_came_and_then_fails(calling: Calling) -> None:
    """It is not classified, and does not look whole."""
    received: list[bytes] = []
    async with raw_upstream(b"HTTP/1.1 400 X\r\nContent-Length: 9999\r\n\r\n" + TOO_LONG) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Refused)
        assert outcome.verdict is None
        with pytest.raises(UpstreamError):
            await collect(outcome.reply, received)
    assert b"".join(received) == TOO_LONG


async def test_a_stream_is_released_at_its_first_content(calling: Calling) -> None:
    """Comments and empty deltas are held with it; what follows is not waited for."""
    gate = asyncio.Event()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(SSE_HEAD, PING, ROLE, CONTENT[:20], CONTENT[20:], pause=0.02)
        await gate.wait()
        await peer.send(DONE)

    async with raw_upstream(script) as up, calling() as client:
        async with asyncio.timeout(3):
            outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "content"
        assert outcome.held > 0.05
        gate.set()
        assert await drain(outcome) == PING + ROLE + CONTENT + DONE
        assert outcome.reply.tail() == PING + ROLE + CONTENT + DONE


async def test_an_overflow_in_a_stream_is_seen_before_anything_goes_out(calling: Calling) -> None:
    """The frames before it, and the rest after it, stay in the original."""
    frame = b"event: error\ndata: " + TOO_LONG + b"\n\n"
    raw = sse(PING, ROLE, frame, DONE)
    async with raw_upstream(raw, keep=True) as up, calling() as client:
        for _ in range(2):
            outcome = await client.send(call(up.url), dialect="chat", inspect=True)
            assert isinstance(outcome, Overflowed)
            assert outcome.reply.status == 200
            assert await drain(outcome) == PING + ROLE + frame + DONE
        assert up.connections == 1


async def test_an_overflow_after_content_passes(calling: Calling) -> None:
    """Once committed nothing is looked at any more."""
    frame = b"data: " + TOO_LONG + b"\n\n"
    async with raw_upstream(sse(CONTENT, frame)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert await drain(outcome) == CONTENT + frame


async def test_an_overflow_that_stays_open_does_not_block_recovery(calling: Calling) -> None:
    """The rest is awaited for a moment only; leaving closes it."""
    gone: asyncio.Queue[float] = asyncio.Queue()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(SSE_HEAD + b"data: " + TOO_LONG + b"\n\n")
        await gone.put(await peer.gone())

    async with raw_upstream(script) as up, calling(spare=0.1) as client:
        async with asyncio.timeout(1):
            outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Overflowed)
        await outcome.reply.aclose()
        async with asyncio.timeout(1):
            await gone.get()


async def test_an_error_inside_a_200_is_seen(calling: Calling) -> None:
    """JSON bodies are held whole."""
    async with raw_upstream(reply(TOO_LONG)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Overflowed)
        assert await drain(outcome) == TOO_LONG
    async with raw_upstream(reply(OTHER)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "error"
        assert outcome.verdict is not None
        assert outcome.verdict.kind is Kind.OTHER


async def test_a_hold_has_an_end_in_time(calling: Calling) -> None:
    """From the status line; then the bytes go out and the rest follows."""

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(SSE_HEAD, *[PING] * 20, pause=0.05)

    async with raw_upstream(script) as up, calling(hold_time=0.3) as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "time"
        assert 0.25 < outcome.held < 0.6
        assert await drain(outcome) == PING * 20


async def test_a_hold_has_an_end_in_bytes(calling: Calling) -> None:
    """An endless preamble is not kept in memory."""

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(SSE_HEAD, *[PING * 1000] * 100)

    async with raw_upstream(script) as up, calling(hold_bytes=100_000) as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "bytes"
        assert await drain(outcome) == PING * 100_000


async def _turns(counted: list[int]) -> None:
    """Count the turns of the event loop."""
    while True:
        counted.append(0)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("kind", "body", "coding", "why"),
    [
        ("text/event-stream", b"\n" * 2_000_000 + CONTENT, "", "content"),
        ("text/event-stream", PING * 200_000 + CONTENT, "gzip", "content"),
        ("text/event-stream", ROLE * 10_000 + CONTENT, "", "content"),
        ("text/event-stream", b'data: {"choices":[' + b"{}," * 700_000 + b"{}]}\n\n" + CONTENT, "", "unknown-event"),
        ("application/json", b'{"choices":[' + b"{}," * 700_000 + b"{}]}", "", "finish"),
        ("application/json", b'{"choices":[' + b"{}," * 700_000 + b"{}]}", "gzip", "finish"),
    ],
    ids=["blank lines", "comments, encoded", "roles", "a large frame", "a large body", "a large body, encoded"],
)
async def test_a_long_beginning_is_looked_at_piece_by_piece(
    calling: Calling, monkeypatch: pytest.MonkeyPatch, kind: str, body: bytes, coding: str, why: str
) -> None:
    """However much of it is there at once: the event loop turns between any two small pieces."""
    seen: list[tuple[int, int]] = []
    counted: list[int] = []
    feed = Hold.feed
    monkeypatch.setattr(Hold, "feed", lambda held, data: seen.append((len(data), len(counted))) or feed(held, data))
    # In small members, so that the ratio does not end the hold.
    sent = b"".join(gzip.compress(body[at : at + 4_096], 1) for at in range(0, len(body), 4_096)) if coding else body
    headers = f"Content-Type: {kind}\r\nContent-Encoding: {coding or 'identity'}\r\n".encode()
    turning = asyncio.ensure_future(_turns(counted))
    async with raw_upstream(reply(sent, headers=headers)) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        turning.cancel()
        assert isinstance(outcome, Delivered)
        assert outcome.why == why
        assert await drain(outcome) == sent
    assert max(size for size, _ in seen) <= PIECE
    assert all(after > before for (_, before), (_, after) in itertools.pairwise(seen))


async def test_the_time_of_a_hold_counts_between_two_pieces(calling: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came at once and takes long to look at is released in time like what comes slowly."""
    fed: list[int] = []
    monkeypatch.setattr(Hold, "feed", lambda _, data: fed.append(len(data)) or time.sleep(0.02))
    body = reply(PING * 100_000, headers=b"Content-Type: text/event-stream\r\n")
    async with raw_upstream(body) as up, calling(hold_time=0.1) as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "time"
        assert await drain(outcome) == PING * 100_000
    assert len(fed) <= 6


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
async def test_a_hold_has_an_end_in_decoded_bytes(
    calling: Calling, monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    """A decoded copy is no larger than what may be held."""
    fed: list[int] = []
    feed = Hold.feed
    monkeypatch.setattr(Hold, "feed", lambda held, data: fed.append(len(data)) or feed(held, data))
    encode = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstandard.ZstdCompressor().compress}[coding]
    spread = random.Random(7).randbytes(300_000).hex().encode()
    sent = encode(b'{"choices":["' + spread + b'"]}')
    headers = f"Content-Type: application/json\r\nContent-Encoding: {coding}\r\n".encode()
    async with raw_upstream(reply(sent, headers=headers)) as up, calling(hold_bytes=400_000) as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert outcome.why == "bytes"
        assert await drain(outcome) == sent
    assert sum(fed) <= 400_000 + PIECE


async def test_a_large_refusal_is_told_by_what_decides(calling: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it echoes is not parsed, and does not hide the error."""
    monkeypatch.setattr(overflow_evidence, "_DECODER", None)
    body = TOO_LONG[:-2] + b',"echo":[' + b"{}," * 200_000 + b"{}]}}"
    async with raw_upstream(reply(body, status="400 Bad")) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Overflowed)
        assert outcome.verdict.limit == 8192
        assert await drain(outcome) == body


async def test_a_reply_that_breaks_off_while_held_is_a_failure(calling: Calling) -> None:
    """Nothing went out: the client can be told in a status."""
    async with (
        raw_upstream(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n" + PING) as up,
        calling() as client,
    ):
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url), dialect="chat", inspect=True)
    assert caught.value.kind == "dropped"


async def test_bytes_that_do_not_decode_are_released(calling: Calling) -> None:
    """What cannot be read is not held."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
    async with raw_upstream(head + b"not gzip") as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert await drain(outcome) == b"not gzip"
        assert outcome.reply.tail() is None


@pytest.mark.parametrize(
    "kind", ["text/event-stream", "application/json", "text/plain", "application/octet-stream", ""]
)
async def test_a_stream_is_told_by_its_first_bytes(calling: Calling, kind: str) -> None:
    """Whatever its content type: released at its first content, and its end is kept as a stream's."""
    headers = f"Content-Type: {kind}\r\n".encode() if kind else b""
    rest: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + PING + ROLE + CONTENT)
        await peer.send(await rest.get())

    async with raw_upstream(script) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert (outcome.why, outcome.events) == ("content", True)
        rest.put_nowait(DONE)
        assert await drain(outcome) == PING + ROLE + CONTENT + DONE
        assert outcome.reply.tail() == PING + ROLE + CONTENT + DONE


async def test_a_page_inside_a_200_is_not_held(calling: Calling) -> None:
    """It has no form that could decide, and nothing of it is kept."""
    page = reply(b"<html>too long</html>", headers=b"Content-Type: text/html\r\n")
    async with raw_upstream(page) as up, calling() as client:
        outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert isinstance(outcome, Delivered)
        assert (outcome.why, outcome.events, outcome.reply.tail()) == ("unknown-form", False, None)


async def test_other_media_are_not_held(calling: Calling) -> None:
    """Audio is neither an event stream nor JSON."""

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nContent-Length: 4\r\n\r\n", b"\xff", pause=0.3)
        await peer.send(b"abc")

    async with raw_upstream(script) as up, calling() as client:
        async with asyncio.timeout(0.2):
            outcome = await client.send(call(up.url), dialect="chat", inspect=True)
        assert await drain(outcome) == b"\xffabc"


async def test_cancelling_a_held_reply_closes_it(calling: Calling) -> None:
    """The client left during prefill or preamble."""
    gone: asyncio.Queue[float] = asyncio.Queue()
    held = asyncio.Event()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(SSE_HEAD + PING)
        held.set()
        await gone.put(await peer.gone())

    async with raw_upstream(script) as up, calling() as client:
        sending = asyncio.ensure_future(client.send(call(up.url), dialect="chat", inspect=True))
        await held.wait()
        await asyncio.sleep(0.05)
        sending.cancel()
        async with asyncio.timeout(1):
            await gone.get()


async def test_generated_refusals_come_back_to_the_byte(calling: Calling) -> None:
    """Any status, coding, chunking, invalid UTF-8 and cut JSON: no byte differs (I3)."""
    chance = random.Random(7)
    sent: list[tuple[int, bytes]] = []

    async def script(peer: End) -> None:
        while True:
            await peer.message()
            status, body = _refusal(chance)
            coding = chance.choice([b"", b"gzip"])
            body = gzip.compress(body) if coding else body
            sent.append((status, body))
            head = b"HTTP/1.1 %d X\r\nContent-Encoding: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % (status, coding)
            await peer.send(head + _chunked(body, chance) + b"0\r\n\r\n")

    async with raw_upstream(script) as up, calling() as client:
        for _ in range(300):
            outcome = await client.send(call(up.url), dialect=chance.choice(["chat", "messages"]), inspect=True)
            assert (outcome.reply.status, await drain(outcome)) == sent[-1]
        assert up.connections == 1


def _refusal(chance: random.Random) -> tuple[int, bytes]:
    body = chance.choice([TOO_LONG, OTHER, b"", b"<html>", b"\xff\xfe\x00", TOO_LONG + b"\xc3"])
    if chance.random() < 0.3:
        body = body[: chance.randint(0, len(body))]
    return chance.choice([400, 401, 404, 413, 422, 429, 500, 503, 529]), body


def _chunked(body: bytes, chance: random.Random) -> bytes:
    out = b""
    while body:
        size = chance.randint(1, max(1, min(len(body), 40)))
        out += b"%x\r\n%s\r\n" % (size, body[:size])
        body = body[size:]
    return out
