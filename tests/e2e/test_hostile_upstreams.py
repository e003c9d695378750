"""Replies no upstream should give: an answer of ours, or its very bytes and a visible end (rules 3.3 to 3.5, I12).

Each goes through the whole of Carryon, once where replies are inspected and once where they are not. Nothing is asked
twice, the next request is served, and the log holds no secret.
"""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.e2e.hostile import Run, Seen, answered, between, heard, spelled
from tests.sockets import Peer, raw_upstream, reply, until
from tests.store.servers import Server

_BODY = b'{"model":"hostile-1","messages":[{"role":"user","content":"hi"}],"stream":true}'
_GET = b"GET /v1/files HTTP/1.1\r\nHost: h\r\nX-Case: %d\r\n\r\n"
_SETTINGS = {
    "timeouts": {"connect": "1s", "first_byte": "1s", "stream_idle": "1s"},
    "hold": {"bytes": "1MiB", "time": "5s"},
}
_HEAD = b"HTTP/1.1 200 OK\r\n"
_PLAIN = _HEAD + b"Content-Type: application/json\r\n"
_SSE = _HEAD + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_CONTENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
_MALFORMED, _DROPPED = "PROXY_UPSTREAM_MALFORMED", "PROXY_UPSTREAM_DROPPED"
_SLOW, _IDLE = "PROXY_UPSTREAM_FIRST_BYTE", "PROXY_UPSTREAM_STREAM_IDLE"


