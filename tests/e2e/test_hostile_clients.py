"""Malformed and smuggling requests, all the way: an upstream sees whole requests or nothing (I9, rule 10.1).

The witness reads strictly; one request in is at most one out; of ours come only the answers of rule 3.5.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.server import ServerBounds
from tests.e2e.hostile import SECRET, THOROUGH, Run, Seen, Witness, answered, between, own, replied, spelled, witness
from tests.server.test_connection import MALFORMED
from tests.sockets import client, reply
from tests.store.servers import Server

#: The first for what is answered at once, the second for what may stop anywhere.
_CALM = ServerBounds(linger=0.1, header=10.0, body_idle=10.0, keep_alive=0.1)
_HASTY = ServerBounds(linger=0.1, header=0.3, body_idle=0.3, keep_alive=0.1)
_FUZZ = {
    "suppress_health_check": list(HealthCheck),
    "deadline": None,
    "database": None,
    "phases": (Phase.generate, Phase.shrink),
    "derandomize": THOROUGH == 1,
}
_BODY = b'{"model":"hostile-1","messages":[{"role":"user","content":"hi"}]}'
_HIDDEN = b"POST /v1/hidden HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"


def _ok(seen: Seen) -> bytes:
    return reply(b'{"hidden":true}' if b"/hidden" in seen.start else b"{}")


def _before(upstream: Witness, store: Server, bounds: ServerBounds = _CALM) -> AbstractAsyncContextManager[Run]:
    """Carryon with a known window: it has nothing to ask of its own."""
    return between(upstream.url, store, window=1_000_000, bounds=bounds)


def _lines(run: Run) -> list[dict[str, object]]:
    """The lines of the log that stand for a request, one each."""
    found = [json.loads(line) for line in run.log.getvalue().splitlines()]
    return [line for line in found if line["event"] == "request"]


async def test_the_malformed_corpus_reaches_no_upstream(valkey: Server) -> None:
    """Each gets one answer of ours and one line in the log; the next client is served."""
    async with witness(_ok) as upstream, _before(upstream, valkey) as run:
        for name, raw in MALFORMED.items():
            before = len(_lines(run))
            got = await replied(run.port, raw)
            assert [one.own and own(one) for one in got] == [True], name
            assert [line["status"] for line in _lines(run)[before:]] == [got[0].status], name
        assert upstream.connections == 0
        assert (await answered(run.port, spelled(_BODY))).status == 200
        assert len(upstream.requests) == 1
        assert b"sk-very-secret" not in run.log.getvalue().encode()
        print(f"\nmalformed requests end to end: {len(MALFORMED)}")


#: A body within which another request hides, framed so that a lax reader on either side would see it.
_SMUGGLED = {
    "length, then chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    "chunks, then length": b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    "chunks spelled oddly": b"Transfer-Encoding: Chunked",
    "chunks in a list": b"Transfer-Encoding: identity, chunked",
    "chunks and another line": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "chunks behind a tab": b"Transfer-Encoding:\tchunked",
    "chunks with a space before the colon": b"Transfer-Encoding : chunked",
    "chunks in a folded line": b"Transfer-Encoding:\r\n chunked",
    "chunks in quotes": b'Transfer-Encoding: "chunked"',
    "chunks with a parameter": b"Transfer-Encoding: chunked;q=1",
    "an underscore": b"Transfer_Encoding: chunked\r\nContent-Length: 4",
    "the length made hop-by-hop": b"Connection: Content-Length\r\nContent-Length: %d",
    "the coding made hop-by-hop": b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d",
    "an underscored length": b"Content-Length: %d\r\nContent_Length: 0",
    "a length with a plus": b"Content-Length: +%d",
    "a length with zeros": b"Content-Length: 000%d",
    "a hexadecimal length": b"Content-Length: 0x4",
    "a length in a list": b"Content-Length: 0, %d",
    "a bare line feed": b"X: y\nContent-Length: 0\r\nContent-Length: %d",
    "a carriage return": b"X: y\rContent-Length: 0\r\nContent-Length: %d",
    "no length": b"X: y",
    "a hidden head": b"X: y\r\n\r\nGET /v1/hidden HTTP/1.1\r\nHost: h",
    "expect": b"Expect: 100-continue\r\nContent-Length: %d",
    "upgrade": b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAA\r\nContent-Length: %d",
}
_INNER = {
    "in chunks": b"0\r\n\r\n" + _HIDDEN,
    "in a chunk": b"%x\r\n%s\r\n0\r\n\r\n" % (len(_HIDDEN), _HIDDEN),
    "in a chunk's extension": b"1;a=\r\nb\r\nx\r\n0\r\n\r\n" + _HIDDEN,
    "in trailers": b"0\r\nContent-Length: 9\r\nX: " + _HIDDEN,
    "plain": _HIDDEN,
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"], ids=["read whole", "streamed"])
async def test_nothing_is_smuggled_past_the_door(path: str, valkey: Server) -> None:
    """Whatever the framing: the upstream sees as many requests as the door let in, each whole and framed once."""
    tried, outcomes = 0, Counter[int]()
    async with witness(_ok) as upstream, _before(upstream, valkey, _HASTY) as run:

        async def tries(frame: bytes, inner: bytes) -> None:
            head = frame % len(inner) if b"%d" in frame else frame
            raw = b"POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n%s"
            got = await replied(run.port, raw % (path.encode(), SECRET.encode(), head, inner))
            outcomes.update(one.status for one in got)
            assert all(map(own, got)), (frame, inner)

        for frame in _SMUGGLED.values():
            await asyncio.gather(*(tries(frame, inner) for inner in _INNER.values()))
            tried += len(_INNER)
        assert len(upstream.requests) + upstream.cut <= len(run.passed)
        for seen in upstream.requests:
            assert len(seen.values(b"content-length")) + len(seen.values(b"transfer-encoding")) <= 1
        print(
            f"\nsmuggling on {path}: {tried} requests, {dict(outcomes)}, {len(upstream.requests)} reached the upstream"
        )


_SEEDS = [
    spelled(_BODY),
    spelled(_BODY, b"Connection: X-Case, close", b"TE: trailers", b"Trailer: X"),
    spelled(b"%x;e=1\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(_BODY), _BODY), b"Transfer-Encoding: chunked", framed=False),
    spelled(
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(_BODY), _BODY), b"Transfer-Encoding: chunked", framed=False, target=b"/v1/x"
    ),
    b"GET /v1/models?a=b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + SECRET.encode() + b"\r\n\r\n",
    b"GET /other HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    spelled(_BODY, b"Expect: 100-continue"),
]
_TOKENS = st.sampled_from(
    [
        b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"%", b"/..", b"%2e%2e/", b"\\", b"?", b"#",
        b"//h/",
        b"http://127.0.0.1:1/", b"HTTP/1.0", b"HTTP/2", b"\r\n\r\n", b"0\r\n\r\n", b"Content-Length: 1\r\n",
        b"ffffffff",
        b"Transfer-Encoding: chunked\r\n", b"\r\n ", b"\xff", b"\xc3\xa9", b"\x80", b"-1", b"0x", b"9" * 20,
        b"Upgrade: websocket\r\n", b"Host: other\r\n", b"Connection: Host\r\n", b"Content-Encoding: gzip\r\n", _HIDDEN,
    ]
)  # fmt: skip


@st.composite
def _attack(draw: st.DrawFn) -> bytes:
    """One to three requests on one connection, changed in a few places."""
    raw = b"".join(draw(st.lists(st.sampled_from(_SEEDS), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(raw)))
        gone = draw(st.sampled_from([0, 0, 1, 1, 2, 8, 40]))
        raw = raw[:at] + draw(st.one_of(_TOKENS, st.binary(max_size=3))) + raw[at + gone :]
    return raw


@pytest.mark.timeout(120 * THOROUGH)
async def test_generated_attacks_reach_the_upstream_as_requests_or_not_at_all(valkey: Server) -> None:
    """Heads, framing and pipelines with bytes changed, inserted and dropped, sixteen connections at a time."""
    at_once, examples = 16, 16 * THOROUGH
    outcomes: Counter[int] = Counter()
    tried = 0
    async with witness(_ok) as upstream, _before(upstream, valkey, _HASTY) as run:
        loop = asyncio.get_running_loop()

        async def judged(attacks: list[bytes]) -> None:
            nonlocal tried
            tried += len(attacks)
            before, sent = len(run.passed), len(upstream.requests) + upstream.cut
            replies = await asyncio.gather(*(replied(run.port, attack) for attack in attacks))
            for attack, got in zip(attacks, replies, strict=True):
                outcomes.update(one.status for one in got)
                assert all(map(own, got)), attack
                assert sum(one.status >= 200 for one in got) <= attack.upper().count(b"HTTP/") + 1, attack
            let_in = len(run.passed) - before
            assert len(upstream.requests) + upstream.cut - sent <= let_in <= sum(a.count(b"HTTP/1.") for a in attacks)
            assert not upstream.malformed, upstream.malformed
            assert not run.faults, run.faults

        @settings(max_examples=examples, **_FUZZ)
        @given(st.lists(_attack(), min_size=at_once, max_size=at_once))
        def attacked(attacks: list[bytes]) -> None:
            asyncio.run_coroutine_threadsafe(judged(attacks), loop).result()

        await asyncio.to_thread(attacked)
        assert (await answered(run.port, spelled(_BODY, case=77))).status == 200
        assert len(upstream.of(77)) == 1
    assert tried >= examples * at_once
    print(f"\ngenerated attacks: {tried} connections, {dict(outcomes)}, {len(upstream.requests)} reached the upstream")


def _dots() -> list[str]:
    """Paths that some reader would climb."""
    once = [
        "..",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "%252e%252e",
        "%25252e%25252e",
        ".",
        "%2e",
        "..%2f",
        "..%5c",
        "..\\",
        "..;",
        "..;a=b",
        "%2e%2e%3b",
    ]
    slashes = ["/", "%2f", "%2F", "%252f", "\\", "%5c", "%255c"]
    found = [f"/v1{slash}{dot}{slash}secret" for dot in once for slash in slashes]
    return [
        *found,
        *(f"/u/x/{dot}/chat/completions" for dot in once),
        *(f"/{dot}" for dot in once),
        "/v1/chat/..",
        "/..",
    ]


async def test_dot_segments_are_404_in_every_spelling(valkey: Server) -> None:
    """What a reader that decodes up to three times, or knows path parameters, could climb is refused."""
    async with witness(_ok) as upstream, _before(upstream, valkey) as run:
        for path in _dots():
            got = await replied(run.port, b"GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % path.encode())
            assert [one.status for one in got] == [404], path
        assert upstream.connections == 0
        print(f"\ndot segments: {len(_dots())} spellings")


@pytest.mark.parametrize(
    "target", ["/v1/models/a%2Fb", "/v1/models/%c3%a9", "/v1/files/a..b;c", "/v1/...", "/v1/x?y=../z&%zz=%"]
)
async def test_odd_but_clean_targets_pass_to_the_byte(target: str, valkey: Server) -> None:
    """Carryon does not tidy up what is the upstream's to read."""
    async with witness(_ok) as upstream, _before(upstream, valkey) as run:
        await answered(run.port, b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % target.encode())
        assert [one.start for one in upstream.requests] == [b"GET %s HTTP/1.1" % target.encode()]


