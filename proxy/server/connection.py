"""The protocol below the requests: what aiohttp lacks in time-outs, limits and discretion.

aiohttp waits for ever for the head of a request, and puts malformed heads (credentials included)
into its log and its answer. `Connection` closes slow ones and answers with fixed text.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from aiohttp import http_exceptions, web
from aiohttp.http_parser import HttpRequestParser
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from proxy import events
from proxy.errors import Answer
from proxy.message import own
from proxy.server.outlet import Sent

if TYPE_CHECKING:
    from proxy.message import Outgoing
    from proxy.server import ServerBounds

__all__ = ["INTERNAL", "Connection", "Listener", "NoParserError", "turned_away"]

_LOG = logging.getLogger(__name__)
#: aiohttp's own words hold what clients sent: nobody reads them.
silent = logging.getLogger(f"{__name__}.aiohttp")
silent.addHandler(logging.NullHandler())
silent.propagate = False

MALFORMED = Answer(status=400, code="PROXY_BAD_REQUEST", message="This is not a well-formed HTTP request.")
HEAD_TOO_LARGE = Answer(
    status=431, code="PROXY_HEADERS_TOO_LARGE", message="The request line, a header or their number is too large."
)
HEAD_TOO_SLOW = Answer(status=408, code="PROXY_HEADER_TIMEOUT", message="The head of the request did not come in time.")
FULL = Answer(
    status=503,
    code="PROXY_OVERLOADED",
    message="Too many connections (listen.max_connections). Try again.",
    headers=(("Retry-After", "1"),),
)
INTERNAL = Answer(status=502, code="PROXY_INTERNAL", message="Carryon failed on this request; its log says where.")
BAD_REQUEST = 400


def turned_away(answer: Answer, dialect: str | None = None) -> Outgoing:
    """Make an answer of our own to a request that goes nowhere, and log that request's line."""
    events.unserved(answer.status, answer.code)
    return own(answer, dialect)


class NoParserError(Exception):
    """aiohttp runs without its C parser: the one in Python is slower and laxer. Install a wheel of aiohttp."""


class Listener(web.Server):
    """Makes a `Connection` for each client. Must be made inside a running loop."""

    def __init__(self, handler: Any, bounds: ServerBounds) -> None:
        if HttpRequestParser.__module__ != "aiohttp._http_parser":
            raise NoParserError
        super().__init__(handler, handler_cancellation=True)
        self.bounds = bounds

    def __call__(self) -> RequestHandler:
        """Make the protocol of one connection."""
        return Connection(self, self.bounds)

    def hang_up(self, grace: float) -> None:
        """Close connections that wait for a request; fresh ones only after `grace` seconds."""
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.waits(grace):
                connection.force_close()

    @property
    def busy(self) -> bool:
        """Whether any connection has a request or a part of one."""
        return any(isinstance(connection, Connection) and connection.busy for connection in self.connections)


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ("_began", "_bounds", "_listener", "_partial", "_slow", "_turned")

    def __init__(self, listener: Listener, bounds: ServerBounds) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            listener,
            loop=loop,
            keepalive_timeout=bounds.keep_alive,
            logger=silent,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for "no access log"
            max_line_size=bounds.max_line,
            max_field_size=bounds.max_field,
            max_headers=bounds.max_headers,
            lingering_time=bounds.linger,
            auto_decompress=False,
        )
        self._listener = listener
        self._bounds = bounds
        self._began = loop.time()
        self._slow: asyncio.TimerHandle | None = None
        self._partial = False
        self._turned = False

    @property
    def busy(self) -> bool:
        """Whether a request, or a part of one, is here.

        Between taking a request and handling it aiohttp has it nowhere: but then it waits for none either.
        """
        return self._partial or self._handling or self._waiter is None or self._waiter.done()

    def waits(self, grace: float) -> bool:
        """Whether the connection waits for a request: a further one, or its first for `grace` seconds."""
        return not self.busy and (self._request_count > 0 or self._loop.time() - self._began >= grace)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections."""
        if len(self._listener.connections) >= self._bounds.max_connections:
            self._turned = True
            # uvloop's transports are none of asyncio's classes.
            cast("asyncio.Transport", transport).write(_spelled(turned_away(FULL)))
            transport.close()
            return
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self.begun()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and watch how long a head takes."""
        if self._turned:
            return
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self.begun()
            self._break_body()
        elif data and not self._handling:
            self._partial = True
            self._await_head()

    def begun(self) -> None:
        """Note that a request is here whole (its head), or that nothing more will come."""
        self._partial = False
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp could not parse, or what our handler let through, with fixed text."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun")
        if status != BAD_REQUEST:
            _LOG.error("a request failed outside its handler: %s", type(exc).__qualname__)
            return Sent(keep_alive=False, outgoing=turned_away(INTERNAL))
        _LOG.debug("malformed request: %s", type(exc).__qualname__)
        too_large = isinstance(exc, http_exceptions.LineTooLong) or "Too many headers" in str(exc)
        return Sent(keep_alive=False, outgoing=turned_away(HEAD_TOO_LARGE if too_large else MALFORMED))

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Say that aiohttp failed, not on what."""
        del args  # they hold what the client sent
        error = kw.get("exc_info")
        _LOG.error("the connection failed: %s", type(error).__qualname__ if error else "unknown")

    @property
    def _handling(self) -> bool:
        return self._current_request is not None or bool(self._messages)

    def _break_body(self) -> None:
        """Tell the request at hand that its body is broken: aiohttp only queues the parser's error behind it."""
        current = self._current_request
        if current is not None and not current.content.is_eof() and isinstance(self._messages[-1][0], _ErrInfo):
            current.content.set_exception(web.RequestPayloadError())

    def _await_head(self) -> None:
        if self._slow is None:
            self._slow = self._loop.call_later(self._bounds.header, self._too_slow)

    def _too_slow(self) -> None:
        self._slow = None
        if self._handling or self.transport is None:
            return
        if self._partial:
            self.transport.write(_spelled(turned_away(HEAD_TOO_SLOW)))
        self.force_close()


def _spelled(outgoing: Outgoing) -> bytes:
    """Spell an answer for which there is no request."""
    body = outgoing.body if isinstance(outgoing.body, bytes) else b""
    lines = [f"HTTP/1.1 {outgoing.status} ", *(f"{name}: {value}" for name, value in outgoing.headers)]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body
