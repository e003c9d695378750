"""Put an `Outgoing` on the wire: our framing, the upstream's bytes, back-pressure in between."""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from aiohttp import web

from proxy import events
from proxy.message import Outgoing, end_to_end, values, wire
from proxy.upstream import UpstreamError

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_writer import StreamWriter

__all__ = ["Sent", "respond"]

#: Statuses without a body (RFC 9110, 6.4.1); those in `NO_LENGTH` say nothing of its length either.
BODILESS = frozenset({204, 304})
NO_LENGTH = frozenset({204})
HTTP_10 = (1, 0)
_LOG = logging.getLogger(__name__)
#: What no header line may hold: it would end the line or the head.
BREAKS = re.compile(rb"[\r\n\0]")


class CutError(Exception):
    """The body was not what its head promised, or broke off: the client must see the connection end."""


#: How a reply ends early without a fault of ours: the upstream broke off, the client left or did not read on.
_FROM_OUTSIDE = (UpstreamError, CutError, OSError, TimeoutError)


class Sent(web.StreamResponse):
    """Tells aiohttp that the reply is on the wire already, or (with `outgoing`) is to be put there."""

    def __init__(self, *, keep_alive: bool, outgoing: Outgoing | None = None) -> None:
        super().__init__()
        self._kept = keep_alive
        self._outgoing = outgoing

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection may carry another request."""
        return self._kept

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write what was not written yet."""
        if self._outgoing is not None:
            await respond(request, self._outgoing, close=True, stall=1.0)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `respond` has ended the message."""


async def respond(request: web.BaseRequest, outgoing: Outgoing, *, close: bool, stall: float) -> bool:
    """Write a reply; return whether the connection can carry another request.

    Never raises but for cancellation. A body that breaks off, or that is not as long as its head
    says, closes the connection without the end of the message.
    """
    empty = request.method == "HEAD" or outgoing.status in BODILESS
    length = _length(outgoing)
    old = request.version <= HTTP_10
    chunked = length is None and not empty and not old
    keep = not close and request.keep_alive and (length is not None or empty or chunked)
    try:
        await request.writer.write(_head(outgoing, length, chunked=chunked, keep=keep, old=old))
        if not empty:
            await _body(request, outgoing, length, chunked=chunked, stall=stall)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - a started reply cannot be mended, whatever broke it: cut it
        if not isinstance(error, _FROM_OUTSIDE):
            _LOG.error("a reply broke off by a fault of our own: %s", events.place(error))  # its text may hold content
        _cut(request)
        return False
    return keep


def _length(outgoing: Outgoing) -> int | None:
    """How long the body is, None where only its end will tell."""
    if isinstance(outgoing.body, bytes) and outgoing.body:
        return len(outgoing.body)
    said = set(values(outgoing.headers, "content-length"))
    if len(said) == 1 and (text := said.pop()).isdecimal() and text.isascii():
        return int(text)
    return 0 if isinstance(outgoing.body, bytes) else None


def _head(outgoing: Outgoing, length: int | None, *, chunked: bool, keep: bool, old: bool) -> bytes:
    lines = [f"HTTP/1.{0 if old else 1} {outgoing.status} ".encode() + BREAKS.sub(b" ", wire(_reason(outgoing)))]
    said = None if outgoing.status in NO_LENGTH else length
    for name, value in end_to_end(outgoing.headers):
        if name.lower() != "content-length":
            lines.append(BREAKS.sub(b" ", wire(name)) + b": " + BREAKS.sub(b" ", wire(value)))
        elif said is not None:
            lines.append(BREAKS.sub(b" ", wire(name)) + b": %d" % said)
            said = None
    if said is not None:
        lines.append(b"Content-Length: %d" % said)
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if keep is old:
        lines.append(b"Connection: keep-alive" if keep else b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _reason(outgoing: Outgoing) -> str:
    if outgoing.reason:
        return outgoing.reason
    return HTTPStatus(outgoing.status).phrase if outgoing.status in HTTPStatus.__members__.values() else ""


async def _body(
    request: web.BaseRequest, outgoing: Outgoing, length: int | None, *, chunked: bool, stall: float
) -> None:
    writer = cast("StreamWriter", request.writer)
    if isinstance(outgoing.body, bytes):
        async with asyncio.timeout(stall):
            await writer.write_eof(outgoing.body)
        return
    if chunked:
        writer.enable_chunking()
    left = length
    async for chunk in outgoing.body:
        if not chunk:
            continue
        if left is not None:
            left -= len(chunk)
            if left < 0:
                raise CutError
        await writer.write(chunk, drain=False)
        if request.protocol.writing_paused:  # the client does not keep up: wait for it, but not for ever
            async with asyncio.timeout(stall):
                await writer.drain()
    if left:
        raise CutError
    async with asyncio.timeout(stall):
        await writer.write_eof()


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.close()
