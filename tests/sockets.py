"""The outside world of the doors' tests: raw upstreams and raw clients on real sockets.

A script is one coroutine per connection; it reads and writes exact bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Peer", "Raw", "RawUpstream", "client", "collect", "exchange", "raw_upstream", "reply", "sse", "until"]

PATIENCE = 10.0


@dataclass(frozen=True)
class Raw:
    """One HTTP message as it was on the wire: the head with its blank line, and the body without chunk framing."""

    head: bytes
    body: bytes

    @property
    def start(self) -> bytes:
        """The first line."""
        return self.head.split(b"\r\n", 1)[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names and values in order."""
        lines = self.head.split(b"\r\n")[1:-2]
        return [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.start.split(b" ")[1])


class Peer:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes, pause: float = 0.0) -> None:
        """Write each part, with a pause between them so that they arrive apart."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            if pause:
                await asyncio.sleep(pause)

    async def message(self, *, bodiless: bool = False) -> Raw:
        """Read one message: by its length, by its chunks, or (a response) to the end of the connection."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            raw = Raw(head, b"")
            if bodiless:
                return raw
            if raw.values(b"transfer-encoding"):
                return Raw(head, await self._chunks())
            if length := raw.values(b"content-length"):
                return Raw(head, await self.reader.readexactly(int(length[0])))
            if head.startswith(b"HTTP/"):
                return Raw(head, await self.reader.read())
            return raw

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readuntil(b"\r\n")
        return body

    async def rest(self) -> bytes:
        """Read to the end of the connection."""
        async with asyncio.timeout(PATIENCE):
            data = b""
            try:
                while chunk := await self.reader.read(1 << 16):
                    data += chunk
            except ConnectionError:
                pass
            return data

    async def gone(self, within: float = PATIENCE) -> float:
        """Wait until the other end closes; return how many seconds that took. Raises `TimeoutError`."""
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(within):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        return asyncio.get_running_loop().time() - began

    def close(self) -> None:
        """Close this end."""
        self.writer.close()


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class RawUpstream:
    """A scripted server: what it was sent, in order, and whether its script failed."""

    port: int = 0
    requests: list[Raw] = field(default_factory=list)
    connections: int = 0
    faults: list[BaseException] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_upstream(script: Script | bytes, *, keep: bool = False) -> AsyncIterator[RawUpstream]:
    """Serve a script, or fixed bytes for each request (with `keep` on one connection after another)."""
    upstream = RawUpstream()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream.connections += 1
        peer = Recording(reader, writer, upstream)
        try:
            if isinstance(script, bytes):
                await peer.message()
                await peer.send(script)
                while keep:
                    await peer.message()
                    await peer.send(script)
            else:
                await script(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:  # noqa: BLE001 - shown by the test
            upstream.faults.append(error)
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not upstream.faults, upstream.faults


class Recording(Peer):
    """An upstream's end: remembers the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: RawUpstream) -> None:
        super().__init__(reader, writer)
        self._upstream = upstream

    async def message(self, *, bodiless: bool = False) -> Raw:
        """Read and remember one request."""
        raw = await super().message(bodiless=bodiless)
        self._upstream.requests.append(raw)
        return raw


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Peer]:
    """Open a connection and close it at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    peer = Peer(reader, writer)
    try:
        yield peer
    finally:
        peer.close()


async def exchange(port: int, raw: bytes) -> bytes:
    """Send bytes on a fresh connection and return all that comes back until it closes."""
    async with client(port) as peer:
        await peer.send(raw)
        return await peer.rest()


async def collect(source: AsyncIterable[bytes], into: list[bytes]) -> None:
    """Read chunks into a list, which keeps what came before a failure."""
    async for chunk in source:
        into.append(chunk)  # noqa: PERF401 - a comprehension would lose them


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so. Raises `TimeoutError`."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition is another's and sets no event
            await asyncio.sleep(0.005)


def reply(
    body: bytes = b"{}", *, status: str = "200 OK", headers: bytes = b"Content-Type: application/json\r\n"
) -> bytes:
    """Spell a response of known length."""
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status.encode(), headers, len(body), body)


def sse(*frames: bytes) -> bytes:
    """Spell a chunked event stream, one chunk per frame."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames) + b"0\r\n\r\n"
