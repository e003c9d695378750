"""Time-outs: each ends what is too slow with the status and code of `docs/operations.md`, and nothing is sent again."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

from tests.e2e import patient as acts
from tests.e2e.agent import TASK
from tests.e2e.carryon import Carryon
from tests.e2e.patient import HEAD, Copy, Patient, asking, chunk, delta
from tests.e2e.talk import WINDOW, body, history
from tests.sockets import client
from tests.store.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Every time-out but that of a summary, and how much later than that the client may learn of it.
SHORT, SUMMARY = 0.5, 0.3
SLACK = 3.0


@pytest.fixture(scope="module")
def full() -> Iterator[str]:
    """An address that takes no more connections: the kernel drops whoever asks for one."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)  # noqa: FBT003 - its only argument
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Patient]:
    """The upstream; tests keep apart by their models."""
    async with acts.patient() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(
    upstream: Patient, full: str, ledger: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Carryon]:
    """`carryon serve` with little patience, before three upstreams."""
    names = ("HEADER", "BODY_IDLE", "CONNECT", "FIRST_BYTE", "STREAM_IDLE")
    settings = {
        "CARRYON_REDIS__URL": ledger.url,
        "CARRYON_SECRET": "a secret of at least thirty-two characters",
        "CARRYON_REDIS__TIMEOUT": "2s",
        "CARRYON_UPSTREAMS__FULL": full,
        "CARRYON_UPSTREAMS__NOBODY": "http://127.0.0.1:9/v1",
        "CARRYON_DEFAULTS__SUMMARY__TIMEOUT": f"{SUMMARY}s",
        **{f"CARRYON_TIMEOUTS__{name}": f"{SHORT}s" for name in names},
    }
    running = Carryon(upstream.url, tmp_path_factory.mktemp("carryon"), "--window", str(WINDOW), **settings)
    await running.start()
    yield running
    assert await running.stop() == 0
    assert not running.events("internal-fault")


def port_of(proxy: Carryon) -> int:
    """Where it listens."""
    return int(proxy.url.rpartition(":")[2].partition("/")[0])


def talk(model: str, steps: int = 1, **settings: object) -> bytes:
    """A request in a conversation that only this model has."""
    return body(model, history(steps, task=f"{TASK} This is for {model}."), **settings)


def head(path: str, length: int = 1_000) -> bytes:
    """The head of a POST."""
    return b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (path.encode(), length)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: h", b"PROXY_HEADER_TIMEOUT"),
        (b"", None),
        (head("/v1/chat/completions") + b'{"model": "never whole"', b"PROXY_BODY_TIMEOUT"),
        (head("/v1/files") + acts.PART, b"PROXY_BODY_TIMEOUT"),
    ],
    ids=["head", "no head at all", "body that is read whole", "body that streams"],
)
async def test_a_client_that_is_too_slow_is_told_408(proxy: Carryon, sent: bytes, code: bytes | None) -> None:
    """Its connection ends; of one that never said anything there is nobody to answer."""
    async with client(port_of(proxy)) as peer:
        began = time.monotonic()
        await peer.send(sent)
        if code is None:
            assert await peer.rest() == b""
        else:
            got = await peer.message()
            assert (got.status, got.values(b"x-carryon-error")) == (408, [code])
            assert got.values(b"connection") == [b"close"]
        assert SHORT * 0.9 < time.monotonic() - began < SHORT + SLACK


@pytest.mark.parametrize(
    ("name", "model", "status", "code"),
    [
        ("full", "unreached", 504, "PROXY_UPSTREAM_CONNECT_TIMEOUT"),
        ("nobody", "refused", 502, "PROXY_UPSTREAM_CONNECT"),
        ("default", "silent", 504, "PROXY_UPSTREAM_FIRST_BYTE"),
    ],
)
async def test_an_upstream_that_does_not_answer_is_502_or_504(
    proxy: Carryon, upstream: Patient, name: str, model: str, status: int, code: str
) -> None:
    """In the dialect's error shape; it is asked once, and that call has ended."""
    async with asking(port_of(proxy), talk(model), path=f"/u/{name}/v1/chat/completions") as peer:
        began = time.monotonic()
        got = await peer.message()
        took = time.monotonic() - began
    assert (got.status, got.values(b"x-carryon-error")) == (status, [code.encode()])
    assert json.loads(got.body)["error"]["code"] == code
    assert took < SHORT + SLACK
    copies = upstream.of(model)
    assert len(copies) == (1 if name == "default" else 0)
    for copy in copies:
        await asyncio.wait_for(copy.gone.wait(), acts.PATIENCE)


async def streamed(copy: Copy) -> None:
    """Begin a stream with content."""
    await copy.answer(HEAD + chunk(delta(content="once")))
    await acts.waits(copy)


async def counted(copy: Copy) -> None:
    """Begin a body of known length."""
    await copy.answer(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + b"{")
    await acts.waits(copy)


async def refused(copy: Copy) -> None:
    """Begin a refusal of known length."""
    await copy.answer(b"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + b"{")
    await acts.waits(copy)


async def test_a_stream_that_falls_silent_is_cut(proxy: Carryon, upstream: Patient) -> None:
    """The client has what came, and sees the connection end without the end of the message: it was not all."""
    upstream.answers["streamed"] = streamed
    async with asking(port_of(proxy), talk("streamed", stream=True)) as peer:
        came = await peer.rest()
    assert came.startswith(b"HTTP/1.1 200 ")
    assert came.endswith(b"\r\n")
    assert delta(content="once") in came
    assert not came.endswith(b"0\r\n\r\n")
    assert len(upstream.of("streamed")) == 1
    await asyncio.wait_for(upstream.of("streamed")[0].gone.wait(), acts.PATIENCE)


@pytest.mark.parametrize(
    ("model", "act"),
    [("held", acts.only_role), ("counted", counted), ("half refused", refused)],
    ids=["held", "counted", "half refused"],
)
async def test_a_reply_that_falls_silent_while_it_is_held_never_looks_whole(
    proxy: Carryon, upstream: Patient, model: str, act: Callable[[Copy], Awaitable[None]]
) -> None:
    """It is a 504, or what came with its connection cut; and it is asked for once."""
    upstream.answers[model] = act
    async with asking(port_of(proxy), talk(model, stream=model == "held"), last=True) as peer:
        came = await peer.rest()
    start, _, rest = came.partition(b"\r\n\r\n")
    if b" 504 " in start.partition(b"\r\n")[0]:
        assert b"PROXY_UPSTREAM_STREAM_IDLE" in start
    else:
        assert b"Content-Length: 500" in start or b"chunked" in start
        assert len(rest) < 500
        assert not rest.endswith(b"0\r\n\r\n")
    assert len(upstream.of(model)) == 1


async def test_both_triggers_together_wait_for_summaries_no_longer_than_one_time_out(
    proxy: Carryon, upstream: Patient
) -> None:
    """Pressure waits for a summary in vain; the overflow that follows has no time left and takes the outline."""

    async def never_summarises(copy: Copy) -> None:
        if copy.summary:
            await acts.waits(copy)
        else:
            await copy.answer(acts.OVER if len(upstream.of("patience")) == 1 else acts.OK)

    upstream.answers["patience"] = never_summarises
    async with asking(port_of(proxy), talk("patience", 13, max_tokens=500)) as peer:
        began = time.monotonic()
        got = await peer.message()
        took = time.monotonic() - began
    assert (got.status, got.values(b"x-carryon-action")) == (200, [b"overflow-retry"]), got.head
    assert len(upstream.of("patience", summary=True)) == 1
    assert SUMMARY * 0.9 < took < SUMMARY + SLACK
