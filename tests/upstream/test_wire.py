"""One call on the wire: exactly what was given goes out, exactly what came is returned, nothing twice."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import aiohttp
import pytest

from proxy.upstream import Call, Delivered, Peer, UpstreamError
from proxy.upstream.wire import translate
from tests.sockets import Peer as End
from tests.sockets import Raw, collect, raw_upstream, reply, until

if TYPE_CHECKING:
    from tests.upstream.conftest import Calling


def call(url: str, body: bytes | AsyncIterator[bytes] = b"", *, method: str = "POST", headers=()) -> Call:  # noqa: ANN001 - whatever the test scripts
    """Make a call to an upstream named `up`."""
    return Call(upstream="up", method=method, url=url, headers=headers, body=body)


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    """Give parts."""
    for part in parts:
        yield part


async def test_exactly_the_given_headers_go_out(calling: Calling) -> None:
    """No automatic header, no cookie, no decoding: order, repeats and the query stay as they are."""
    headers = (
        ("X-b", "2"),
        ("x-dup", "1"),
        ("X-Dup", "2"),
        ("Under_score", "é"),
        ("Cookie", "a=1; b=2"),
        ("Connection", "X-Hop"),
        ("x-hop", "gone"),
        ("Expect", "100-continue"),
        ("Host", "evil.example"),
        ("Content-Length", "999"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Encoding", "gzip"),
    )
    body = gzip.compress(b"{}")
    async with raw_upstream(reply()) as up, calling() as client:
        sent = call(up.url + "/v1/a%2Fb?x=%2f&y=a+b&z", body, headers=headers)
        outcome = await client.send(sent)
        assert b"".join([chunk async for chunk in outcome.reply]) == b"{}"
        await outcome.reply.aclose()
    (raw,) = up.requests
    assert raw.body == body
    assert raw.head == (
        b"POST /v1/a%%2Fb?x=%%2f&y=a+b&z HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-b: 2\r\nx-dup: 1\r\nx-dup: 2\r\n"
        b"Under_score: \xc3\xa9\r\nCookie: a=1; b=2\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    ) % (up.port, len(body))


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example/x",
        "/@evil.example",
        "/a;b=c/d,e",
        "/a%2F%2f%20%zz",
        "/a?b=c?d&e=/f&&g=+%2B",
        "/é/ü?q=ß",
        "/a[b]{c}|^`'\"<>",
        "/v1/models:generate",
    ],
)
async def test_the_target_goes_out_to_the_byte(calling: Calling, target: str) -> None:
    """Nothing is normalised, quoted or unquoted, and nothing in it names another host."""
    async with raw_upstream(reply()) as up, calling() as client:
        await (await client.send(call(up.url + target))).reply.aclose()
    assert up.requests[0].start == b"POST %s HTTP/1.1" % target.encode()


@pytest.mark.parametrize("inspect", [True, False])
@pytest.mark.parametrize("name", ["x-carryon-action", "X-Carryon-Error", "x-carryon-anything", "X-CARRYON"])
async def test_an_upstream_does_not_speak_in_our_name(calling: Calling, name: str, *, inspect: bool) -> None:
    """Another Carryon behind this one, or one who means ill: only what this one did is told (rule 10.1)."""
    theirs = (b"X-Upstream: yes", name.encode() + b": overflow-retry", b"x-carry: on")
    said = b"HTTP/1.1 200 OK\r\n" + b"\r\n".join((*theirs, b"Content-Length: 2", b"", b"{}"))
    async with raw_upstream(said) as up, calling() as client:
        outcome = await client.send(call(up.url, b"{}"), dialect="chat", inspect=inspect)
        await outcome.reply.aclose()
    assert outcome.reply.headers == (("X-Upstream", "yes"), ("x-carry", "on"), ("Content-Length", "2"))


async def test_header_bytes_that_are_no_utf8_go_out_as_they_came(calling: Calling) -> None:
    """With a body and without: to the byte."""
    async with raw_upstream(reply(), keep=True) as up, calling() as client:
        for body in (b"", b"x", bytes(1 << 19)):
            sent = call(up.url, body, headers=(("X-Title", "caf\udce9"), ("X-Both", "é\udcff")))
            await (await client.send(sent)).reply.aclose()
    for raw in up.requests:
        assert (raw.values(b"x-title"), raw.values(b"x-both")) == ([b"caf\xe9"], ["é".encode() + b"\xff"])
    assert len(up.requests) == 3


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nB: c", "a\0", "a\x7f"])
async def test_a_header_that_would_be_another_is_not_sent(calling: Calling, value: str) -> None:
    """The operator's own headers too: nothing ends a line but its end."""
    async with raw_upstream(reply()) as up, calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url, headers=(("X-A", value),)))
    assert caught.value.kind == "invalid"
    assert up.requests == []


