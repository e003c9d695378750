"""Start, drain, stop: a listener's life around its requests (rules 10.5, I14)."""

from __future__ import annotations

import asyncio
import selectors
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from proxy.admin.door import Door
from proxy.admin.probes import NOWHERE, Ready
from proxy.server.connection import Listener
from proxy.server.handler import Exchange, Handler

if TYPE_CHECKING:
    from proxy.server import ServerBounds

__all__ = ["Server"]

BACKLOG = 2048
#: How often a drain looks whether the last request is done, and how long fresh connections are waited for.
POLL = 0.02
GRACE = 0.5
#: A second signal within so many seconds is the first one's echo: a terminal or a supervisor signals the whole group,
#: and whoever started us passes it on as well.
ECHO = 0.5


class Server:
    """The client listener and, beside it, the admin listener. Must be made inside a running loop.

    `admin` makes what answers on the admin listener, probes alone if not given; it is told who knows what is ready.
    `degraded` names what works only in part (for `/readyz`); `on_fault` counts failures of our own.
    """

    def __init__(
        self,
        exchange: Exchange,
        bounds: ServerBounds,
        *,
        admin: Callable[[Ready], Exchange] = Door,
        degraded: Callable[[], tuple[str, ...]] = tuple,
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        self._bounds = bounds
        self._degraded = degraded
        self._handler = Handler(exchange, bounds, on_fault)
        self._listener = Listener(self._handler, bounds)
        self._runner = web.ServerRunner(self._listener, shutdown_timeout=1.0)
        beside = Handler(admin(self.readiness), bounds, on_fault, nowhere=NOWHERE)
        self._admin = web.ServerRunner(Listener(beside, bounds), shutdown_timeout=1.0)
        self.draining = False

    @property
    def active(self) -> int:
        """Requests being handled now."""
        return self._handler.active

    @property
    def inflight_bytes(self) -> int:
        """Bytes of request bodies held now."""
        return self._handler.budget.taken

    def readiness(self) -> tuple[str, ...] | None:
        """Say what is degraded; None while draining."""
        return None if self.draining else self._degraded()

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Open the client listener and return its port. Raises `OSError`."""
        return await _open(self._runner, host, port)

    async def listen_admin(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Open the admin listener and return its port. Raises `OSError`."""
        return await _open(self._admin, host, port)

    async def drain(self) -> bool:
        """Accept no more, let every request end; False where `drain` seconds did not suffice."""
        self.draining = self._handler.closing = True
        loop = asyncio.get_running_loop()
        await self._hand_over(loop.time() + GRACE)
        for site in self._runner.sites:
            await site.stop()
        began = loop.time()
        while loop.time() - began < self._bounds.drain:
            self._listener.hang_up(GRACE)
            if not self._listener.connections:
                return True
            await asyncio.sleep(POLL)
        return not self._listener.busy

    async def _hand_over(self, until: float) -> None:
        """Wait until all are taken that the kernel has accepted: each is a request we were promised.

        Closing a listening socket resets them, and a loop may take as little as one of them in each of its rounds.
        """
        loop = asyncio.get_running_loop()
        with selectors.DefaultSelector() as waiting:
            for site in self._runner.sites:
                for sock in getattr(site, "_server").sockets:  # noqa: B009 - it is private, and nothing else has them
                    waiting.register(sock.fileno(), selectors.EVENT_READ)
            await asyncio.sleep(0)
            while waiting.select(0) and loop.time() < until:  # noqa: ASYNC110 - the kernel's queue sets no event
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Cut what is left and free the ports."""
        self.draining = self._handler.closing = True
        await self._runner.cleanup()
        await self._admin.cleanup()

    async def run(
        self,
        begin: Callable[[], Awaitable[object]] | None = None,
        *,
        signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT),
        waiting: Callable[[int, signal.Signals], None] = lambda _count, _which: None,
    ) -> bool:
        """Serve until a signal, then drain and close. A second signal cuts the drain short.

        `begin` opens the listeners: signals are caught by then, so that none costs an accepted request its answer.
        They stay caught until the loop is closed, and change nothing any more once the drain has ended.
        `waiting` is told how many requests are still open and which signal came, where there are any.
        Returns whether every request ended by itself. Raises what `begin` does, and closes what it had opened.
        """
        loop = asyncio.get_running_loop()
        now = asyncio.Event()
        stop: asyncio.Future[signal.Signals] = loop.create_future()

        asked = 0.0

        def caught(which: signal.Signals) -> None:
            nonlocal asked
            if not stop.done():
                asked = loop.time()
                stop.set_result(which)
            elif loop.time() - asked > ECHO:
                now.set()

        for which in signals:
            loop.add_signal_handler(which, caught, which)
        try:
            if begin is not None:
                await begin()
            which = await stop
            if self.active:
                with suppress(OSError):  # a terminal that is gone must not cost the requests their end
                    waiting(self.active, which)
            return await self._drain_or(now)
        finally:
            await self.close()

    async def _drain_or(self, now: asyncio.Event) -> bool:
        draining = asyncio.ensure_future(self.drain())
        cut = asyncio.ensure_future(now.wait())
        try:
            await asyncio.wait({draining, cut}, return_when=asyncio.FIRST_COMPLETED)
            return draining.done() and draining.result()
        finally:
            cut.cancel()
            draining.cancel()


async def _open(runner: web.ServerRunner, host: str, port: int) -> int:
    if runner.server is None:
        await runner.setup()
    await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
    return int(runner.addresses[-1][1])
