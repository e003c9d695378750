"""One call on the wire: aiohttp's client tamed to send what it is given and to return what came."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import http_exceptions
from multidict import CIMultiDict
from yarl import URL

from proxy.message import end_to_end, pairs
from proxy.upstream import Bounds, Call, ErrorKind, Peer, UpstreamError

if TYPE_CHECKING:
    from proxy.message import Body, Headers

__all__ = ["Wire", "put", "translate"]

#: What aiohttp would add to a request that lacks it.
SKIP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
#: Larger bodies are written in pieces of this size, so that one request does not block the loop.
PIECE = 1 << 18
LINE = 1 << 16
MAX_HEADERS = 512
SWITCHING = 101
#: An empty body of these says nothing of its length.
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})


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
        self.headers: Headers = end_to_end(pairs(response.raw_headers))
        if response.status == SWITCHING:
            response.close()
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
    """Send a call once and read the head of its reply."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=bounds.connect)
    patience = bounds.connect + bounds.first_byte
    try:
        async with asyncio.timeout(patience) as timer:
            response = await session.request(
                call.method,
                URL(call.url, encoded=True),
                headers=_headers(call),
                data=_data(call.body, timer, patience),
                skip_auto_headers=SKIP,
                allow_redirects=False,
                proxy=peer.proxy,
                ssl=tls if tls is not None else True,
                timeout=timeout,
            )
    except Exception as error:
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
    out as it was spelled first. Bytes that are no UTF-8 cannot be written by it: they go out as the
    same characters, read as Latin-1.
    """
    spelled: dict[str, str] = {}
    result: CIMultiDict[str] = CIMultiDict()
    for name, value in end_to_end(call.headers):
        low = name.lower()
        if low in {"expect", "host"} or (low == "content-length" and isinstance(call.body, bytes)):
            continue
        result.add(spelled.setdefault(low, name), _writable(value))
    if isinstance(call.body, bytes) and (call.body or call.method not in BODILESS):
        result["Content-Length"] = str(len(call.body))
    return result


def _writable(value: str) -> str:
    if value.isascii() or not any("\udc80" <= char <= "\udcff" for char in value):
        return value
    return value.encode("utf-8", "surrogateescape").decode("latin-1")


def _data(body: Body, timer: asyncio.Timeout, patience: float) -> bytes | AsyncIterator[bytes] | None:
    if isinstance(body, bytes):
        if len(body) > PIECE:
            return _pieces(body)
        return body or None
    return _counted(body, timer, patience)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), PIECE):
        yield body[at : at + PIECE]


async def _counted(body: AsyncIterator[bytes], timer: asyncio.Timeout, patience: float) -> AsyncIterator[bytes]:
    """Stream a body; the wait for the first byte begins anew with each piece of it."""
    loop = asyncio.get_running_loop()
    async for piece in body:
        yield piece
        if not timer.expired():
            timer.reschedule(loop.time() + patience)
