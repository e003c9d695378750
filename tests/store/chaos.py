"""A small proxy before a server's Unix socket that loses, delays, withholds or refuses on demand."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self


class Chaos:
    """Relays a TCP port to a Unix socket; set its attributes to misbehave."""

    def __init__(self, socket: Path) -> None:
        #: Where new connections lead.
        self.target = socket
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        #: Swallow this many more replies, closing the connection each time.
        self.lose = 0
        #: Seconds by which replies come late.
        self.delay = 0.0
        #: Replies that came late, or are on their way.
        self.late = 0
        #: Accept and never answer.
        self.silent = False
        self.accepted = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close and end what still runs."""
        await self.refuse()

    @property
    def url(self) -> str:
        """The URL that reaches the server through the proxy."""
        return f"redis://127.0.0.1:{self._port}/0"

    async def listen(self) -> None:
        """Take connections, on the same port as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Cut all connections and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def cut(self) -> None:
        """Cut all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        try:
            with contextlib.suppress(asyncio.CancelledError, OSError):  # cut, or nobody listens there
                await self._relay(reader, writer)
        finally:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self.target)
        back = asyncio.create_task(self._replies(far_reader, writer))
        try:
            while data := await reader.read(65536):
                if not self.silent:
                    far_writer.write(data)
        finally:
            back.cancel()
            far_writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                if self.lose:
                    self.lose -= 1
                    break
                if self.delay:
                    self.late += 1
                    await asyncio.sleep(self.delay)
                if not self.silent:
                    writer.write(data)
        writer.close()
