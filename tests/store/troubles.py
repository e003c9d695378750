"""The ways in which a Redis can be in trouble (RELIABILITY's matrix), each made on a real server and ended again."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import redis

from proxy.store.binary import find_server
from tests.sockets import until
from tests.store.chaos import Chaos
from tests.store.servers import Server

__all__ = ["TROUBLES", "Place"]

#: What a server that is to be loading for a while has to read: keys of no conversation, the length of each (it looks
#: for clients once per kilobyte), and the microseconds it takes over each.
_FILLERS = 500
_FILLER = 4_096
_KEY_DELAY = 20_000
_EVERY = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server with its append-only file on, and the proxy through which it is reached."""

    server: Server
    chaos: Chaos


Trouble = Callable[[Place], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _refused(place: Place) -> AsyncIterator[None]:
    """Nobody listens."""
    await place.chaos.refuse()
    yield
    await place.chaos.listen()


@asynccontextmanager
async def _silent(place: Place) -> AsyncIterator[None]:
    """Connections are taken, what is sent vanishes."""
    place.chaos.silent = True
    yield
    place.chaos.silent = False


@asynccontextmanager
async def _stopped(place: Place) -> AsyncIterator[None]:
    """The process hangs; the kernel still takes connections and bytes for it."""
    place.server.process.send_signal(signal.SIGSTOP)
    yield
    place.server.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def _slow(place: Place) -> AsyncIterator[None]:
    """Every reply comes two seconds late."""
    place.chaos.delay = 2.0
    yield
    place.chaos.delay = 0.0


@asynccontextmanager
async def _full(place: Place) -> AsyncIterator[None]:
    """No write finds room (`noeviction`, the default)."""
    place.server.client().config_set("maxmemory", "1")
    yield
    place.server.client().config_set("maxmemory", "0")


@asynccontextmanager
async def _read_only(place: Place) -> AsyncIterator[None]:
    """The primary was made a replica: it reads, and refuses writes."""
    place.server.client().execute_command("REPLICAOF", "127.0.0.1", "1")
    yield
    place.server.client().execute_command("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def _loading(place: Place) -> AsyncIterator[None]:
    """The server was started again and reads its file: it says LOADING until it is done."""
    client = place.server.client()
    for number in range(_FILLERS):
        client.set(f"filler:{number}", secrets.token_hex(_FILLER // 2))
    client.bgrewriteaof()
    await until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    place.server.again(key_load_delay=str(_KEY_DELAY), loading_process_events_interval_bytes="1024")
    yield
    client = place.server.client()
    with suppress(redis.BusyLoadingError):
        client.config_set("key-load-delay", "0")
    await until(lambda: not client.info("persistence")["loading"])


@asynccontextmanager
async def _no_script(place: Place) -> AsyncIterator[None]:
    """Scripts are forgotten over and over."""

    async def flush() -> None:
        client = place.server.client()
        while True:
            client.script_flush()
            await asyncio.sleep(_EVERY)

    flushing = asyncio.create_task(flush())
    yield
    flushing.cancel()


@asynccontextmanager
async def _cluster_down(place: Place) -> AsyncIterator[None]:
    """Behind the address is a cluster's node without slots."""
    node = Server(find_server(), cluster_enabled="yes", port="0")
    home, place.chaos.target = place.chaos.target, node.socket
    await place.chaos.cut()
    yield
    place.chaos.target = home
    await place.chaos.cut()
    node.stop()


@asynccontextmanager
async def _wrong_password(place: Place) -> AsyncIterator[None]:
    """The password was changed under us."""
    admin = place.server.client()
    admin.config_set("requirepass", "another")
    await place.chaos.cut()
    yield
    place.server.client(password="another").config_set("requirepass", "")


TROUBLES: dict[str, Trouble] = {
    "refused": _refused,
    "black hole": _silent,
    "hung": _stopped,
    "2 s slow": _slow,
    "full": _full,
    "read-only": _read_only,
    "loading": _loading,
    "NOSCRIPT": _no_script,
    "cluster down": _cluster_down,
    "wrong password": _wrong_password,
}
