"""`carryon serve`: open the house, listen, and say what was found."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial

from proxy import __version__, events
from proxy.admin.api import Api
from proxy.admin.door import Door
from proxy.admin.guard import Guard
from proxy.admin.probes import Ready
from proxy.boot import opened, state_dir
from proxy.errors import ConfigError, Mistake
from proxy.exchange import exchange
from proxy.house import House
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server
from proxy.settings import Settings

__all__ = ["bounds", "on_signals", "serve"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: Seconds that work may take to end after all else has.
_LEFT_BEHIND = 3.0

#: What may be chosen otherwise, by listener.
_PORT = {"listen": "--port, or CARRYON_LISTEN__PORT", "admin": "CARRYON_ADMIN__PORT"}
_HOST = {"listen": "--host, or CARRYON_LISTEN__HOST", "admin": "CARRYON_ADMIN__HOST"}

Say = Callable[[str], None]


def serve(settings: Settings, source: str, say: Say) -> bool:
    """Serve until a signal; whether every request ended by itself. `source` names where the settings came from."""
    whole = False
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        whole = runner.run(_served(settings, source, say))
    except asyncio.CancelledError:  # a signal while starting: nothing listened yet
        whole = True
    finally:
        _closed(runner, 0 if whole else 1)
    return whole


def _closed(runner: asyncio.Runner, code: int) -> None:
    """Close the loop. Work that will not end (a compactor that ignores its cancellation, a thread) does not hold us up.

    By now every request has ended and all that was opened is closed: what is left is nobody's.
    """
    timer = threading.Timer(_LEFT_BEHIND, _exit, (code,))
    timer.daemon = True
    timer.start()
    runner.close()
    timer.cancel()


def _exit(code: int) -> None:
    events.emit("work-left-behind", level=logging.WARNING, seconds=_LEFT_BEHIND)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _served(settings: Settings, source: str, say: Say) -> bool:
    """Start, serve, stop.

    A signal ends the start as long as nothing listens, the serving afterwards; while stopping it changes nothing: the
    store must be left whole.
    """
    asyncio.get_running_loop().set_exception_handler(events.unhandled)
    starting = asyncio.current_task()
    on_signals(starting.cancel if starting else _ignored, *_SIGNALS)
    async with opened(settings) as house:
        server = Server(
            partial(exchange, house),
            bounds(settings),
            admin=partial(_admin, house),
            degraded=lambda: ("redis",) if house.ledger.away else (),
            on_fault=lambda: house.fault("the door"),
        )

        async def begin() -> None:
            admin = await _probing(server, settings)
            port = await _listening(server.listen, "listen", settings.listen.host, settings.listen.port)
            for line in _found(settings, source, house, port, admin):
                say(line)

        return await server.run(begin, waiting=lambda count, which: say(_waiting(settings, count, which)))


def _admin(house: House, ready: Ready) -> Door:
    """Make what answers on the admin listener."""
    admin = house.settings.admin
    house.metrics.watch(faults=lambda: house.internal_faults, store_away=lambda: house.ledger.away)
    inside = Api(house.ledger, show_text=admin.show_text)
    return Door(ready, guard=Guard.of(admin), inside=inside, metrics=house.metrics.exposition)


def on_signals(act: Callable[[], object], *signals: signal.Signals) -> None:
    """Let the first of these signals act; later ones change nothing, so that what it began can end."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        for which in signals:
            loop.add_signal_handler(which, _ignored)
        act()

    for which in signals:
        loop.add_signal_handler(which, once)


def _ignored() -> None:
    return


async def _listening(listen: Callable[[str, int], Awaitable[int]], key: str, host: str, port: int) -> int:
    try:
        return await listen(host, port)
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        cure = (
            f"end what listens there, or choose another port (0 takes a free one): {_PORT[key]}"
            if taken
            else f"choose an address of this machine: {_HOST[key]}"
        )
        number = error.errno or 0  # that of a name which cannot be resolved is negative
        why = os.strerror(number) if number > 0 else error.strerror or str(error)
        message = f"cannot listen on {host}:{port}: {why[:1].lower()}{why[1:]}"
        raise ConfigError(Mistake(key=f"{key}.{'port' if taken else 'host'}", message=message, cure=cure)) from error


async def _probing(server: Server, settings: Settings) -> int:
    """Open the admin listener. A port that nobody chose may be another one: a second instance needs no word for it."""
    host, port = settings.admin.host, settings.admin.port
    if "port" not in settings.admin.model_fields_set:
        try:
            return await server.listen_admin(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                port = 0
    return await _listening(server.listen_admin, "admin", host, port)


def _waiting(settings: Settings, count: int, which: signal.Signals) -> str:
    requests = "1 request" if count == 1 else f"{count} requests"
    again = "; Ctrl-C again ends now" if which is signal.SIGINT else "; a second SIGTERM ends now"
    return f"stopping: waiting for {requests}, at most {settings.timeouts.drain:g} s{again}"


def bounds(settings: Settings) -> ServerBounds:
    """Return the listener's limits, from the settings."""
    return ServerBounds(
        max_body=settings.listen.max_body,
        max_inflight_bytes=settings.listen.max_inflight_bytes,
        max_connections=settings.listen.max_connections,
        header=settings.timeouts.header,
        body_idle=settings.timeouts.body_idle,
        drain=settings.timeouts.drain,
    )


def _found(settings: Settings, source: str, house: House, port: int, admin: int) -> list[str]:
    """Say what an operator wants to see at start: file, upstreams, windows, store, and the line to paste."""
    store = "redis (by URL)" if settings.redis.url else f"embedded, in {state_dir(settings) / 'store'}"
    upstreams = ", ".join(f"{known.name} = {known.base_url}" for known in house.upstreams)
    unnamed = "" if "upstreams" in settings.model_fields_set else " (default; --upstream changes it)"
    taken = f" ({settings.admin.port} is taken)" if settings.admin.port not in {0, admin} else ""
    closed = " (the API beside them is closed: set admin.token)" if Guard.of(settings.admin).closed else ""
    return [
        f"carryon {__version__}",
        f"  settings   {source}",
        f"  upstreams  {upstreams}{unnamed}",
        f"  window     {_windows(settings)}",
        f"  store      {store}",
        f"  probes     http://{_shown(settings.admin.host)}:{admin}/readyz{taken}{closed}",
        f"  ready      export OPENAI_BASE_URL=http://{_shown(settings.listen.host)}:{port}/v1",
    ]


def _windows(settings: Settings) -> str:
    named = [entry.model for entry in settings.models if entry.context_window]
    known = settings.defaults.context_window
    rest = f"{known:,} tokens" if known else "asked of the upstream, else from the packaged table"
    return f"configured for {', '.join(named)}; others: {rest}" if named else rest


def _shown(host: str) -> str:
    """Spell a host as it stands in a URL; of those that mean every address, the one of this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is compared, not bound
    return f"[{host}]" if ":" in host else host


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - not to be had on Windows

    return uvloop.new_event_loop
