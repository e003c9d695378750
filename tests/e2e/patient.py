"""An upstream whose models' names say how it behaves; what reaches it, and its going, can be awaited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.e2e.scribe import INSTRUCTION, good
from tests.sockets import Peer, Raw, client, raw_upstream, reply

__all__ = ["OK", "OVER", "Copy", "Patient", "asking", "chunk", "complete", "delta", "patient"]

PATIENCE = 15.0
#: The model of requests that name none, and how their bodies begin.
UPLOAD, PART = "upload", b"half of"
OVER = reply(
    b'{"error":{"message":"maximum context length exceeded","code":"context_length_exceeded"}}', status="400 Bad"
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of HTTP."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def delta(**said: str) -> bytes:
    """One frame of a stream."""
    return b"data: " + json.dumps({"id": "r", "choices": [{"index": 0, "delta": said}]}).encode() + b"\n\n"


def complete(text: str) -> bytes:
    """A whole reply."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return reply(json.dumps({"id": "r", "model": "m", "choices": [choice]}).encode())


OK = complete("aye")


@dataclass(slots=True, kw_only=True)
class Copy:
    """One request that reached the upstream, for a turn or a summary. `gone` is set when its connection ends."""

    raw: Raw
    model: str
    summary: bool
    peer: Peer
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, *parts: bytes) -> None:
        """Answer it."""
        await self.peer.send(*parts)


@dataclass(slots=True)
class Patient:
    """What came, in order. `answers` by model; a model without one waits for ever."""

    url: str = ""
    copies: list[Copy] = field(default_factory=list)
    answers: dict[str, Callable[[Copy], Awaitable[None]]] = field(default_factory=dict)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    def of(self, model: str, *, summary: bool = False) -> list[Copy]:
        """The copies of a model's turns, or its summaries."""
        return [copy for copy in self.copies if copy.model == model and copy.summary is summary]

    async def copy(self, model: str, number: int = 1, *, summary: bool = False) -> Copy:
        """Wait until so many have come; the last of them."""
        async with asyncio.timeout(PATIENCE), self._came:
            await self._came.wait_for(lambda: len(self.of(model, summary=summary)) >= number)
            return self.of(model, summary=summary)[number - 1]

    async def serve(self, peer: Peer) -> None:
        """One connection."""
        while True:
            head = await peer.message(bodiless=True)
            if head.start.startswith(b"POST /v1/files"):  # of which only the beginning may ever come
                part = await peer.reader.readexactly(len(PART))
                await self._take(Copy(raw=Raw(head.head, part), model=UPLOAD, summary=False, peer=peer))
                return
            body = await peer.reader.readexactly(int((head.values(b"content-length") or [b"0"])[0]))
            if not head.start.startswith(b"POST /v1/chat"):  # windows are asked for
                await peer.send(reply(status="404 Not Found"))
                continue
            if await self._take(_read(Raw(head.head, body), peer)):
                return

    async def _take(self, copy: Copy) -> bool:
        """Write it down and answer it; whether its connection has ended."""
        async with self._came:
            self.copies.append(copy)
            self._came.notify_all()
        if answer := self.answers.get(copy.model):
            await answer(copy)
        else:
            await waits(copy)
        return copy.gone.is_set()


def _read(raw: Raw, peer: Peer) -> Copy:
    said = json.loads(raw.body)
    last = said["messages"][-1].get("content")
    summary = isinstance(last, str) and last.startswith(INSTRUCTION)
    return Copy(raw=raw, model=said["model"], summary=summary, peer=peer)


async def waits(copy: Copy) -> None:
    """Say nothing more until the other end has gone."""
    try:
        await copy.peer.gone(PATIENCE)
    finally:
        copy.gone.set()


async def trickles(copy: Copy, pause: float = 0.05) -> None:
    """Stream content without end, until nobody takes it."""
    await copy.answer(HEAD + chunk(delta(role="assistant")))
    gone = asyncio.ensure_future(copy.peer.gone(PATIENCE))
    while not gone.done():
        copy.peer.writer.write(chunk(delta(content="more ")))
        await asyncio.wait({gone}, timeout=pause)
    copy.gone.set()


async def only_role(copy: Copy) -> None:
    """Begin a stream, and say nothing in it."""
    await copy.answer(HEAD + chunk(delta(role="assistant")))
    await waits(copy)


async def refuses_once(copy: Copy) -> None:
    """Too long; summaries are good; what is short enough hangs."""
    if copy.summary:
        await copy.answer(complete(good(1)))
    elif len(copy.raw.body) > 20_000:
        await copy.answer(OVER)
    else:
        await waits(copy)


@asynccontextmanager
async def patient() -> AsyncIterator[Patient]:
    """Run one."""
    found = Patient()
    async with raw_upstream(found.serve) as raw:
        found.url = f"{raw.url}/v1"
        yield found


@asynccontextmanager
async def asking(
    port: int, body: bytes, *, path: str = "/v1/chat/completions", last: bool = False
) -> AsyncIterator[Peer]:
    """A client that has sent a request (its `last`) and reads nothing yet; it leaves at the end."""
    lines = [f"POST {path} HTTP/1.1", "Host: h", "Authorization: Bearer sk-a", f"Content-Length: {len(body)}"]
    lines += ["Connection: close"] if last else []
    async with client(port) as peer:
        await peer.send("\r\n".join([*lines, "", ""]).encode() + body)
        yield peer
