"""A connection that brings one reply to one request, and whatever an upstream sends beside it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage

if TYPE_CHECKING:
    from aiohttp.http import RawResponseMessage
    from aiohttp.streams import StreamReader

__all__ = ["INFORMATIONAL", "SWITCHING", "Protocol"]

#: Informational replies that are read before the reply: more are no sign of life, they only keep us busy.
INFORMATIONAL = 4_096
SWITCHING, FINAL = 101, 200
#: Where a head may end: the blank line may lie in two segments.
_BLANK_LINE = re.compile(rb"(?:\A|(?<=\n))\r?\n")
_Head = tuple["RawResponseMessage", "StreamReader"]


class Protocol(ResponseHandler):
    """aiohttp's end of a connection: it reads one reply to a request, and ends where something else came.

    aiohttp takes a whole segment for an error where its end is one, also if the reply is complete; and it looks for
    what nobody asked for when a connection goes back to its pool, not when it leaves it: what came between would
    answer the next request, whoever's that is.
    """

    def is_connected(self) -> bool:
        """Whether a connection can carry a request: it is open, and nothing waits to be read."""
        return super().is_connected() and not self.should_close

    def set_response_params(self, **params: Any) -> None:
        """Begin to read the reply to the next request."""
        super().set_response_params(**params)
        self._parser = _OneReply(self._parser, self)  # type: ignore[assignment]

    def surplus(self) -> None:
        """Be closed, and carry nothing more: the reply is complete, and more came."""
        self.force_close()
        if self.transport is not None:
            self.transport.close()


class _OneReply:
    """aiohttp's parser, fed so that what it knows of a reply is kept when what follows is none.

    A head is fed to its end first: the parser forgets all it found in a piece in which something is wrong.
    """

    def __init__(self, parser: Any, protocol: Protocol) -> None:
        self._parser, self._protocol = parser, protocol
        self._payload: StreamReader | None = None
        self._left: int | None = None  # of a body whose length is announced
        self._informational = 0
        self._surplus = False
        self.pause_reading = parser.pause_reading
        self.feed_eof = parser.feed_eof

    def feed_data(self, data: bytes) -> tuple[list[_Head], bool, bytes]:
        """Parse the next bytes. Raises for what is no reply, never for what comes behind one."""
        found: list[_Head] = []
        at = 0
        while self._payload is None and at < len(data):
            blank = _BLANK_LINE.search(data, at)
            stop = blank.end() if blank else len(data)
            heads, upgraded, tail = self._parser.feed_data(data[at:stop])
            at = stop
            for head in heads:
                self._head(*head)
                found.append(head)
            if upgraded:
                return found, True, tail + data[at:]
        if self._payload is not None and (at < len(data) or not data):
            self._body(self._payload, data[at:])
        return found, False, b""

    def _head(self, message: RawResponseMessage, payload: StreamReader) -> None:
        if message.code >= FINAL or message.code == SWITCHING:
            length = None if message.chunked else message.headers.get("Content-Length")
            self._payload, self._left = payload, None if length is None else int(length)
            return
        self._informational += 1
        if self._informational > INFORMATIONAL:
            raise BadHttpMessage("too many informational replies")

    def _body(self, payload: StreamReader, data: bytes) -> None:
        """Feed what belongs to the body, and nothing else."""
        if payload.is_eof():
            own = b""
        else:
            own = data if self._left is None else data[: self._left]
            self._own(payload, own)
        self._surplus = self._surplus or len(own) < len(data)
        if self._surplus and payload.is_eof():
            self._protocol.surplus()

    def _own(self, payload: StreamReader, data: bytes) -> None:
        try:
            others, _, _ = self._parser.feed_data(data)
        except Exception:
            if not payload.is_eof():
                raise
            self._surplus = True
            return
        if self._left is not None:
            self._left -= len(data)
        elif payload.is_eof():  # chunks, that end with their line: behind them another reply may have begun
            self._surplus = bool(others) or not data.endswith((b"\r", b"\n"))
