"""One call on the wire: aiohttp's client tamed to send what it is given and to return what came."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import client_reqrep, http_exceptions
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict
from yarl import URL

from proxy.message import end_to_end, inbound, pairs, wire
from proxy.upstream import Bounds, Call, ErrorKind, Peer, UpstreamError
from proxy.upstream.one_reply import SWITCHING

if TYPE_CHECKING:
    from proxy.message import Body, Headers

__all__ = ["Request", "Wire", "connected", "put", "translate"]

#: What aiohttp would add to a request that lacks it.
SKIP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
#: Larger bodies are written in pieces of this size, so that one request does not block the loop.
PIECE = 1 << 18
LINE = 1 << 16
MAX_HEADERS = 512
#: An empty body of these says nothing of its length.
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
#: What no head may hold: it would end a line or the head, or is no text.
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class _Writer(StreamWriter):
    """Writes the bytes of a header as they came; aiohttp's own leaves out what is no UTF-8."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """Spell a head. Raises `ValueError` for one that would be another on the wire."""
        lines = (status_line, *(f"{name}: {value}" for name, value in headers.items()))
        if any(map(CONTROL.search, lines)):
            raise ValueError("a control character in a head")
        if self._on_headers_sent is not None:
            await self._on_headers_sent(headers)
        self._headers_written = False
        self._headers_buf = wire("\r\n".join((*lines, "", "")))


class Request(aiohttp.ClientRequest):
    """aiohttp's request, written by our writer. It has no seam for one: its `send` runs with another name for it."""

    send = FunctionType(aiohttp.ClientRequest.send.__code__, {**vars(client_reqrep), "StreamWriter": _Writer})


class Wire:
    """A reply's head, read, and its body, still to be read.

    `receive` gives raw chunks as they come, `b""` at the end. `close` drops the connection unless
    the body was read to its end.
    """

    def __init__(self, response: aiohttp.ClientResponse, bounds: Bounds) -> None:
        self._response = response
        self._content = response.content
        self.status = response.status
        self.reason = response.reason or ""
        self.headers: Headers = inbound(pairs(response.raw_headers))
        if response.status == SWITCHING:
            _drop(response)
            raise UpstreamError("malformed", "the upstream switched protocols unasked")
        _watch(response, bounds.stream_idle)

    async def receive(self) -> bytes:
        """Return the next bytes, `b""` at the end. Raises `UpstreamError`: `stream_idle` or `dropped`."""
        try:
            return await self._content.readany()
        except aiohttp.SocketTimeoutError as error:
            raise UpstreamError("stream_idle", "the upstream fell silent in the middle of its reply") from error
        except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
            raise UpstreamError("dropped", "the upstream broke off its reply") from error

    async def rest(self) -> AsyncIterator[bytes]:
        """Give all further chunks."""
        while chunk := await self.receive():
            yield chunk

    async def close(self) -> None:
        """Drop the connection, or give it back where the body is at its end."""
        self._response.close()


