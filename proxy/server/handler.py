"""The one path of a request through the door: refuse, take in, exchange, put out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy import events, routes
from proxy.errors import Answer
from proxy.message import Incoming, Outgoing, pairs
from proxy.server.connection import INTERNAL, Connection, turned_away
from proxy.server.intake import Budget, Lease, TurnedAwayError, take, wants_upgrade
from proxy.server.outlet import Sent, respond

if TYPE_CHECKING:
    from aiohttp import web

    from proxy.server import ServerBounds

__all__ = ["Exchange", "Handler"]

_LOG = logging.getLogger(__name__)

#: What turns a request into a reply. It may raise; what it opened it must close then itself.
Exchange = Callable[[Incoming], Awaitable[Outgoing]]

NO_UPGRADE = Answer(status=426, code="PROXY_NO_WEBSOCKET", message="WebSockets are not spoken here; use HTTP.")
NOWHERE = Answer(status=404, code="PROXY_NOT_FOUND", message="There is no such path here.")
BAD_TARGET = Answer(
    status=400,
    code="PROXY_BAD_REQUEST",
    message="Only paths are understood as request targets: Carryon sends to its configured upstreams only.",
)
#: The status that the log gives a request whose client left before it was here whole.
CLIENT_GONE = 499


@dataclass(slots=True)
class _Visit:
    """What is known of a request while it is here. Once the exchange has it, its line in the log is the exchange's."""

    lease: Lease
    dialect: str | None = None
    handed_over: bool = False


class Handler:
    """Handles every request of a listener.

    A `TurnedAwayError` that the exchange lets through (an upload broke off) is answered like one of the door.
    `on_fault` is called for each unexpected failure of our own; `nowhere` answers a path that cannot be.
    """

    def __init__(
        self,
        exchange: Exchange,
        bounds: ServerBounds,
        on_fault: Callable[[], None] = lambda: None,
        *,
        nowhere: Answer = NOWHERE,
    ) -> None:
        self._exchange = exchange
        self._bounds = bounds
        self._on_fault = on_fault
        self._nowhere = nowhere
        self.budget = Budget(bounds.max_inflight_bytes)
        #: Set while draining: every reply ends its connection.
        self.closing = False
        #: Requests being handled now.
        self.active = 0

    async def __call__(self, request: web.BaseRequest) -> Sent:
        """Answer one request; raises nothing but cancellation."""
        if isinstance(request.protocol, Connection):
            request.protocol.begun()
        visit = _Visit(lease=self.budget.lease())
        self.active += 1
        try:
            return await self._visit(request, visit)
        finally:
            self.active -= 1
            visit.lease.release()

    async def _visit(self, request: web.BaseRequest, visit: _Visit) -> Sent:
        turned = False
        try:
            outgoing = await self._outgoing(request, visit)
        except TurnedAwayError as away:
            turned, outgoing = True, turned_away(away.answer, visit.dialect)
        except Exception as error:  # noqa: BLE001 - rule 3.5: no input and no fault of ours makes a 500
            self._on_fault()
            _LOG.error("the exchange failed: %s", events.place(error))  # its text may hold content
            outgoing = turned_away(INTERNAL, visit.dialect)
        except asyncio.CancelledError:
            if not visit.handed_over:
                events.unserved(CLIENT_GONE)
            raise
        try:
            keep = await respond(request, outgoing, close=turned or self.closing, stall=self._bounds.stall)
        finally:
            await outgoing.aclose()
        return Sent(keep_alive=keep and not self.closing)

    async def _outgoing(self, request: web.BaseRequest, visit: _Visit) -> Outgoing:
        if wants_upgrade(pairs(request.raw_headers)):
            raise TurnedAwayError(NO_UPGRADE)
        if request.method == "CONNECT" or not request.raw_path.startswith("/"):
            raise TurnedAwayError(BAD_TARGET)
        try:
            visit.dialect = routes.address(request.method, request.raw_path).dialect
        except routes.NoRouteError:
            raise TurnedAwayError(self._nowhere) from None
        incoming = await take(request, self._bounds, visit.lease, whole=visit.dialect is not None)
        visit.handed_over = True
        return await self._exchange(incoming)
