"""Connections before there is a request: slow, malformed, smuggling, too many."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import pytest

from proxy.server import connection
from proxy.server.connection import Listener, NoParserError
from tests.sockets import client, exchange

if TYPE_CHECKING:
    from tests.server.conftest import Serving

SECRET = b"sk-very-secret-0123456789"

#: Each is one connection's bytes. None may make a 500, reach the exchange more often than there are
#: well-formed requests in it, or come back in the answer or the log.
MALFORMED: dict[str, bytes] = {
    "not http": b"\x16\x03\x01\x02\x00\x01\x00" + SECRET + b"\r\n\r\n",
    "garbage": b"garbage " + SECRET + b"\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\nAuthorization: " + SECRET + b"\r\n\r\n",
    "two hosts": b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: " + SECRET + b"\r\n\r\n",
    "space before colon": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization : " + SECRET + b"\r\n\r\n",
    "folded header": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization: a\r\n " + SECRET + b"\r\n\r\n",
    "no colon": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization " + SECRET + b"\r\n\r\n",
    "nul in value": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization: \0" + SECRET + b"\r\n\r\n",
    "control in name": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nAuth\x01: " + SECRET + b"\r\n\r\n",
    "bare cr": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nA: b\rAuthorization: " + SECRET + b"\r\n\r\n",
    "bad version": b"GET /v1/models HTTP/9.9\r\nHost: h\r\nAuthorization: " + SECRET + b"\r\n\r\n",
    "bad method": b"G@T /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization: " + SECRET + b"\r\n\r\n",
    "space in target": b"GET /v1/mod els HTTP/1.1\r\nHost: h\r\nAuthorization: " + SECRET + b"\r\n\r\n",
    "length not a number": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\nA: "
    + SECRET
    + b"\r\n\r\nx",
    "length negative": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\nA: " + SECRET + b"\r\n\r\n",
    "length signed": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\nA: " + SECRET + b"\r\n\r\nx",
    "two lengths": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n" + SECRET,
    "equal lengths": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"
    + SECRET,
    "length list": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n" + SECRET,
    "length huge": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n" + SECRET,
    "length and chunks": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    b"\r\n0\r\n\r\nGET /v1/" + SECRET + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "chunks and length": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n"
    b"\r\n0\r\n\r\nGET /v1/" + SECRET + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "chunks twice": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECRET,
    "unknown transfer coding": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    + SECRET,
    "chunked not last": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"
    + SECRET,
    **{
        f"{coding} under chunked": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
        + coding.encode()
        + b"\r\n\r\n"
        + b"%x\r\n%s\r\n0\r\n\r\n" % (len(SECRET), SECRET)
        for coding in (
            "gzip, chunked",
            "foo,chunked",
            "identity, chunked",
            "chunked, chunked",
            "gzip;q=1, chunked",
            "gzip\r\nTransfer-Encoding: chunked",
        )
    },
    "hidden chunked": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"
    + SECRET,
    "chunk size overflow": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"fffffffffffffffff\r\n" + SECRET,
    "chunk size negative": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
    + SECRET,
    "chunk with bare lf": b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n"
    + SECRET,
    "long line": b"GET /v1/" + SECRET * 4000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "long header": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nA: " + SECRET * 4000 + b"\r\n\r\n",
    "many headers": b"GET /v1/models HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 2000 + b"B: " + SECRET + b"\r\n\r\n",
    "absolute form": b"GET http://127.0.0.1:1/" + SECRET + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "absolute form, other scheme": b"GET gopher://127.0.0.1:1/" + SECRET + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "authority form": b"GET 127.0.0.1:1 HTTP/1.1\r\nHost: h\r\nA: " + SECRET + b"\r\n\r\n",
    "connect": b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: h\r\nA: " + SECRET + b"\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: h\r\nA: " + SECRET + b"\r\n\r\n",
    "climbing": b"GET /v1/../" + SECRET + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "climbing, encoded": b"GET /v1/%2e%2E/" + SECRET + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "old websocket": b"GET /v1/models HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key1: " + SECRET + b"\r\n\r\n",
    "http2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SECRET,
}
TOO_LARGE = {"long line", "long header", "many headers"}
NO_SUCH_PATH = {"climbing", "climbing, encoded"}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_requests_get_one_fixed_answer(
    serving: Serving, name: str, *, apart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Never 500, nothing reaches the exchange, and no word of the request comes back or is logged.

    Whether head and body come in one piece or apart makes no difference.
    """
    caplog.set_level(logging.DEBUG)
    head, blank, body = MALFORMED[name].partition(b"\r\n\r\n")
    pieces = (head + blank, body) if apart else (head + blank + body,)
    async with serving(body_idle=5, header=5) as served, client(served.port) as peer:
        await peer.send(*pieces, pause=0.02 if apart else 0)
        raw = await peer.rest()
    expected = 431 if name in TOO_LARGE else 404 if name in NO_SUCH_PATH else 400
    assert [int(part[2:5]) for part in raw.split(b"HTTP/1.")[1:]] == [expected]
    assert served.seen == []
    assert served.faults == []
    assert SECRET not in raw
    assert SECRET.decode() not in caplog.text