async def test_a_body_that_breaks_off_is_no_failure_of_the_upstream(calling: Calling) -> None:
    """What the body raised comes through, and the upstream sees the call end."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"ab"
        raise LookupError("the client's own")

    async def script(peer: End) -> None:
        await peer.gone()

    async with raw_upstream(script) as up, calling() as client:
        with pytest.raises(LookupError, match="the client's own"):
            await client.send(call(up.url, broken(), headers=(("Content-Length", "9"),)))


@pytest.mark.parametrize(
    ("body", "headers", "framing"),
    [
        (b"abc", (), (b"content-length", b"3")),
        (b"", (), (b"content-length", b"0")),
        (bytes(3 << 20), (), (b"content-length", b"%d" % (3 << 20))),
        ((b"ab", b"c"), (("content-length", "3"),), (b"content-length", b"3")),
        ((b"ab", b"c"), (), (b"transfer-encoding", b"chunked")),
        ((b"ab", b"c"), (("Transfer-Encoding", "chunked"),), (b"transfer-encoding", b"chunked")),
    ],
)
async def test_bodies_are_framed_once(
    calling: Calling,
    body: bytes | tuple[bytes, ...],
    headers: tuple[tuple[str, str], ...],
    framing: tuple[bytes, bytes],
) -> None:
    """Whole bodies say their length; streams keep theirs, or go in chunks."""
    given = body if isinstance(body, bytes) else chunks(*body)
    async with raw_upstream(reply()) as up, calling() as client:
        await (await client.send(call(up.url, given, headers=headers))).reply.aclose()
    (raw,) = up.requests
    assert raw.body == (body if isinstance(body, bytes) else b"".join(body))
    assert [(k.lower(), v) for k, v in raw.headers if k.lower() in (b"content-length", b"transfer-encoding")] == [
        framing
    ]


async def test_a_get_has_no_body(calling: Calling) -> None:
    """Neither a length nor chunks."""
    async with raw_upstream(reply()) as up, calling() as client:
        await (await client.send(call(up.url, method="GET"))).reply.aclose()
    assert [name for name, _ in up.requests[0].headers] == [b"Host"]


async def test_the_reply_is_what_came(calling: Calling) -> None:
    """Status, reason, order, repeats, invalid bytes and the encoded body; hop-by-hop headers are gone."""
    body = gzip.compress(b"hello")
    head = (
        b"HTTP/1.1 207 Fine \xe9\r\nx-A: caf\xe9\r\nSet-Cookie: a\r\nset-cookie: b\r\nServer: s\r\nDate: d\r\n"
        b"Keep-Alive: timeout=5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Encoding: gzip\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(head, *[b"1;x=y\r\n%c\r\n" % byte for byte in body], b"0\r\nTrailer: x\r\n\r\n", pause=0.001)

    async with raw_upstream(script) as up, calling() as client:
        outcome = await client.send(call(up.url))
        assert isinstance(outcome, Delivered)
        got = b"".join([chunk async for chunk in outcome.reply])
    assert got == body
    assert outcome.reply.finished
    assert (outcome.reply.status, outcome.reply.reason) == (207, "Fine \udce9")
    assert outcome.reply.headers == (
        ("x-A", "caf\udce9"),
        ("Set-Cookie", "a"),
        ("set-cookie", "b"),
        ("Server", "s"),
        ("Date", "d"),
        ("Content-Encoding", "gzip"),
    )


async def test_redirects_are_passed_and_not_followed(calling: Calling) -> None:
    """A redirect could lead anywhere (rule 10.2)."""
    moved = reply(b"", status="307 Temporary Redirect", headers=b"Location: http://127.0.0.1:1/\r\nSet-Cookie: a=1\r\n")
    async with raw_upstream(moved, keep=True) as up, calling() as client:
        for _ in range(2):
            outcome = await client.send(call(up.url, b"x"))
            assert outcome.reply.status == 307
            await outcome.reply.aclose()
    assert len(up.requests) == 2
    assert not any(raw.values(b"cookie") for raw in up.requests)


async def test_environment_proxies_are_not_used(calling: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a configured proxy is."""
    async with raw_upstream(reply(b"direct")) as up, raw_upstream(reply(b"proxied")) as via:
        monkeypatch.setenv("HTTP_PROXY", via.url)
        async with calling() as client:
            assert [c async for c in (await client.send(call(up.url))).reply] == [b"direct"]
        async with calling(peers={"up": Peer(proxy=via.url)}) as client:
            assert [c async for c in (await client.send(call(up.url + "/x"))).reply] == [b"proxied"]
    assert via.requests[0].start == b"POST %s/x HTTP/1.1" % up.url.encode()


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_stale_connection_is_not_tried_again(calling: Calling, method: str) -> None:
    """A request whose connection died may have been executed: one error, one copy."""

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(reply())
        await peer.message()
        peer.writer.close()

    async with raw_upstream(script) as up, calling() as client:
        await _drain(await client.send(call(up.url, b"1", method=method)))
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url, b"2", method=method))
    assert caught.value.kind == "dropped"
    assert [raw.body for raw in up.requests] == [b"1", b"2"]
    assert up.connections == 1


