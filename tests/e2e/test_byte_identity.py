"""What was never compacted passes byte for byte, both ways, between raw sockets (rules 3.1, I15)."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from proxy.boot import opened
from proxy.exchange import exchange
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Door
from proxy.settings import Settings
from tests.sockets import Peer, Raw, RawUpstream, client, raw_upstream
from tests.store.servers import Server

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
#: Headers that name or frame one connection.
_OF_CONNECTION = {b"host", b"connection", b"content-length", b"transfer-encoding", b"expect"}

_ODD = (
    b'{ "id" :"r",\n\t"choices":[{"message":{"role":"assistant","content":"a\\u00e9 \xc3\xa9"}}], "x_more":1.500 }\n\n'
)
_SSE = (
    b": a comment\r\n\r\n",
    b'data: {"id":"r","choices":[{"delta":{"role":"assistant","content":""}}],"unknown":[1e400]}\r\n\r\n',
    b'data: {"choices":[{"delta":{"content":"\xc3',
    b'\xa9"}}]}\n\nevent: x-own\ndata: what is this\n\nretry: 10\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n',
    b"data: [DONE]\n\n",
)


def _whole(status: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, lines, len(body), body)


def _chunked(status: bytes, chunks: tuple[bytes, ...], *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 %s\r\n%sTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % (status, lines, framed)


_JSON, _EVENTS = b"Content-Type: application/json", b"content-type: text/event-stream; charset=utf-8"
REPLIES = {
    "odd JSON": _whole(b"200 OK", _ODD, _JSON, b"X-Twice: 1", b"x-twice: 2", b"X_Under: score", b"Server: theirs"),
    "a stream": _chunked(b"200 OK", _SSE, _EVENTS, b"Cache-Control: no-cache"),
    "a stream, one byte a chunk": _chunked(b"200 OK", tuple(bytes([b]) for b in b"".join(_SSE)), _EVENTS),
    "a compressed reply": _whole(b"200 OK", gzip.compress(_ODD), _JSON, b"Content-Encoding: gzip"),
    "an unknown coding": _whole(b"200 OK", b"\x00\x01\x02", _JSON, b"Content-Encoding: x-own"),
    "a refusal": _whole(b"429 Slow Down", b'{"error": {"message" : "slow\xff\xfe"}', _JSON, b"Retry-After: 7"),
    "a compressed refusal": _whole(b"400 Bad", gzip.compress(b'{"error":"no"}'), _JSON, b"Content-Encoding: gzip"),
    "a cut refusal": _whole(b"500 Oh", b'{"error": {"mess', _JSON),
    "an empty refusal": _whole(b"503 Away", b"", b"Retry-After: 1"),
    "a redirect": _whole(b"307 Elsewhere", b"", b"Location: http://127.0.0.1:1/v1"),
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded request: its label, head lines and body."""

    label: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def spelled(self) -> bytes:
        """The request on the wire."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: carryon"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "Authorization: Bearer sk-mine", "", ""]).encode() + self.body


def _recorded() -> Iterator[Recorded]:
    for file in sorted(CAPTURES.glob("*.json")):
        for request in json.loads(file.read_text())["requests"]:
            headers = tuple((name, value) for name, value in request["headers"] if name.lower() != "connection")
            if any(name.lower() == "upgrade" for name, _ in headers):
                continue
            body = b"" if request["body"] is None else json.dumps(request["body"], ensure_ascii=False).encode()
            yield Recorded(f"{file.stem} #{request['n']}", request["method"], request["path"], headers, body)


RECORDED = list(_recorded())


@asynccontextmanager
async def _between(upstream: RawUpstream, store: Server, window: int | None) -> AsyncIterator[int]:
    """The whole of Carryon before this upstream; gives its port. None of its parts is replaced."""
    settings = Settings.model_validate(
        {
            "upstreams": {"up": f"{upstream.url}/v1"},
            "redis": {"url": store.url, "durability": "memory", "timeout": "2s"},
            "secret": "a secret of at least thirty-two characters",
            "defaults": {"context_window": window, "window_kind": "total"} if window else {},
        }
    )
    async with opened(settings) as house:
        door = Door(partial(exchange, house), ServerBounds(linger=0.2), on_fault=lambda: house.fault("the door"))
        try:
            yield await door.listen()
        finally:
            await door.close()
        assert house.internal_faults == 0


def _foreign(raw: Raw) -> list[tuple[bytes, bytes]]:
    """The headers that are no connection's own and not Carryon's, in order."""
    return [
        (name, value)
        for name, value in raw.headers
        if name.lower() not in _OF_CONNECTION and not name.lower().startswith(b"x-carryon-")
    ]


def _body(reply: bytes) -> Raw:
    """A scripted reply as a reader sees it."""
    head, _, rest = reply.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return Raw(head + b"\r\n\r\n", rest)
    body = b""
    while size := int(rest[: rest.index(b"\r\n")], 16):
        start = rest.index(b"\r\n") + 2
        body, rest = body + rest[start : start + size], rest[start + size + 2 :]
    return Raw(head + b"\r\n\r\n", body)


@pytest.mark.parametrize("window", [None, 1_000_000], ids=["window unknown", "window known"])
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
async def test_what_was_never_compacted_is_the_same_bytes_both_ways(
    reply: bytes, window: int | None, valkey: Server
) -> None:
    """Every recorded request of every client, with every kind of reply; and no record of any of them."""
    valkey.client().flushall()
    seen: list[Raw] = []

    async def serve(peer: Peer) -> None:
        while True:
            raw = await peer.message()
            asked = raw.values(b"authorization") and raw.values(b"x-mark")
            if not asked:
                await peer.send(_whole(b"404 No", b"{}", _JSON))
                continue
            seen.append(raw)
            await peer.send(reply)

    async with raw_upstream(serve) as upstream, _between(upstream, valkey, window) as port, client(port) as peer:
        for recorded in RECORDED:
            marked = Recorded(
                recorded.label, recorded.method, recorded.path, (*recorded.headers, ("X-Mark", "1")), recorded.body
            )
            await peer.send(marked.spelled())
            got = await peer.message()
            sent = seen.pop()
            assert not seen, recorded.label
            given = Raw(marked.spelled().partition(b"\r\n\r\n")[0] + b"\r\n\r\n", marked.body)
            assert sent.start == given.start, recorded.label
            assert sent.body == given.body, recorded.label
            assert sorted(_foreign(sent)) == sorted(_foreign(given)), recorded.label
            said = _body(reply)
            assert got.start == said.start, recorded.label
            assert got.body == said.body, recorded.label
            assert _foreign(got) == _foreign(said), recorded.label
    assert [key for key in valkey.client().scan_iter("*") if "{" in key and ":model:" not in key] == []
