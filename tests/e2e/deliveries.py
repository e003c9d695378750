"""How an upstream's answer comes: in which coding, in which pieces, ended how; and what the client must have of it.

An `Answer` is what is said. A `Delivery` is how: `CODINGS` x `CHUNKINGS` x `FRAMINGS`.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import brotli
import zstandard

from tests.sockets import Peer, Raw

WINDOW = 10_000
#: Headers that name or frame one connection.
_OF_CONNECTION = {b"connection", b"content-length", b"transfer-encoding"}

Header = tuple[bytes, bytes]
JSON: tuple[Header, ...] = ((b"Content-Type", b"application/json"),)
EVENTS: tuple[Header, ...] = ((b"Content-Type", b"text/event-stream; charset=utf-8"), (b"Cache-Control", b"no-cache"))


# --- what is said ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply before it is encoded, cut and framed."""

    body: bytes
    status: int = 200
    reason: bytes = b"Scripted"
    headers: tuple[Header, ...] = JSON


def says(value: object, status: int = 200, *more: Header) -> Answer:
    """A JSON value, or text, as a whole reply."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return Answer(body=text.encode(), status=status, headers=(*JSON, *more))


def streams(*frames: object, end: str = "\n", done: bool = False) -> Answer:
    """An event stream; a frame that is text beginning with `:`, or with a field's name, is taken as it is."""
    whole = [*frames, "data: [DONE]"] if done else frames
    text = "".join((frame if isinstance(frame, str) else _frame(frame)) + "\n\n" for frame in whole)
    return Answer(body=text.replace("\n", end).encode(), headers=EVENTS)


def _frame(value: object) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}"


def delta(finish: str | None = None, **parts: object) -> dict[str, object]:
    """A chunk of a chat stream."""
    return {"id": "r", "system": "上", "choices": [{"index": 0, "delta": parts, "finish_reason": finish}]}


# --- how it is said -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One way for bytes to come."""

    coding: str = "identity"
    chunking: str = "whole"
    framing: str = "length"

    def __str__(self) -> str:
        return f"{self.coding}, {self.chunking}, {self.framing}"


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": partial(gzip.compress, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
CODINGS = tuple(_ENCODERS)
CHUNKINGS = ("whole", "bytes", "seams", "apart")
FRAMINGS = ("length", "chunked", "close")
DELIVERIES = tuple(
    Delivery(coding=coding, chunking=chunking, framing=framing)
    for coding, chunking, framing in itertools.product(CODINGS, CHUNKINGS, FRAMINGS)
)
PLAIN = DELIVERIES[0]


def some(number: int) -> Iterator[Delivery]:
    """Five of the sixty deliveries, others for another number: each coding once, the rest in turn."""
    for at, coding in enumerate(CODINGS):
        chunking = CHUNKINGS[(at + number) % len(CHUNKINGS)]
        yield Delivery(coding=coding, chunking=chunking, framing=FRAMINGS[(at + number) % len(FRAMINGS)])


#: A stream that its upstream never ends.
ENDLESS = Delivery(framing="endless")
#: Inside a CRLF, after a line's end, inside a field's name, inside a character of several bytes.
_SEAM = re.compile(rb"\r(?=\n)|\n|\bda(?=ta:)|[\xc2-\xf4](?=[\x80-\xbf])|[\x80-\xbf](?=[\x80-\xbf])|\{")


def encoded(answer: Answer, coding: str) -> bytes:
    """The body as it is on the wire."""
    return _ENCODERS[coding](answer.body)


def cut(body: bytes, chunking: str) -> list[bytes]:
    """The pieces it comes in; compressed bytes, which show no seams, are cut after their first bytes as well."""
    if chunking == "bytes":
        return [bytes([byte]) for byte in body]
    if chunking == "seams":
        edges = sorted({0, 1, 3, len(body) // 2, len(body), *(found.end() for found in _SEAM.finditer(body))})
        return [body[start:end] for start, end in itertools.pairwise(edges) if start < end <= len(body)]
    return [body] if body else []


def head_of(answer: Answer, delivery: Delivery) -> bytes:
    """The status line and headers."""
    headers = list(answer.headers)
    if delivery.coding != "identity":
        headers.append((b"Content-Encoding", delivery.coding.encode()))
    if delivery.framing == "length":
        headers.append((b"Content-Length", b"%d" % len(encoded(answer, delivery.coding))))
    elif delivery.framing == "chunked":
        headers.append((b"Transfer-Encoding", b"chunked"))
    else:
        headers.append((b"Connection", b"close"))
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n" % (answer.status, answer.reason, lines)


async def deliver(peer: Peer, answer: Answer, delivery: Delivery) -> bool:
    """Put an answer on the wire; whether the connection goes on. Pieces arrive apart: each is read before the next."""
    head = head_of(answer, delivery)
    parts = cut(encoded(answer, delivery.coding), delivery.chunking)
    if delivery.framing == "chunked":
        parts = [*(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]
    if delivery.framing == "endless":
        await peer.send(head, *parts)
        await peer.gone()
        return False
    if delivery.chunking == "whole":
        head, parts = head + b"".join(parts), []
    await peer.send(head)
    for part in parts:
        await asyncio.sleep(0)  # the reader on the other side of this loop runs before the next piece is written
        await peer.send(part)
    return delivery.framing != "close"


def foreign(raw: Raw) -> list[Header]:
    """The headers that are no connection's own and not Carryon's, in order."""
    return [
        (name, value)
        for name, value in raw.headers
        if name.lower() not in _OF_CONNECTION and not name.lower().startswith(b"x-carryon-")
    ]


# --- what the client must have --------------------------------------------------------------------------


def handed_on(got: Raw, answer: Answer, delivery: Delivery) -> None:
    """The client has this answer: status line, body bytes as encoded, end-to-end headers in their order."""
    said = Raw(head_of(answer, delivery), b"")
    assert got.start == said.start
    assert got.body == encoded(answer, delivery.coding)
    assert foreign(got) == foreign(said)


def told(got: Raw) -> dict[str, str]:
    """What Carryon says of it."""
    ours = [(name.decode(), value.decode()) for name, value in got.headers if name.startswith(b"x-carryon-")]
    assert len(dict(ours)) == len(ours), "a header of ours is doubled"
    return {name.removeprefix("x-carryon-"): value for name, value in ours}