async def _drain(outcome) -> bytes:  # noqa: ANN001 - whatever the test scripts
    return b"".join([chunk async for chunk in outcome.reply])


async def test_connections_are_reused_and_not_kept_long(calling: Calling) -> None:
    """Two calls share one; after the idle time there is a new one."""
    async with raw_upstream(reply(), keep=True) as up, calling(idle=0.2) as client:
        for _ in range(2):
            await _drain(await client.send(call(up.url)))
        assert up.connections == 1
        await asyncio.sleep(0.5)
        await _drain(await client.send(call(up.url)))
        assert up.connections == 2


async def _silent(peer: End) -> None:
    await peer.message()
    await peer.gone()


async def _half(peer: End) -> None:
    await peer.message()
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")


async def _garbage(peer: End) -> None:
    await peer.message()
    await peer.send(b"SSH-2.0-OpenSSH\r\n\r\n")


async def _reset(peer: End) -> None:
    await peer.message()


async def _huge_head(peer: End) -> None:
    await peer.message()
    await peer.send(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200_000 + b"\r\n\r\n")


async def _switch(peer: End) -> None:
    await peer.message()
    await peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")


@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        (_silent, "first_byte", 504),
        (_half, "dropped", 502),
        (_garbage, "malformed", 502),
        (_reset, "dropped", 502),
        (_huge_head, "malformed", 502),
        (_switch, "malformed", 502),
    ],
)
async def test_failures_before_a_reply_have_a_kind(calling: Calling, script, kind: str, status: int) -> None:  # noqa: ANN001 - whatever the test scripts
    """None of them is sent again."""
    async with raw_upstream(script) as up, calling(connect=0.1, first_byte=0.3) as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url, b"x"))
    assert (caught.value.kind, caught.value.status) == (kind, status)
    assert up.connections == 1