@dataclass(frozen=True, slots=True)
class Odd:
    """What the upstream sends, and what it does then: `close`, `reset`, or `stay`.

    `ours` is the code of the answer that the client gets instead. Else it gets `body`, and `whole` says whether it can
    see the end of it; a reply that is held when it breaks off is `held`: then it is ours too. `after` is sent a moment
    later, so that what stands before it was read; `trickled` sends it byte by byte.
    """

    sent: bytes
    after: bytes = b""
    then: str = "close"
    ours: str = ""
    body: bytes = b""
    whole: bool = True
    held: str = ""
    trickled: bool = False


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_ODD_STATUS = {
    "a word for a status": b"HTTP/1.1 abc OK",
    "a status of two digits": b"HTTP/1.1 99 Low",
    "a status of four digits": b"HTTP/1.1 1000 High",
    "no status": b"HTTP/1.1 ",
    "another protocol": b"ICY 200 OK",
    "a request": b"GET / HTTP/1.1",
    "a version of letters": b"HTTP/a.b 200 OK",
    "a NUL in the status line": b"HTTP/1.1 2\x0000 OK",
    "a line feed before": b"\n\nnonsense",
}
_ODD_HEADERS = {
    "no colon": b"nonsense",
    "no name": b": value",
    "a NUL in a value": b"A: b\0c",
    "a control character in a name": b"A\x01: b",
    "a carriage return in a value": b"A: b\rSet-Cookie: c",
    "a huge header": b"A: " + b"x" * 70_000,
    "a thousand headers": b"\r\n".join(b"A%d: b" % number for number in range(1_000)),
    "a negative length": b"Content-Length: -1",
    "a length of letters": b"Content-Length: 2x",
    "a length beyond counting": b"Content-Length: 99999999999999999999999",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3",
    "length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 2",
}
ODD = {
    "closes at once": Odd(b"", ours=_DROPPED),
    "resets at once": Odd(b"", then="reset", ours=_DROPPED),
    "closes in the status line": Odd(b"HTTP/1.", ours=_DROPPED),
    "closes in the head": Odd(_HEAD + b"Content-Le", ours=_DROPPED),
    "closes after an early hint": Odd(b"HTTP/1.1 103 Early\r\n\r\n", ours=_DROPPED),
    "says nothing": Odd(b"", then="stay", ours=_SLOW),
    "stays in the head": Odd(_HEAD + b"Content-Le", then="stay", ours=_SLOW),
    "early hints and silence": Odd(b"HTTP/1.1 103 Early\r\n\r\n" * 1_000, then="stay", ours=_SLOW),
    "a head of one byte each 50 ms": Odd(b"", _HEAD + b"X: %s\r\n" % (b"x" * 60), ours=_SLOW, trickled=True),
    "a thousand early hints": Odd(b"HTTP/1.1 103 Early\r\n\r\n" * 1_000 + reply(), body=b"{}"),
    "ten thousand early hints": Odd(b"HTTP/1.1 103 Early\r\n\r\n" * 10_000 + reply(), ours=_MALFORMED),
    "another protocol unasked": Odd(b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n", then="stay", ours=_MALFORMED),
    "not HTTP": Odd(b"\x16\x03\x01\x02\x00" * 20 + b"\r\n\r\n", ours=_MALFORMED),
    **{name: Odd(line + b"\r\nContent-Length: 0\r\n\r\n", ours=_MALFORMED) for name, line in _ODD_STATUS.items()},
    **{name: Odd(_HEAD + line + b"\r\n\r\n{}", ours=_MALFORMED) for name, line in _ODD_HEADERS.items()},
    "no reason": Odd(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}", body=b"{}"),
    "an unknown status": Odd(reply(status="299 Odd"), body=b"{}"),
    "no content with content": Odd(b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n", b"{}", body=b""),
    "a length that is too long": Odd(_PLAIN + b"Content-Length: 99\r\n\r\n{}", body=b"{}", whole=False, held=_DROPPED),
    "a length that is too short": Odd(_PLAIN + b"Content-Length: 2\r\n\r\n{}", b"surplus", body=b"{}"),
    "more than the length, in one piece": Odd(_PLAIN + b"Content-Length: 2\r\n\r\n{}surplus", body=b"{}"),
    "a refusal and more, in one piece": Odd(reply(b"{}", status="400 Bad") + b"surplus", body=b"{}"),
    "a refusal and a line, in one piece": Odd(reply(b"{}", status="400 Bad") + b"\n", body=b"{}"),
    "chunks and more, in one piece": Odd(_SSE + _chunk(_CONTENT) + b"0\r\n\r\nsurplus", body=_CONTENT),
    "no content with content, in one piece": Odd(b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n{}", body=b""),
    "a reply behind the reply": Odd(reply() + reply(b"poison"), then="stay", body=b"{}"),
    "a body that ends with the connection": Odd(_PLAIN + b"\r\n{}", body=b"{}"),
    "a body that stays": Odd(_PLAIN + b"Content-Length: 9\r\n\r\n{}", then="stay", body=b"{}", whole=False, held=_IDLE),
    "a chunk of no size": Odd(_SSE + _chunk(_CONTENT), b"zz\r\n", body=_CONTENT, whole=False),
    "a chunk of negative size": Odd(_SSE + _chunk(_CONTENT), b"-1\r\nx", body=_CONTENT, whole=False),
    "a chunk beyond counting": Odd(_SSE + _chunk(_CONTENT), b"f" * 20 + b"\r\n", body=_CONTENT, whole=False),
    "a chunk that is cut": Odd(_SSE + _chunk(_CONTENT), b"9\r\nab", body=_CONTENT + b"ab", whole=False),
    "a chunk that does not end": Odd(_SSE + _chunk(_CONTENT)[:-2], b"xx", body=_CONTENT, whole=False),
    "no last chunk": Odd(_SSE + _chunk(_CONTENT), body=_CONTENT, whole=False),
    "no last chunk and silence": Odd(_SSE + _chunk(_CONTENT), then="stay", body=_CONTENT, whole=False),
    "a reset in a stream": Odd(_SSE + _chunk(_CONTENT), then="reset", body=_CONTENT, whole=False),
    "chunks with extensions and trailers": Odd(_SSE + b"2;a=b\r\n\n\n\r\n0\r\nX: y\r\n\r\n", body=b"\n\n"),
    "a stream of one byte each 50 ms": Odd(
        _SSE, _chunk(b": ping\n\n") + b"0\r\n\r\n", body=b": ping\n\n", trickled=True
    ),
    "no gzip though it says so": Odd(reply(b"{}", headers=b"Content-Encoding: gzip\r\n"), body=b"{}"),
    "cut gzip": Odd(
        reply(gzip.compress(b"{}")[:-4], headers=b"Content-Encoding: gzip\r\n"), body=gzip.compress(b"{}")[:-4]
    ),
    "a thousand codings": Odd(reply(b"{}", headers=b"Content-Encoding: " + b"zstd," * 1_000 + b"br\r\n"), body=b"{}"),
    "an error that breaks off": Odd(
        b"HTTP/1.1 400 Bad\r\nContent-Length: 99\r\n\r\n" + b'{"error', body=b'{"error', whole=False
    ),
}


@dataclass(slots=True)
class _Stage:
    """An upstream that plays the case whose number a request names, and answers all others well."""

    cases: list[Odd]
    played: dict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def __call__(self, peer: Peer) -> None:
        """Serve one connection."""
        number = int(b"".join((await peer.message()).values(b"x-case")))
        if number >= len(self.cases):
            await peer.send(reply(b"next"))
            return
        try:
            await self._play(peer, self.cases[number])
        finally:
            self.played[number].set()

    async def _play(self, peer: Peer, odd: Odd) -> None:
        after = [bytes([byte]) for byte in odd.after] if odd.trickled else [odd.after]
        await peer.send(odd.sent, *after, pause=0.05 if odd.after else 0.0)
        if odd.then == "reset":
            await asyncio.sleep(0.05)  # what was sent is read first: a reset may overtake it
            peer.writer.transport.abort()
        elif odd.then == "stay":
            await peer.gone()


def _expected(odd: Odd, *, inspected: bool) -> tuple[int, str, bytes, bool]:
    ours = odd.ours or (odd.held if inspected else "")
    if ours:
        return 504 if ours in {_SLOW, _IDLE} else 502, ours, b"", True
    return 200 if odd.sent.startswith(b"HTTP/1.1 103") else int(odd.sent[9:12]), "", odd.body, odd.whole


@pytest.mark.parametrize("inspected", [True, False], ids=["inspected", "passed on"])
async def test_an_odd_reply_is_ours_or_its_own_bytes(valkey: Server, *, inspected: bool) -> None:
    """One request in, one out; what the client gets is exact, and cut where the upstream cut it; the next is served."""
    stage = _Stage(list(ODD.values()))
    slow = [
        number for number, odd in enumerate(stage.cases) if odd.ours == _SLOW or (odd.then == "stay" and not odd.whole)
    ]

    async with (
        raw_upstream(stage) as upstream,
        between(f"{upstream.url}/v1", valkey, window=100_000, **_SETTINGS) as run,
    ):

        async def tried(number: int) -> None:
            name, odd = list(ODD.items())[number]
            got = await heard(run.port, spelled(_BODY, case=number) if inspected else _GET % number)
            assert (name, *got.brief) == (name, *_expected(odd, inspected=inspected))

        async def next_one(number: int) -> None:
            async with asyncio.timeout(3):  # less than unused connections are kept
                await stage.played[number].wait()
            await asyncio.sleep(0.02)  # what came meanwhile, or the end of the connection, is seen by then
            assert (await answered(run.port, spelled(_BODY, case=1_000))).body == b"next", list(ODD)[number]

        await asyncio.gather(*map(tried, slow))
        for number in range(len(ODD)):
            if number not in slow:
                await tried(number)
            await next_one(number)
        assert len(upstream.requests) == 2 * len(ODD)
        assert len(run.log.getvalue().split('"event": "request"')) == 1 + 2 * len(ODD)
        print(f"\nodd replies: {len(ODD)}")


@pytest.mark.parametrize("late", [False, True], ids=["in one piece", "while the connection waits"])
async def test_what_nobody_asked_for_answers_nobody(valkey: Server, *, late: bool) -> None:
    """Bytes behind a reply are never the reply to somebody else's request."""
    poison = reply(b"poison")

    async def script(peer: Peer) -> None:
        while True:
            seen = await peer.message()
            if seen.values(b"x-case") != [b"1"]:
                await peer.send(reply(b"clean"))
                continue
            await peer.send(*([reply(), poison] if late else [reply() + poison]), pause=0.1 if late else 0.0)

    async with (
        raw_upstream(script) as upstream,
        between(f"{upstream.url}/v1", valkey, window=100_000, **_SETTINGS) as run,
    ):
        for case in (1, 2, 1, 3, 4):
            got = await heard(run.port, spelled(_BODY, case=case))
            assert got.body == (b"{}" if case == 1 else b"clean")
            await asyncio.sleep(0.15 if late else 0)
        assert len(upstream.requests) == 5


@pytest.mark.parametrize("path", [b"/v1/files", b"/v1/chat/completions"], ids=["streamed", "read whole"])
@pytest.mark.parametrize("then", ["close", "stay"])
async def test_a_reply_before_the_request_was_read_arrives(path: bytes, then: str, valkey: Server) -> None:
    """An upstream may refuse a large upload at its head: the client gets the refusal, or 502 where it was reset."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(reply(b"too large", status="413 No", headers=b"Connection: close\r\n"))
        if then == "stay":
            await peer.gone()

    async with (
        raw_upstream(script) as upstream,
        between(f"{upstream.url}/v1", valkey, window=100_000, **_SETTINGS) as run,
    ):
        got = await heard(run.port, spelled(b" " * (24 << 20), target=path))
        assert got.brief in ((413, "", b"too large", True), (502, _DROPPED, b"", True))
        assert got.head.status == 413 or then == "close"
        assert upstream.connections == 1


def _gzipped(data: bytes, times: int) -> bytes:
    return gzip.compress(data * times, 9)


@dataclass(frozen=True, slots=True)
class Flood:
    """An endless or exploding reply: its head, and what is sent over and over."""

    head: bytes
    again: bytes
    most: int = 64 << 20


FLOODS = {
    "endless JSON": Flood(_PLAIN + b"\r\n[", b"1," * 30_000),
    "endless comments": Flood(_HEAD + b"Content-Type: text/event-stream\r\n\r\n", (b": " + b"x" * 998 + b"\n\n") * 60),
    "one endless event": Flood(_HEAD + b"Content-Type: text/event-stream\r\n\r\ndata: ", b"x" * 60_000),
    "an endless error": Flood(b"HTTP/1.1 400 Bad\r\n\r\n", b"x" * 60_000),
    "endless gzip": Flood(_PLAIN + b"Content-Encoding: gzip\r\n\r\n", _gzipped(b": ping\n\n", 100_000)),
    "a bomb of comments": Flood(
        _HEAD + b"Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\n",
        _gzipped(b": ping\n\n", 1 << 22),
        1 << 20,
    ),
    "a bomb of one event": Flood(
        _HEAD + b"Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\n",
        _gzipped(b"data: " + b"x" * 994, 1 << 15),
        1 << 20,
    ),
    "a bomb in an error": Flood(
        b"HTTP/1.1 400 Bad\r\nContent-Encoding: gzip\r\n\r\n", _gzipped(bytes(1 << 20), 32), 1 << 20
    ),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_reply_without_end_costs_no_memory_and_ends_with_its_client(name: str, valkey: Server) -> None:
    """Held to its bounds, then relayed with back-pressure; when the client leaves, so does the upstream."""
    flood, sent, left = FLOODS[name], 0, asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal sent
        seen = await peer.message()
        if seen.values(b"x-case") != [b"1"]:
            await peer.send(reply(b"next"))
            return
        await peer.send(flood.head)
        try:
            while sent < flood.most:
                await peer.send(flood.again)
                sent += len(flood.again)
            await peer.gone()
        except ConnectionError:
            pass
        left.set()

    async with (
        raw_upstream(script) as upstream,
        between(f"{upstream.url}/v1", valkey, window=100_000, **_SETTINGS) as run,
    ):
        tracemalloc.start()
        pulled, slowest = await _pulled(run, 4 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        async with asyncio.timeout(5):
            await left.wait()
        assert (await answered(run.port, spelled(_BODY, case=2))).body == b"next"
        assert len(upstream.requests) == 2
    print(
        f"\n{name}: {sent >> 10} KiB sent, {pulled >> 10} KiB read, peak {peak >> 20} MiB,"
        f" event loop held up {slowest * 1e3:.0f} ms at most"
    )
    assert peak < 48 << 20


async def _pulled(run: Run, most: int) -> tuple[int, float]:
    """Read so much of a reply and leave; gives what was read, and how long the event loop was held up at most."""
    loop, slowest, size = asyncio.get_running_loop(), 0.0, 0

    async def ticks() -> None:
        nonlocal slowest
        while True:
            began = loop.time()
            await asyncio.sleep(0.005)
            slowest = max(slowest, loop.time() - began - 0.005)

    ticking = asyncio.ensure_future(ticks())
    reader, writer = await asyncio.open_connection("127.0.0.1", run.port)
    writer.write(spelled(_BODY, case=1))
    try:
        async with asyncio.timeout(1.5):
            while size < most and (chunk := await reader.read(1 << 16)):
                size += len(chunk)
    except TimeoutError:
        pass
    writer.close()
    ticking.cancel()
    return size, slowest


async def test_a_reply_cannot_write_our_headers_or_end_its_head(valkey: Server) -> None:
    """What an upstream puts into a header stays in that header, whatever bytes it is."""
    lines = (
        b"Location: /a%0d%0aSet-Cookie:%20x\r\nX-High: \xff\xe9\r\nX-Fold: a\tb\r\nx-carryon-action: overflow-retry\r\n"
    )

    async def script(peer: Peer) -> None:
        while True:
            await peer.message()
            await peer.send(reply(b"{}", headers=lines))

    async with raw_upstream(script) as upstream, between(f"{upstream.url}/v1", valkey, window=100_000) as run:
        got: Seen = await answered(run.port, spelled(_BODY))
        assert got.values(b"location") == [b"/a%0d%0aSet-Cookie:%20x"]
        assert got.values(b"x-high") == [b"\xff\xe9"]
        assert got.values(b"set-cookie") == []
        await until(lambda: len(upstream.requests) == 1)
