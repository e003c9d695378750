"""Every path, credential and id of a client: what streams through, what is read, whose it is (rules 4.2, 10, 11.4).

The whole of Carryon stands between raw sockets and an upstream that answers while it is still being sent to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.hostile import CUT, Run, Seen, Witness, answered, between, witness
from tests.sockets import PATIENCE, Peer, Raw, client, reply
from tests.store.servers import Server

Json = dict[str, Any]
#: A place of an id: header lines, or a field with its value; `{}` is the id.
Source = tuple[tuple[bytes, ...], str, Any]
KEY = b"Bearer sk-paths"


# -- what streams through ---------------------------------------------------------------------------------------------

#: Method and target of requests that nobody reads; `{}` is the upstream's name.
THROUGH = (
    ("HEAD", "/"),
    ("GET", "/"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models?limit=1000&after=a%20b"),
    ("GET", "/models"),
    ("GET", "/v1/models/org%2Fmodel"),
    ("OPTIONS", "/v1/chat/completions"),
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/responses/resp_1?include[]=x"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/messages/count_tokens?beta=true"),
    ("POST", "/messages/count_tokens"),
    ("POST", "/v1/messages/batches"),
    ("POST", "/v1/embeddings"),
    ("POST", "/embeddings"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/files"),
    ("GET", "/v1/files/file-1/content"),
    ("DELETE", "/v1/files/file-1"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/images/edits"),
    ("PUT", "/v1/whatever/else"),
    ("PATCH", "/v1/whatever"),
    ("POST", "/api/chat"),
    ("POST", "/api/event_logging/batch"),
    ("POST", "/anything;x=1/@else?a&b=%00"),
    ("POST", "/openai/deployments/d/embeddings?api-version=1"),
    ("POST", "/openai/files"),
    ("POST", "/u/{}/v1/embeddings"),
    ("GET", "/u/{}/v1/models"),
    ("POST", "/u/{}/api/show"),
    ("HEAD", "/u/{}/"),
)
#: Bytes that are no text, in the form of an upload.
PIECES = (b"--b\r\nContent-Disposition: form-data; name=f\r\n\r\n\x00\xff\x1f\x8b", b"\xfe" * 70_000, b"\r\n--b--\r\n")


@dataclass(slots=True)
class Mirror:
    """An upstream that gives back each piece of a body as soon as it has it; `heads` is what it was sent."""

    port: int = 0
    heads: list[bytes] = field(default_factory=list)
    received: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                writer.write(b"HTTP/1.1 207 Mirrored\r\nX-Mirror: \xe9\r\nContent-Type: text/event-stream\r\n")
                if head.startswith(b"HEAD"):
                    writer.write(b"Content-Length: 77\r\n\r\n")
                    continue
                writer.write(b"Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n")
                async for piece in _body(reader, head):
                    self.received += len(piece)
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                writer.write(b"3\r\nend\r\n0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> AsyncIterator[bytes]:
    """The pieces of a body as they come, by its length or its chunks."""
    seen = Seen(head, b"")
    left = int(b"".join(seen.values(b"content-length")) or 0)
    while left and (piece := await reader.read(min(left, 1 << 16))):
        left -= len(piece)
        yield piece
    while seen.values(b"transfer-encoding"):
        size = int(await reader.readuntil(b"\r\n"), 16)
        piece = await reader.readexactly(size + 2)
        if not size:
            return
        yield piece[:-2]


@asynccontextmanager
async def mirrored(store: Server) -> AsyncIterator[tuple[Mirror, Run, str]]:
    """Carryon before a mirror; gives the name of its upstream as well."""
    mirror = Mirror()
    server = await asyncio.start_server(mirror.serve, "127.0.0.1", 0, limit=1 << 22)
    mirror.port = server.sockets[0].getsockname()[1]
    try:
        async with between(f"http://127.0.0.1:{mirror.port}/v1", store) as run:
            yield mirror, run, run.house.upstreams[0].name
    finally:
        server.close()


def _head(method: str, target: str, *lines: bytes) -> bytes:
    first = f"{method} {target} HTTP/1.1".encode()
    own = (b"Host: carryon", b"Authorization: " + KEY, b"X-Odd: \xe9\xff", b"X-Odd: twice", b"Accept: */*")
    return b"\r\n".join([first, *own, *lines, b"", b""])


def _expected(target: str, name: str) -> bytes:
    """The target at the upstream, whose base URL ends in `/v1`."""
    path = target.removeprefix(f"/u/{name}")
    below = path.startswith(("/models", "/embeddings", "/messages"))
    return (f"/v1{path}" if below else path).encode()


async def _takes(peer: Peer, expected: bytes) -> None:
    """Read from a chunked reply until these bytes came, and nothing else."""
    found = b""
    async with asyncio.timeout(PATIENCE):
        while len(found) < len(expected):
            size = int(await peer.reader.readuntil(b"\r\n"), 16)
            found += (await peer.reader.readexactly(size + 2))[:-2]
    assert found == expected


async def _mirrored_piecewise(peer: Peer, *, chunked: bool) -> Raw:
    """Send the pieces, each when the one before has come back; gives the head of the reply."""
    framed = [b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece for piece in PIECES]
    await peer.send(framed[0])
    got = await peer.message(bodiless=True)
    await _takes(peer, b"begin" + PIECES[0])
    await peer.send(framed[1])
    await _takes(peer, PIECES[1])
    await peer.send(framed[2] + b"0\r\n\r\n" * chunked)
    await _takes(peer, PIECES[2] + b"end")
    return got


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
async def test_what_is_no_turn_streams_untouched_both_ways(valkey: Server, *, chunked: bool) -> None:
    """The reply's first bytes are there before the request's last are sent; target, headers and bytes are the same."""
    async with mirrored(valkey) as (mirror, run, name):
        for method, shape in THROUGH:
            target = shape.format(name)
            has_body = method in {"POST", "PUT", "PATCH"}
            framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % sum(map(len, PIECES))
            async with client(run.port) as peer:
                await peer.send(_head(method, target, *([framing] if has_body else [])))
                if not has_body:
                    got = await peer.message(bodiless=method == "HEAD")
                    assert got.body == (b"" if method == "HEAD" else b"beginend"), target
                    assert got.values(b"content-length") == ([b"77"] if method == "HEAD" else []), target
                else:
                    got = await _mirrored_piecewise(peer, chunked=chunked)
            assert (got.status, got.values(b"x-mirror")) == (207, [b"\xe9"]), target
            sent = Seen(mirror.heads[-1], b"")
            assert sent.start == b"%s %s HTTP/1.1" % (method.encode(), _expected(target, name)), target
            assert (sent.values(b"authorization"), sent.values(b"x-odd")) == ([KEY], [b"\xe9\xff", b"twice"]), target
            assert sent.values(b"accept") == [b"*/*"], target
        assert len(mirror.heads) == len(THROUGH)
        print(f"\n{len(THROUGH)} paths streamed both ways, {mirror.received} bytes up")


@pytest.mark.parametrize("path", ["/v1/responses", "/responses", "/v1/realtime?model=m", "/", "/u/none/v1/responses"])
async def test_an_upgrade_is_426_wherever_it_is_asked_and_reaches_nobody(path: str, valkey: Server) -> None:
    """Codex falls back at once; the connection may be used for HTTP after it, or not at all."""
    upgrade = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: eA==")
    async with mirrored(valkey) as (mirror, run, _):
        async with client(run.port) as peer:
            await peer.send(_head("GET", path, *upgrade))
            got = await peer.message()
        assert (got.status, got.values(b"x-carryon-error")) == (426, [b"PROXY_NO_WEBSOCKET"])
        assert not mirror.heads


# -- what is read -----------------------------------------------------------------------------------------------------

#: Targets of turns, with the dialect each is read in. `{}` is the upstream's name.
TURNS = (
    ("/v1/chat/completions", "chat"),
    ("/chat/completions", "chat"),
    ("/v1/chat/completions?api-version=1", "chat"),
    ("/u/{}/v1/chat/completions", "chat"),
    ("/u/{}/chat/completions", "chat"),
    ("/openai/deployments/gpt%2D5/chat/completions?api-version=1", "chat"),
    ("/openai/v1/chat/completions", "chat"),
    ("/u/{}/openai/deployments/d/chat/completions", "chat"),
    ("/v1/responses", "responses"),
    ("/responses", "responses"),
    ("/v1/responses/compact", "responses"),
    ("/u/{}/v1/responses", "responses"),
    ("/openai/deployments/d/responses?api-version=1", "responses"),
    ("/openai/responses?api-version=2025-04-01-preview", "responses"),
    ("/openai/v1/responses", "responses"),
    ("/v1/messages?beta=true", "messages"),
    ("/messages", "messages"),
    ("/u/{}/v1/messages", "messages"),
)
BODIES: dict[str, Json] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "m", "input": [{"role": "user", "content": "hi"}]},
    "messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
}
#: How clients show their key: a header, or a field of the query.
CARRIERS = (b"Authorization: Bearer %s", b"x-api-key: %s", b"api-key: %s", b"x-goog-api-key: %s")
ACCEPTED = reply(b'{"ok":true}') + CUT


@asynccontextmanager
async def before(store: Server, **settings: object) -> AsyncIterator[tuple[Witness, Run]]:
    """Carryon before an upstream that accepts everything."""
    async with witness(lambda _: ACCEPTED) as upstream, between(upstream.url, store, window=9_000, **settings) as run:
        yield upstream, run


def _post(target: str, body: Json, *headers: bytes) -> bytes:
    raw = json.dumps(body).encode()
    lines = [f"POST {target} HTTP/1.1".encode(), b"Host: h", b"Content-Length: %d" % len(raw), *headers]
    return b"\r\n".join([*lines, b"", raw])


async def _id(run: Run, target: str, body: Json, *headers: bytes) -> bytes:
    """The conversation that a turn is taken for; empty where it is none."""
    got = await answered(run.port, _post(target, body, *headers))
    assert got.status == 200, got.head
    return b"".join(got.values(b"x-carryon-conversation"))


async def test_every_path_of_a_dialect_is_read_with_every_credential(valkey: Server) -> None:
    """It is a turn; the key goes on in its own header; another key is another conversation."""
    async with before(valkey) as (upstream, run):
        name = run.house.upstreams[0].name
        for shape, dialect in TURNS:
            target, body = shape.format(name), BODIES[dialect]
            if "/deployments/" in target and dialect == "chat":
                body = {key: value for key, value in body.items() if key != "model"}
            for carrier in CARRIERS:
                one, other = [carrier % key for key in (b"sk-one", b"sk-two")]
                found = [await _id(run, target, body, key) for key in (one, one, other)]
                assert found[0] == found[1] != found[2], (target, carrier)
                assert b"" not in found, target
                sent = upstream.requests[-1]
                header, _, value = other.partition(b": ")
                assert sent.values(header) == [value], (target, carrier)
                assert sent.body == json.dumps(body).encode(), target
            below = target.removeprefix(f"/u/{name}")
            expected = below if below.startswith(("/v1/", "/openai/")) else f"/v1{below}"
            assert sent.start == f"POST {expected} HTTP/1.1".encode(), target
        print(f"\n{len(TURNS)} paths of turns, {len(CARRIERS)} ways to show a key, {len(upstream.requests)} requests")


async def test_a_lent_key_goes_in_the_header_that_the_path_asks_for(valkey: Server) -> None:
    """None of the client's own goes on; Azure's paths take `api-key`, Messages `x-api-key`, the others a bearer."""
    async with witness(lambda _: ACCEPTED) as upstream:
        lent = {"lent": {"base_url": upstream.url, "api_key": "sk-lent"}}
        async with between(upstream.url, valkey, window=9_000, upstreams=lent) as run:
            for shape, dialect in TURNS:
                target = shape.format("lent")
                await _id(run, target, BODIES[dialect], b"Cookie: a=b", b"X-Own: 1")
                sent = upstream.requests[-1]
                azure = "/openai/" in target and "/openai/v1/" not in target
                header = b"api-key" if azure else b"x-api-key" if dialect == "messages" else b"authorization"
                value = b"Bearer sk-lent" if header == b"authorization" else b"sk-lent"
                shown = [found for found in (b"api-key", b"x-api-key", b"authorization") if sent.values(found)]
                assert (shown, sent.values(header)) == ([header], [value]), target


# -- whose it is ------------------------------------------------------------------------------------------------------

#: Where clients put the id of a conversation, best first (as observed on them).
HEADERS = (
    "x-carryon-scope",
    "x-session-id",
    "x-claude-code-session-id",
    "x-deepseek-harness-session-id",
    "x-opencode-session",
    "session_id",
    "agent-session-id",
    "x-task-id",
    "x-litellm-session-id",
    "x-session-affinity",
    "thread-id",
    "session-id",
)
#: And in bodies. `conversation` of Responses names a history at the server: that is no turn of ours.
FIELDS: tuple[tuple[str, Any], ...] = (
    ("conversation", "{}"),
    ("conversation", {"id": "{}"}),
    ("client_metadata", {"thread_id": "{}"}),
    ("session_id", "{}"),
    ("prompt_cache_key", "{}"),
    ("metadata", {"session_id": "{}"}),
    ("metadata", {"user_id": '{"session_id":"{}"}'}),
)
#: What identifies nobody's conversation.
NEITHER_HEADERS = (
    "x-client-request-id",
    "x-request-id",
    "x-parent-session-id",
    "referer",
    "user-agent",
    "idempotency-key",
)
NEITHER_FIELDS = ("user", "safety_identifier", "store", "service_tier")


def _filled(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace("{}", name))


def _sources(dialect: str) -> Iterator[Source]:
    """Each place of an id, best first: header lines and a field with its value, each with `{}` for the id."""
    yield from (((f"{header}: ".encode() + b"{}",), "", None) for header in HEADERS)
    yield from (((), key, value) for key, value in FIELDS if (dialect, key) != ("responses", "conversation"))


def _shown(source: Source, name: str, body: Json) -> tuple[Json, list[bytes]]:
    lines, key, value = source
    filled = _filled(value, name)
    if isinstance(filled, dict):
        filled = {**body.get(key, {}), **filled}
    return ({**body, key: filled} if key else body), [line.replace(b"{}", name.encode()) for line in lines]


def clash(one: Source, other: Source) -> bool:
    """Whether a body has room for one of the two only: `conversation` is text or an object."""
    return one[1] == other[1] == "conversation"


@pytest.mark.parametrize("dialect", BODIES)
async def test_ids_are_found_wherever_a_client_puts_them_best_first(dialect: str, valkey: Server) -> None:
    """Another id is another conversation, the better place decides, and all of them go on untouched."""
    target = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}[dialect]
    async with before(valkey) as (upstream, run):
        plain = BODIES[dialect]
        none = await _id(run, target, plain, b"Authorization: " + KEY)
        sources = list(_sources(dialect))

        async def asked(*shown: tuple[int, str]) -> bytes:
            body, lines = plain, [b"Authorization: " + KEY]
            for index, name in shown:
                body, more = _shown(sources[index], name, body)
                lines += more
            found = await _id(run, target, body, *lines)
            sent = upstream.requests[-1]
            assert sent.body == json.dumps(body).encode()
            for line in lines:
                header, _, value = line.partition(b": ")
                assert sent.values(header) == ([] if header.startswith(b"x-carryon") else [value])
            return found

        for at in range(len(sources)):
            one = await asked((at, "one"))
            assert len({none, one, await asked((at, "two"))}) == 3, sources[at]
            assert await asked((at, "one")) == one, sources[at]
            assert await asked((at, "x" * 257)) == none, sources[at]
            below = [other for other in range(at + 1, len(sources)) if not clash(sources[at], sources[other])]
            assert {await asked((at, "one"), (other, "two")) for other in below} <= {one}, sources[at]
        for header in NEITHER_HEADERS:
            assert await _id(run, target, plain, b"Authorization: " + KEY, header.encode() + b": one") == none, header
        for key in NEITHER_FIELDS:
            assert await _id(run, target, {**plain, key: "one"}, b"Authorization: " + KEY) == none, key
        print(f"\n{dialect}: {len(sources)} places of an id, {len(upstream.requests)} requests")


async def test_one_id_at_two_upstreams_or_in_two_dialects_is_two_conversations(valkey: Server) -> None:
    """Nobody's surface is laid on a history of another API or another place."""
    async with witness(lambda _: ACCEPTED) as upstream:
        two = {"first": upstream.url, "second": upstream.url}
        async with between(upstream.url, valkey, window=9_000, upstreams=two) as run:
            headers = (b"Authorization: " + KEY, b"x-session-id: s")
            targets = ("/v1/chat/completions", "/u/second/v1/chat/completions", "/v1/messages", "/v1/responses")
            bodies = (BODIES["chat"], BODIES["chat"], BODIES["messages"], BODIES["responses"])
            found = [await _id(run, target, body, *headers) for target, body in zip(targets, bodies, strict=True)]
            assert len(set(found)) == 4
            assert await _id(run, "/u/first/v1/chat/completions", BODIES["chat"], *headers) == found[0]
