"""`carryon serve`: open the house, listen, and say what was found."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from proxy import __version__
from proxy.boot import opened, state_dir
from proxy.errors import ConfigError, Mistake
from proxy.exchange import exchange
from proxy.house import House
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server
from proxy.settings import Settings

__all__ = ["serve"]

_NAMED = {"listen": "--port, or CARRYON_LISTEN__PORT", "admin": "CARRYON_ADMIN__PORT"}

Say = Callable[[str], None]


def serve(settings: Settings, source: str, say: Say) -> bool:
    """Serve until a signal; whether every request ended by itself. `source` names where the settings came from."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_served(settings, source, say))


async def _served(settings: Settings, source: str, say: Say) -> bool:
    async with opened(settings) as house:
        server = Server(partial(exchange, house), bounds(settings), on_fault=lambda: house.fault("the door"))
        try:
            port = await _listening(server.listen, "listen", settings.listen.host, settings.listen.port)
            admin = await _listening(server.listen_admin, "admin", settings.admin.host, settings.admin.port)
        except ConfigError:
            await server.close()
            raise
        for line in _found(settings, source, house, port, admin):
            say(line)
        return await server.run()


async def _listening(listen: Callable[[str, int], Awaitable[int]], key: str, host: str, port: int) -> int:
    try:
        return await listen(host, port)
    except OSError as error:
        raise ConfigError(
            Mistake(
                key=f"{key}.port",
                message=f"cannot listen on {host}:{port}: {error.strerror or error}",
                cure=f"end what listens there, or choose another port (0 takes a free one): {_NAMED[key]}",
            )
        ) from error


def bounds(settings: Settings) -> ServerBounds:
    """The listener's limits, from the settings."""
    return ServerBounds(
        max_body=settings.listen.max_body,
        max_inflight_bytes=settings.listen.max_inflight_bytes,
        max_connections=settings.listen.max_connections,
        header=settings.timeouts.header,
        body_idle=settings.timeouts.body_idle,
        drain=settings.timeouts.drain,
    )


def _found(settings: Settings, source: str, house: House, port: int, admin: int) -> list[str]:
    """What an operator wants to see at start: file, upstreams, window, store, and the line to paste."""
    host = settings.listen.host
    shown = f"[{host}]" if ":" in host else host
    store = "redis (by URL)" if settings.redis.url else f"embedded, in {state_dir(settings) / 'store'}"
    upstreams = ", ".join(f"{known.name} = {known.base_url}" for known in house.upstreams)
    window = settings.models[0].context_window if settings.models else settings.defaults.context_window
    return [
        f"carryon {__version__}",
        f"  settings   {source}",
        f"  upstreams  {upstreams}",
        f"  window     {f'{window} tokens' if window else 'asked from the upstream, else the packaged table'}",
        f"  store      {store}",
        f"  probes     http://{settings.admin.host}:{admin}/readyz",
        f"  ready      export OPENAI_BASE_URL=http://{shown}:{port}/v1",
    ]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - not to be had on Windows

    return uvloop.new_event_loop