def _drop(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a reply without a body: aiohttp has given it back for others already."""
    protocol = response._protocol  # noqa: SLF001 - its `connection` is None by now
    response.close()
    if protocol is not None:
        protocol.close()


def _watch(response: aiohttp.ClientResponse, idle: float) -> None:
    """Fail the body when nothing comes for `idle` seconds, or when its connection goes.

    The latter because after a malformed chunk aiohttp closes the connection and tells no reader.
    """
    connection = response.connection
    if connection is None or connection.protocol is None:
        return
    connection.protocol.read_timeout = idle
    connection.protocol.start_timeout()
    closed = connection.protocol.closed
    content = response.content

    def lost(future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            future.exception()
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError())

    if closed is not None:
        closed.add_done_callback(lost)


async def put(
    session: aiohttp.ClientSession, call: Call, peer: Peer, bounds: Bounds, tls: ssl.SSLContext | None
) -> Wire:
    """Send a call once and read the head of its reply.

    Raises `UpstreamError`, and whatever a streamed body raised: that is not the upstream's failure.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=bounds.connect)
    broken: list[Exception] = []
    try:
        async with asyncio.timeout(bounds.connect + bounds.first_byte) as timer:
            wait = _Wait(timer, bounds.first_byte)
            response = await session.request(
                call.method,
                URL(call.url, encoded=True),
                headers=_headers(call),
                data=_data(call.body, wait, broken),
                trace_request_ctx=wait,
                skip_auto_headers=SKIP,
                allow_redirects=False,
                proxy=peer.proxy,
                ssl=tls if tls is not None else True,
                timeout=timeout,
            )
    except Exception as error:
        if broken:  # aiohttp calls it a failure of the connection
            raise broken[0] from None
        translated = translate(error, call.upstream)
        if translated is None:
            raise
        raise translated from error
    return Wire(response, bounds)


#: How aiohttp's failures before the head of a reply are named; the first row that fits decides. `{}` is the upstream,
#: by its configured name: a client is not told where it stands.
FAILURES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], ErrorKind, str], ...] = (
    (aiohttp.ConnectionTimeoutError, "connect_timeout", "no connection to {} in time"),
    (TimeoutError, "first_byte", "no answer from {} in time"),
    ((aiohttp.ClientSSLError, ssl.SSLError), "tls", "no secure connection to {}"),
    (aiohttp.ClientProxyConnectionError, "connect", "no connection to the proxy before {}: is it running?"),
    (aiohttp.ClientConnectorDNSError, "connect", "the host name of {} is not known: is its base_url right?"),
    (aiohttp.ClientConnectorError, "connect", "no connection to {}: is it running?"),
    (aiohttp.ClientHttpProxyError, "connect", "the proxy before {} refused"),
    (
        (aiohttp.ClientResponseError, http_exceptions.HttpProcessingError),
        "malformed",
        "the answer from {} is not HTTP",
    ),
    ((aiohttp.InvalidURL, ValueError), "invalid", "this request cannot be put on the wire"),
    ((aiohttp.ClientError, OSError), "dropped", "the connection to {} closed without an answer"),
)


def translate(error: BaseException, upstream: str) -> UpstreamError | None:
    """Name a failure of aiohttp before the head of the reply was read; None for what is not the upstream's."""
    for types, kind, message in FAILURES:
        if isinstance(error, types):
            return UpstreamError(kind, message.format(f"the upstream '{upstream}'"))
    return None


def _headers(call: Call) -> CIMultiDict[str]:
    """End-to-end headers as aiohttp must have them.

    aiohttp takes names that differ in case for a replacement, not a repeat: a repeated name goes
    out as it was spelled first.
    """
    spelled: dict[str, str] = {}
    result: CIMultiDict[str] = CIMultiDict()
    for name, value in end_to_end(call.headers):
        low = name.lower()
        if low in {"expect", "host"} or (low == "content-length" and isinstance(call.body, bytes)):
            continue
        result.add(spelled.setdefault(low, name), value)
    if isinstance(call.body, bytes) and (call.body or call.method not in BODILESS):
        result["Content-Length"] = str(len(call.body))
    return result


def connected() -> aiohttp.TraceConfig:
    """Begin the wait for the first byte when a call has its connection: `timeouts.first_byte` is not to hold both."""

    async def begin(_session: object, context: SimpleNamespace, _told: object) -> None:
        context.trace_request_ctx.anew()

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(begin)
    trace.on_connection_reuseconn.append(begin)
    return trace


class _Wait:
    """The wait for the head of a reply: anew with each step forward, at rest while the client is waited for."""

    def __init__(self, timer: asyncio.Timeout, seconds: float) -> None:
        self._timer, self._seconds = timer, seconds

    def anew(self) -> None:
        """Begin."""
        self._until(asyncio.get_running_loop().time() + self._seconds)

    def rest(self) -> None:
        """Stand still."""
        self._until(None)

    def _until(self, when: float | None) -> None:
        with suppress(RuntimeError):  # time is up, or the head is here already and the upload goes on beside the reply
            self._timer.reschedule(when)


def _data(body: Body, wait: _Wait, broken: list[Exception]) -> bytes | AsyncIterator[bytes] | None:
    if isinstance(body, bytes):
        if len(body) > PIECE:
            return _pieces(body, wait)
        return body or None
    return _counted(body, wait, broken)


async def _pieces(body: bytes, wait: _Wait) -> AsyncIterator[bytes]:
    for at in range(0, len(body), PIECE):
        yield body[at : at + PIECE]
        wait.anew()


async def _counted(body: AsyncIterator[bytes], wait: _Wait, broken: list[Exception]) -> AsyncIterator[bytes]:
    """Stream a body; while its client is slow the upstream is not to blame. Its own failure is noted."""
    try:
        wait.rest()
        async for piece in body:
            wait.anew()
            yield piece
            wait.rest()
        wait.anew()
    except Exception as error:
        broken.append(error)
        raise
