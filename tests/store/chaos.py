"""A small proxy before a server's Unix socket that loses, delays or withholds replies on demand."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self


class Chaos:
    """Relays a TCP port to a Unix socket; set its attributes to misbehave."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        #: Swallow this many more replies, closing the connection each time.
        self.lose = 0
        #: Seconds by which replies come late.
        self.delay = 0.0
        #: Accept and never answer.
        self.silent = False
        self.accepted = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close and end what still runs."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The URL that reaches the server through the proxy."""
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        back = asyncio.create_task(self._replies(far_reader, writer))
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    if not self.silent:
                        far_writer.write(data)
        finally:
            back.cancel()
            far_writer.close()
            writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            if self.lose:
                self.lose -= 1
                break
            if self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
        writer.close()