@pytest.mark.parametrize(
    "name", ["two lengths", "equal lengths", "length and chunks", "chunks and length", "hidden chunked"]
)
async def test_smuggling_never_reaches_the_exchange(serving: Serving, name: str) -> None:
    """Ambiguous framing is refused, and the connection with it."""
    async with serving() as served:
        raw = await exchange(served.port, MALFORMED[name])
    assert raw.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    assert raw.count(b"HTTP/1.") == 1
    assert served.seen == []


async def test_pipelined_requests_are_answered_one_by_one_in_order(serving: Serving) -> None:
    """Three in, three out; garbage behind them gets one 400."""
    post = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n"
    async with serving() as served, client(served.port) as peer:
        await peer.send(post + b"a" + post + b"b" + post + b"c", b"garbage\r\n\r\n", pause=0.1)
        raw = await peer.rest()
    bodies = [part[-1:] for part in raw.split(b"HTTP/1.")[1:4]]
    assert bodies == [b"a", b"b", b"c"]
    assert raw.count(b" 400 ") == 1
    assert len(served.seen) == 3


@pytest.mark.parametrize("sent", [b"", b"GET /v1/models HTTP/1.1\r\nHo", b"\r\n"])
async def test_a_head_that_does_not_come_closes_the_connection(serving: Serving, sent: bytes) -> None:
    """A partial head gets 408, an idle socket just ends."""
    async with serving(header=0.2) as served, client(served.port) as peer:
        began = time.monotonic()
        await peer.send(sent)
        raw = await peer.rest()
        assert time.monotonic() - began < 2
    assert raw == b"" if not sent else b" 408 " in raw


async def test_a_trickled_head_is_not_waited_for(serving: Serving) -> None:
    """The time runs for the whole head, not for each byte: no slow loris."""
    async with serving(header=0.4) as served, client(served.port) as peer:
        began = time.monotonic()
        trickle = asyncio.ensure_future(peer.send(*[b"G"] * 50, pause=0.1))
        raw = await peer.rest()
        trickle.cancel()
        assert time.monotonic() - began < 2
    assert b" 408 " in raw or raw == b"" or b" 400 " in raw


async def test_a_second_request_has_its_own_time(serving: Serving) -> None:
    """A kept connection outlives the header time-out; a partial second head does not."""
    get = b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
    async with serving(header=0.3) as served, client(served.port) as peer:
        for _ in range(3):
            await peer.send(get)
            assert (await peer.message()).status == 200
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.3)
        await peer.send(get)
        assert (await peer.message()).status == 200
        await peer.send(b"GET /")
        assert b" 408 " in await peer.rest()


async def test_a_kept_connection_ends_when_nothing_comes(serving: Serving) -> None:
    """Idle connections are not kept for ever."""
    async with serving(keep_alive=0.3) as served, client(served.port) as peer:
        await peer.send(b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
        await peer.message()
        assert await peer.gone(within=3) < 3


async def test_a_long_exchange_is_not_taken_for_a_slow_head(serving: Serving) -> None:
    """The head's time ends with the head."""

    async def slow(incoming):  # noqa: ANN001, ANN202 - as a scripted handler
        from proxy.message import Outgoing

        assert incoming.body == b"x"
        await asyncio.sleep(0.6)
        return Outgoing(status=200, headers=(), body=b"late")

    async with serving(slow, header=0.2) as served, client(served.port) as peer:
        await peer.send(b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n", b"x", pause=0.05)
        assert (await peer.message()).body == b"late"


async def test_too_many_connections_are_turned_away(serving: Serving) -> None:
    """The one beyond the limit gets 503 and the others go on."""
    async with serving(max_connections=2) as served, client(served.port) as one, client(served.port) as two:
        get = b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
        for peer in (one, two):
            await peer.send(get)
            assert (await peer.message()).status == 200
        async with client(served.port) as three:
            raw = await three.rest()
        assert b" 503 " in raw
        assert b"Retry-After: 1" in raw
        await one.send(get)
        assert (await one.message()).status == 200


async def test_without_the_c_parser_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aiohttp's parser in Python is laxer."""
    from aiohttp.http_parser import HttpRequestParserPy

    from proxy.server import ServerBounds

    monkeypatch.setattr(connection, "HttpRequestParser", HttpRequestParserPy)
    with pytest.raises(NoParserError):
        Listener(None, ServerBounds())