async def test_header_bytes_pass_both_ways_whatever_they_are(valkey: Server) -> None:
    """Latin-1, cut UTF-8, all bytes above ASCII: nothing is read as another encoding (rule 10.1)."""
    values = [b"caf\xe9", b"\xff\xfe", b"\xc3", "é".encode(), bytes(range(0x80, 0x100)), b"a\tb", quote("é").encode()]
    lines = b"".join(b"X-Odd: %s\r\n" % value for value in values)

    def echoed(seen: Seen) -> bytes:
        back = b"".join(b"X-Back: %s\r\n" % value for value in seen.values(b"x-odd"))
        return reply(b"{}", headers=back)

    async with witness(echoed) as upstream, _before(upstream, valkey) as run:
        for raw in (
            b"GET /v1/models HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n",
            spelled(_BODY, lines[:-2]),
            spelled(b"2\r\nhi\r\n0\r\n\r\n", lines + b"Transfer-Encoding: chunked", framed=False, target=b"/v1/files"),
        ):
            got = await answered(run.port, raw)
            assert upstream.requests[-1].values(b"x-odd") == values
            assert got.values(b"x-back") == values


async def test_a_broken_upload_is_one_line_and_one_broken_request(valkey: Server) -> None:
    """The client is told what broke, the log says the same once, and the upstream sees no end of the message."""
    head = b"POST /v1/files HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
    async with witness(_ok) as upstream, _before(upstream, valkey, _HASTY) as run:
        for rest, status in ((b"zz\r\n", 400), (b"", 408)):
            before = len(_lines(run))
            async with client(run.port) as peer:
                await peer.send(head, *([rest] if rest else []), pause=0.05)
                assert (await peer.message()).status == status
            assert [line["status"] for line in _lines(run)[before:]] == [status]
        assert upstream.requests == []
        await _settled(upstream, 2)


async def _settled(upstream: Witness, cut: int) -> None:
    async with asyncio.timeout(5):
        while upstream.cut < cut:  # noqa: ASYNC110 - counted by the witness
            await asyncio.sleep(0.01)
