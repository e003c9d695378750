"""Connections to Redis: one deadline per call, no automatic retry, no reply read by the wrong command.

Each call runs in a task of its own. A caller that times out or is cancelled leaves at once; the task then
either drops the connection it had written to (a late reply must never answer the next command) or, if it
was still connecting, finishes connecting, so that a server slower to reach than one call may take is
reached at all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.store import StoreConfigError
from proxy.store.scripts import Command

__all__ = ["UNREACHED", "Line", "Talk", "Wire"]

T = TypeVar("T")

#: What it looks like when a server did not answer at all, as opposed to answering with an error.
UNREACHED = (TimeoutError, OSError, exceptions.ConnectionError, exceptions.TimeoutError)


class Line:
    """One connection, for the length of one call."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def ask(self, *commands: Command) -> list[Any]:
        """Send commands in one write and return their replies; an error reply is a value in the list.

        Where the server does not hold a script it ran nothing of it: the whole is sent once more, spelled out.
        """
        if not commands:
            return []
        replies = await self._ask(commands)
        if any(isinstance(reply, exceptions.NoScriptError) for reply in replies):
            replies = await self._ask([command.spelled() for command in commands])
        return replies

    async def _ask(self, commands: Sequence[Command]) -> list[Any]:
        packed = self._connection.pack_commands([command.words for command in commands])
        await self._connection.send_packed_command(packed, check_health=False)
        return [await self._read() for _ in commands]

    async def _read(self) -> object:
        try:
            # The caller's deadline bounds the read; a second clock here would only cost a timer.
            return await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
        except exceptions.ResponseError as error:
            return error


@dataclass(slots=True)
class _Call:
    """Where a call stands: whether commands may be on their way, and whether anybody still waits."""

    talking: bool = False
    gone: bool = False


Talk = Callable[[Line], Awaitable[T]]


class Wire:
    """A pool of connections to one primary."""

    def __init__(self, url: str, *, connect_timeout: float, connections: int = 32) -> None:
        self._connect_timeout = connect_timeout
        self._tasks: set[asyncio.Task[Any]] = set()
        try:
            self._pool = BlockingConnectionPool.from_url(
                url,
                max_connections=connections,
                timeout=connect_timeout,
                socket_connect_timeout=connect_timeout,
                socket_timeout=None,
                retry=Retry(NoBackoff(), 0),
                retry_on_timeout=False,
                decode_responses=False,
                protocol=2,
                driver_info=None,
            )
        except ValueError as error:
            cure = "write redis://host:6379/0 (rediss:// for TLS, unix:///path for a socket)"
            raise StoreConfigError(f"cannot be read: {error}", key="redis.url", cure=cure) from error

    async def call(self, talk: Talk[T], wait: float) -> T:
        """Run `talk` on one connection within `wait` seconds, pool and connecting included.

        Raises TimeoutError, OSError and redis-py's exceptions; CancelledError passes at once.
        """
        state = _Call()
        task = asyncio.create_task(self._talk(talk, state))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task}, timeout=wait)
        finally:
            if not task.done():
                state.gone = True
                if state.talking:
                    task.cancel()
        if not task.done():
            raise TimeoutError(f"no answer from Redis within {wait * 1000:.0f} ms")
        if task.cancelled():
            raise ConnectionAbortedError("the store was closed")
        return task.result()

    async def _talk(self, talk: Talk[T], state: _Call) -> T:
        async with asyncio.timeout(self._connect_timeout):
            connection: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        if state.gone:
            await self._pool.release(connection)
            raise TimeoutError("the caller had gone before Redis was reached")
        try:
            state.talking = True
            return await talk(Line(connection))
        except (exceptions.ResponseError, StoreConfigError):  # every reply was read: the connection is sound
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            state.talking = False  # from here on a cancellation would lose the pool's slot
            await self._pool.release(connection)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: nobody may be waiting for it any more

    async def close(self) -> None:
        """Cancel what still runs and close every connection."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.disconnect()
