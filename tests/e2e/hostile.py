"""Carryon among enemies: all of it in this process, between raw clients and a witness that reads strictly.

The witness is an upstream that takes nothing on trust: what reaches it must be well-formed messages of HTTP/1.1 and
nothing else, and it writes down all of it. The log is kept at its lowest level, as the process would print it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from proxy import events
from proxy.boot import opened
from proxy.errors import STATUSES
from proxy.exchange import exchange
from proxy.house import House
from proxy.message import Incoming, Outgoing
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Door
from proxy.settings import Settings
from tests.sockets import Raw, client
from tests.store.servers import Server

__all__ = [
    "CUT",
    "OVERFLOW",
    "SECRET",
    "THOROUGH",
    "Heard",
    "Run",
    "Seen",
    "Witness",
    "answered",
    "between",
    "heard",
    "logged",
    "messages",
    "own",
    "replied",
    "spelled",
    "witness",
]

#: How many times more is tried when `CARRYON_THOROUGH` is set.
THOROUGH = 20 if os.environ.get("CARRYON_THOROUGH") else 1
#: A credential that no log, answer or key in Redis may hold.
SECRET = "sk-hostile-4f1c7be29a"
OVERFLOW = (
    b'{"error":{"message":"This model\'s maximum context length is %d tokens. However, your messages resulted in'
    b' 11500 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}'
)
#: Counting the tokens of 64 MiB takes many seconds on a busy machine.
_PATIENCE = 100.0
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_START = re.compile(_TOKEN + rb" /[\x21-\x7e\x80-\xff]* HTTP/1\.1")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}\r\n")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ ][^\r\n]*")


class MalformedError(Exception):
    """What came is not a well-formed message."""


@dataclass(frozen=True, slots=True)
class Seen(Raw):
    """One message that a strict reader accepts."""

    @property
    def case(self) -> bytes:
        """The client's own number of the request it belongs to."""
        return b"".join(self.values(b"x-case"))

    @property
    def own(self) -> bool:
        """Whether it is a reply that Carryon gives on its own account."""
        return b"".join(self.values(b"x-carryon-error")).startswith(b"PROXY_")