async def test_a_refused_connection_is_connect(calling: Calling) -> None:
    """Nothing was sent."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(f"http://127.0.0.1:{port}"))
    assert caught.value.kind == "connect"


async def test_a_server_that_speaks_no_tls_is_tls(calling: Calling) -> None:
    """Nothing is sent in the clear instead."""

    async def script(peer: End) -> None:
        await peer.reader.read(100)
        await peer.send(reply())

    async with raw_upstream(script) as up, calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url.replace("http:", "https:")))
    assert caught.value.kind == "tls"


async def test_the_time_for_connecting_is_no_time_for_answering(calling: Calling) -> None:
    """The wait for the first byte begins with the connection, a fresh one or a kept one."""

    async def once(peer: End) -> None:
        await peer.message()
        await peer.send(reply())
        await peer.rest()

    loop = asyncio.get_running_loop()
    async with raw_upstream(once) as up, calling(connect=30.0, first_byte=0.3) as client:
        await _drain(await client.send(call(up.url, b"x")))
        began = loop.time()
        with pytest.raises(UpstreamError):
            await client.send(call(up.url, b"x"))
        assert up.connections == 1
        assert loop.time() - began < 10.0
    async with raw_upstream(_silent) as up, calling(connect=30.0, first_byte=0.3) as client:
        began = loop.time()
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url, b"x"))
        assert caught.value.kind == "first_byte"
        assert loop.time() - began < 10.0


async def test_an_answer_before_the_end_of_an_upload_does_not_break_it(calling: Calling) -> None:
    """The body goes on to its end beside the reply."""
    answered, whole = asyncio.Event(), asyncio.Event()

    async def early(peer: End) -> None:
        await peer.reader.readuntil(b"one")
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await peer.reader.readuntil(b"three")
        whole.set()
        await peer.send(b"{}")

    async def upload() -> AsyncIterator[bytes]:
        yield b"one"
        await answered.wait()
        yield b"two"
        yield b"three"

    async with raw_upstream(early) as up, calling() as client:
        outcome = await client.send(call(up.url, upload()))
        answered.set()
        assert await _drain(outcome) == b"{}"
        assert whole.is_set()


async def test_a_long_upload_does_not_count_as_silence(calling: Calling) -> None:
    """The wait for the first byte begins when the body has been sent: a client that is slow is no slow upstream."""

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(0.6)
        yield b"y"

    async with raw_upstream(reply()) as up, calling(connect=0.1, first_byte=0.3) as client:
        await _drain(await client.send(call(up.url, slow())))
    assert up.requests[0].body == b"xy"


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n|abc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n|zz\r\n", b"abc"),
    ],
)
async def test_a_reply_that_breaks_off_gives_what_came_and_then_fails(
    calling: Calling, sent: bytes, got: bytes
) -> None:
    """A short body never looks whole, nor one whose chunks are broken."""
    received: list[bytes] = []

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(*sent.split(b"|"), pause=0.05)

    async with raw_upstream(script) as up, calling() as client:
        outcome = await client.send(call(up.url))
        with pytest.raises(UpstreamError) as caught:
            await collect(outcome.reply, received)
    assert caught.value.kind == "dropped"
    assert b"".join(received) == got
    assert not outcome.reply.finished


async def test_surplus_bytes_are_not_part_of_the_reply(calling: Calling) -> None:
    """What follows the announced length is dropped, and so is the connection."""
    async with raw_upstream(reply(b"abc") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", keep=True) as up:
        async with calling() as client:
            for _ in range(2):
                assert await _drain(await client.send(call(up.url))) == b"abc"
        assert up.connections == 2


async def test_what_nobody_asked_for_is_not_the_next_reply(calling: Calling) -> None:
    """A reply that came while the connection waited for its next request is nobody's."""
    poisoned = asyncio.Event()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(reply(b"asked for"))
        if up.connections == 1:
            await asyncio.sleep(0.05)  # the first reply has been read, its connection waits
            await peer.send(reply(b"poison"))
            poisoned.set()
        await peer.gone()

    async with raw_upstream(script) as up, calling() as client:
        for _ in range(2):
            outcome = await client.send(call(up.url))
            assert await _drain(outcome) == b"asked for"
            await poisoned.wait()
            await asyncio.sleep(0.05)  # it is there by now
    assert up.connections == 2


async def test_a_connection_that_switched_protocols_is_closed(calling: Calling) -> None:
    """Not given to the next request: it speaks something else now."""
    left = asyncio.Event()

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n")
        await peer.gone(within=3)
        left.set()

    async with raw_upstream(script) as up, calling() as client:
        with pytest.raises(UpstreamError, match="switched protocols"):
            await client.send(call(up.url))
        async with asyncio.timeout(3):
            await left.wait()


