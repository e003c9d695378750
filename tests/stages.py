"""The two stages of playbooks: in process, and over real sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

from proxy.exchange import exchange
from proxy.message import Headers
from proxy.upstream import Answered, Bounds, Call, Outcome, UpstreamError
from proxy.upstream.hold import Lens, inspected, relayed
from tests.playbook import PATIENCE, TARGET, Ask, Got, Says, Seen, World
from tests.sockets import Peer, Raw, client

# --- in process ---------------------------------------------------------------------------------------


class _Wire:
    """A reply as the client door has it, from a script."""

    def __init__(self, says: Says) -> None:
        self.status, self.reason, self.headers = says.status, "", says.headers
        self.closed = False
        self._chunks = deque(says.chunks)

    async def receive(self, wait: float | None = None) -> bytes:
        await asyncio.sleep(0)
        return self._chunks.popleft() if self._chunks else b""

    async def rest(self) -> AsyncIterator[bytes]:
        while chunk := await self.receive():
            yield chunk

    async def close(self) -> None:
        self.closed = True


class InProcess:
    """Implements `proxy.upstream.Upstream` from a script; what is a reply's fate is the real hold's affair."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._says: deque[Says] = deque()
        self._wires: list[_Wire] = []

    def play(self, says: tuple[Says, ...]) -> None:
        """Answer the next copies so, in order."""
        self._says = deque(says)
        self.seen.clear()

    async def send(
        self, call: Call, *, dialect: str | None = None, inspect: bool = False, window: int | None = None
    ) -> Outcome:
        """Record a copy and answer it."""
        assert isinstance(call.body, bytes)
        self.seen.append(Seen(headers=call.headers, body=call.body))
        assert self._says, "one copy too many reached the upstream"
        says = self._says.popleft()
        await asyncio.sleep(0)
        if says.fault:
            raise UpstreamError(says.fault, "scripted")  # type: ignore[arg-type]
        wire = _Wire(says)
        self._wires.append(wire)
        if not inspect or dialect is None:
            return relayed(wire)  # type: ignore[arg-type]
        lens = Lens(endpoint=urlsplit(call.url).path, dialect=dialect, window=window, patterns=())
        return await inspected(wire, lens, Bounds())  # type: ignore[arg-type]

    async def ask(self, call: Call, *, within: float, limit: int = 16 << 20) -> Answered:
        """No summaries, no windows."""
        return Answered(status=404)

    async def ask_client(self, world: World, ask: Ask) -> Got:
        """Hand the request to the exchange and read the reply."""
        reply = await exchange(world.house, world.incoming(ask))
        try:
            body = reply.body if isinstance(reply.body, bytes) else b"".join([chunk async for chunk in reply.body])
        finally:
            await reply.aclose()
        return Got(status=reply.status, headers=reply.headers, body=body)

    def settled(self) -> None:
        """Every reply was closed."""
        assert all(wire.closed for wire in self._wires), "a reply of the upstream was left open"


class InProcessStage:
    """The stage around `InProcess`."""

    def __init__(self, door: InProcess) -> None:
        self._door = door
        self.seen = door.seen
        self.play, self.settled = door.play, door.settled

    async def ask(self, world: World, ask: Ask) -> Got | None:
        """Send one request; a client that leaves cancels it."""
        asked = asyncio.ensure_future(self._door.ask_client(world, ask))
        return await _awaited(world, ask, asked)


async def _awaited(world: World, ask: Ask, asked: asyncio.Future[Got]) -> Got | None:
    async with asyncio.timeout(PATIENCE):
        if not ask.leaves:
            return await asked
        await world.reached.wait()
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        return None


# --- over sockets -------------------------------------------------------------------------------------


class OverSockets:
    """The real doors between a raw client and a raw upstream."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.port = 0
        self._says: deque[Says] = deque()

    def play(self, says: tuple[Says, ...]) -> None:
        """Answer the next copies so, in order."""
        self._says = deque(says)
        self.seen.clear()

    async def serve(self, peer: Peer) -> None:
        """One connection of the upstream."""
        while True:
            raw = await peer.message()
            if not raw.start.startswith(b"POST /v1/chat"):
                await peer.send(_spelled(Says(status=404, chunks=(b"{}",))))
                continue
            self.seen.append(Seen(headers=_headers(raw), body=raw.body))
            says = self._says.popleft()
            if says.fault == "first_byte":
                await asyncio.sleep(PATIENCE)
            if says.fault:
                return
            await peer.send(_spelled(says))

    async def ask(self, world: World, ask: Ask) -> Got | None:
        """Send one request over a fresh connection; a client that leaves closes it."""
        asked = asyncio.ensure_future(self._sent(world, ask))
        return await _awaited(world, ask, asked)

    async def _sent(self, world: World, ask: Ask) -> Got:
        given = (("Host", "carryon"), *world.incoming(ask).headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in given)
        async with client(self.port) as peer:
            await peer.send(f"POST {TARGET} HTTP/1.1\r\n{head}\r\n".encode() + ask.body)
            raw = await peer.message()
        return Got(status=raw.status, headers=_headers(raw), body=raw.body)

    def settled(self) -> None:
        """Connections end with the stage."""


def _headers(raw: Raw) -> Headers:
    return tuple((name.decode(), value.decode()) for name, value in raw.headers)


def _spelled(says: Says) -> bytes:
    head = b"HTTP/1.1 %d Scripted\r\n" % says.status
    head += b"".join(f"{name}: {value}\r\n".encode() for name, value in says.headers)
    if len(says.chunks) < 2:
        return head + b"Content-Length: %d\r\n\r\n" % len(says.body) + says.body
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in says.chunks)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