async def _message(reader: asyncio.StreamReader, start: re.Pattern[bytes]) -> Seen | None:
    """Read one message strictly, None at the end of the connection. Raises `MalformedError`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise MalformedError(f"a head that ends early: {error.partial[:80]!r}") from error
        return None
    first, *lines = head[:-4].split(b"\r\n")
    if not start.fullmatch(first) or not all(_FIELD.fullmatch(line) for line in lines):
        raise MalformedError(f"a head that is none: {head[:300]!r}")
    seen = Seen(head, b"")
    return Seen(head, await _body(reader, seen, request=start is _START))


async def _body(reader: asyncio.StreamReader, seen: Seen, *, request: bool) -> bytes:
    lengths, coded = seen.values(b"content-length"), seen.values(b"transfer-encoding")
    if len(lengths) + len(coded) > 1 or (request and len(seen.values(b"host")) != 1):
        raise MalformedError(f"framed twice, or for no host: {seen.head[:300]!r}")
    if coded:
        return await _chunks(reader)
    if lengths:
        return await reader.readexactly(int(lengths[0]))
    return b"" if request or seen.status in {204, 304} else await reader.read()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        if not _SIZE.fullmatch(line):
            raise MalformedError(f"a chunk of no size: {line[:80]!r}")
        size = int(line, 16)
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise MalformedError("a chunk that does not end")
        if not size:
            return bytes(body)


async def messages(raw: bytes) -> list[Seen]:
    """The replies in what a client got. Raises `MalformedError` where they are not well-formed."""
    reader = asyncio.StreamReader(limit=1 << 27)
    reader.feed_data(raw)
    reader.feed_eof()
    found = []
    while (one := await _message(reader, _STATUS)) is not None:
        found.append(one)
    return found


def own(seen: Seen) -> bool:
    """Whether a reply of Carryon's own is one that rule 3.5 allows; what is the upstream's is not judged."""
    return seen.status in STATUSES if seen.own else seen.status != 500


#: An answer that ends so is the last one on its connection.
CUT = b"<the connection ends here>"
Reply = Callable[[Seen], bytes]


@dataclass(slots=True)
class Witness:
    """What an upstream saw: whole requests, requests that broke off, and what was not HTTP."""

    port: int = 0
    requests: list[Seen] = field(default_factory=list)
    cut: int = 0
    malformed: list[str] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def of(self, case: int) -> list[Seen]:
        """The POSTs of a case."""
        return [one for one in self.requests if one.case == b"%d" % case and one.start.startswith(b"POST")]


@asynccontextmanager
async def witness(reply: Reply) -> AsyncIterator[Witness]:
    """An upstream on loopback that reads strictly and answers by `reply`."""
    found = Witness()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        writers.add(writer)
        try:
            while (seen := await _message(reader, _START)) is not None:
                found.requests.append(seen)
                answer = reply(seen)
                writer.write(answer.removesuffix(CUT))
                await writer.drain()
                if answer.endswith(CUT):
                    break
        except MalformedError as error:
            found.malformed.append(str(error))
        except (asyncio.IncompleteReadError, ConnectionError):
            found.cut += 1
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 27)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for writer in list(writers):
            writer.transport.abort()
    assert not found.malformed


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Log as the process does, at the lowest level, into memory."""
    text, root = io.StringIO(), logging.getLogger()
    before, level = list(root.handlers), root.level
    events.configure("json", "debug", text)
    root.handlers[:] = [*before, *root.handlers]
    try:
        yield text
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A running Carryon; `passed` holds the requests that came through its door."""

    port: int
    house: House
    door: Door
    log: io.StringIO
    passed: list[Incoming]

    @property
    def faults(self) -> list[str]:
        """Its faults of its own, as logged."""
        return [line for line in self.log.getvalue().splitlines() if "internal-fault" in line]


@asynccontextmanager
async def between(
    url: str, store: Server | str, *, window: int | None = None, bounds: ServerBounds | None = None, **settings: object
) -> AsyncIterator[Run]:
    """The whole of Carryon before this upstream. Nothing in it is replaced, and it may have no fault of its own."""
    defaults: dict[str, object] = {"summary": {"timeout": "5s"}, "pressure": {"after_reply": False}}
    if window:
        defaults |= {"context_window": window, "window_kind": "total", "threshold_ratio": 0.5}
    made = Settings.model_validate(
        {
            "upstreams": {f"up-{secrets.token_hex(4)}": url},  # what is learned and kept of it is no other test's
            "redis": {"url": store if isinstance(store, str) else store.url, "durability": "memory", "timeout": "5s"},
            "secret": "a secret of at least thirty-two characters",
            "defaults": defaults,
            **settings,
        }
    )
    passed: list[Incoming] = []
    with logged() as log:
        async with opened(made) as house:
            door = _door(house, passed, bounds or ServerBounds(linger=0.2))
            try:
                yield Run(port=await door.listen(), house=house, door=door, log=log, passed=passed)
            finally:
                await door.close()
            assert house.internal_faults == 0, log.getvalue()
    assert SECRET not in log.getvalue()
    assert "Traceback" not in log.getvalue()


def _door(house: House, passed: list[Incoming], bounds: ServerBounds) -> Door:
    inner = partial(exchange, house)

    async def noted(incoming: Incoming) -> Outgoing:
        passed.append(incoming)
        return await inner(incoming)

    return Door(noted, bounds, on_fault=lambda: house.fault("the door"))


def spelled(
    body: bytes, *headers: bytes, target: bytes = b"/v1/chat/completions", case: int = 0, framed: bool = True
) -> bytes:
    """A client's POST on the wire."""
    lines = [
        b"POST %s HTTP/1.1" % target,
        b"Host: carryon",
        b"Authorization: Bearer %s-%d" % (SECRET.encode(), case),
        b"Content-Type: application/json",
        b"X-Case: %d" % case,
        *headers,
    ]
    if framed:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


async def answered(port: int, raw: bytes) -> Seen:
    """Send one request on a connection of its own and read its reply strictly."""
    async with client(port) as peer, asyncio.timeout(_PATIENCE):
        sending = asyncio.ensure_future(peer.send(raw))
        try:
            found = await _message(peer.reader, _STATUS)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a client got of a reply: its head, the body as far as it came, and whether it could see an end of it."""

    head: Seen
    body: bytes
    whole: bool

    @property
    def brief(self) -> tuple[int, str, bytes, bool]:
        """Status, our own code if it is ours, the body if it is not, and whether it was whole."""
        code = b"".join(self.head.values(b"x-carryon-error")).decode()
        return self.head.status, code, b"" if code else self.body, self.whole


async def heard(port: int, raw: bytes) -> Heard:
    """Send one request on a connection of its own, and read its reply as far as it comes."""
    async with client(port) as peer, asyncio.timeout(_PATIENCE):
        sending = asyncio.ensure_future(peer.send(raw))
        head = Seen(await peer.reader.readuntil(b"\r\n\r\n"), b"")
        body, whole = bytearray(), True
        try:
            await _pour(peer.reader, head, body)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            body += getattr(error, "partial", b"")
            whole = False
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return Heard(head=head, body=bytes(body), whole=whole)


async def _pour(reader: asyncio.StreamReader, head: Seen, into: bytearray) -> None:
    """Read a body into `into`, which keeps what came before the end of the connection."""
    if length := head.values(b"content-length"):
        into += await reader.readexactly(int(length[0]))
    while head.values(b"transfer-encoding") and (size := int(await reader.readuntil(b"\r\n"), 16)):
        into += await reader.readexactly(size)
        await reader.readexactly(2)


async def replied(port: int, *parts: bytes, pause: float = 0.0) -> list[Seen]:
    """Send bytes on a connection of their own and read all replies until the other side closes it."""
    async with client(port) as peer, asyncio.timeout(_PATIENCE):
        sending = asyncio.ensure_future(peer.send(*parts, pause=pause))
        raw = await peer.rest()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return await messages(raw)