async def test_a_reply_without_length_ends_with_its_connection(calling: Calling) -> None:
    """As old servers do."""
    async with raw_upstream(b"HTTP/1.0 200 OK\r\n\r\nabc") as up, calling() as client:
        assert await _drain(await client.send(call(up.url))) == b"abc"


async def test_a_stream_that_falls_silent_fails(calling: Calling) -> None:
    """The idle time-out is per chunk."""

    async def script(peer: End) -> None:
        await peer.message()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"a", b"b", b"c", pause=0.15)
        await peer.gone()

    async with raw_upstream(script) as up, calling(stream_idle=0.3) as client:
        outcome = await client.send(call(up.url))
        with pytest.raises(UpstreamError) as caught:
            await _drain(outcome)
        await outcome.reply.aclose()
    assert caught.value.kind == "stream_idle"


@pytest.mark.parametrize("cancel_at", ["prefill", "stream"])
async def test_leaving_closes_the_upstream_within_a_second(calling: Calling, cancel_at: str) -> None:
    """Cancelled before the head, or closed in the middle of the body."""
    left: asyncio.Queue[float] = asyncio.Queue()

    async def script(peer: End) -> None:
        await peer.message()
        if cancel_at == "stream":
            await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await left.put(await peer.gone())

    async with raw_upstream(script) as up, calling() as client:
        sending = asyncio.ensure_future(client.send(call(up.url, b"x")))
        if cancel_at == "prefill":
            await until(lambda: up.requests)
            sending.cancel()
        else:
            outcome = await sending
            async for _ in outcome.reply:
                break
            await outcome.reply.aclose()
        async with asyncio.timeout(1):
            assert await left.get() < 1


async def test_an_informational_head_is_skipped(calling: Calling) -> None:
    """`103 Early Hints` is not the reply."""
    async with raw_upstream(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply(b"abc")) as up, calling() as client:
        assert await _drain(await client.send(call(up.url))) == b"abc"


async def test_nothing_of_a_call_is_logged(calling: Calling, caplog: pytest.LogCaptureFixture) -> None:
    """Neither what we sent nor what came back malformed."""
    caplog.set_level(logging.DEBUG)
    async with raw_upstream(b"HTTP/1.1 200 OK\r\nsk-secret\r\n\r\n") as up, calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(up.url, b"sk-secret", headers=(("Authorization", "sk-secret"),)))
    assert "sk-secret" not in caplog.text + str(caught.value)


def test_every_failure_of_the_library_is_named() -> None:
    """And what is not the upstream's fault stays what it is."""
    assert translate(aiohttp.ServerDisconnectedError(), "up").kind == "dropped"  # type: ignore[union-attr]
    assert translate(aiohttp.InvalidURL("x"), "up").kind == "invalid"  # type: ignore[union-attr]
    assert translate(ssl.SSLError(), "up").kind == "tls"  # type: ignore[union-attr]
    assert translate(ConnectionResetError(), "up").kind == "dropped"  # type: ignore[union-attr]
    assert translate(KeyError(), "up") is None


def test_raw_reads_its_headers() -> None:
    """The tests' own reader splits what it should."""
    assert Raw(b"HTTP/1.1 200 OK\r\nA: b\r\na:c\r\n\r\n", b"").values(b"A") == [b"b", b"c"]


async def test_an_upstream_that_is_down_is_named_as_configured(calling: Calling) -> None:
    """What to look at, and never where it stands: hosts are the operator's."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    async with calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(call(url))
        with pytest.raises(UpstreamError) as unknown:
            await client.send(call("http://no-such-host.invalid/v1"))
    assert str(caught.value) == "no connection to the upstream 'up': is it running?"
    assert str(unknown.value) == "the host name of the upstream 'up' is not known: is its base_url right?"


async def test_a_proxy_that_is_down_is_told_from_its_upstream(calling: Calling) -> None:
    """The cure is elsewhere."""
    async with calling({"up": Peer(proxy="http://127.0.0.1:9")}) as client:
        with pytest.raises(UpstreamError, match="no connection to the proxy before the upstream 'up'"):
            await client.send(call("http://127.0.0.1:9/v1"))
