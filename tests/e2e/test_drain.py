"""A signal to `carryon serve`: what was accepted is answered whole, nothing new is taken, and it ends (I14)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e import patient as acts
from tests.e2e.carryon import Carryon
from tests.e2e.patient import HEAD, OK, Copy, Patient, asking, chunk, delta
from tests.e2e.talk import body, history
from tests.sockets import Peer, client, until
from tests.store.servers import Server

STREAMS = 100
AT_THE_LAST_MOMENT = 20
#: Seconds for which the streams go on after the signal.
GO_ON = 1.5
SLOW = (pytest.mark.slow, pytest.mark.timeout(60))
SIGNALS = pytest.mark.parametrize(
    "which", [pytest.param(signal.SIGTERM, id="SIGTERM"), pytest.param(signal.SIGINT, id="SIGINT", marks=SLOW)]
)


@dataclass(slots=True)
class Streams:
    """An upstream's streams, which run until they are told to end; what each wrote, by its model."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    wrote: dict[str, bytes] = field(default_factory=dict)

    async def __call__(self, copy: Copy) -> None:
        """Stream numbered frames."""
        await copy.answer(HEAD)
        for number in range(10_000):
            frame = delta(content=f"{copy.model} {number} ")
            await copy.answer(chunk(frame))
            self.wrote[copy.model] = self.wrote.get(copy.model, b"") + frame
            with suppress(TimeoutError):
                await asyncio.wait_for(self.end.wait(), 0.1)
                break
        await copy.answer(chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")
        self.wrote[copy.model] += b"data: [DONE]\n\n"


@asynccontextmanager
async def served(upstream: Patient, valkey: Server, state: Path, **settings: str) -> AsyncIterator[Carryon]:
    """`carryon serve` as a process; whoever uses it ends it."""
    valkey.client().delete("carryon:1:secret")
    shared = {"CARRYON_REDIS__URL": valkey.url, "CARRYON_SECRET": "a secret of at least thirty-two characters"}
    process = Carryon(upstream.url, state, "--window", "16384", **shared, **settings)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def port_of(proxy: Carryon) -> int:
    """Where it listens."""
    return int(proxy.url.rpartition(":")[2].partition("/")[0])


async def refuses(port: int) -> bool:
    """Whether a new connection is refused."""
    try:
        async with client(port):
            return False
    except OSError:
        return True


async def ended(proxy: Carryon, within: float) -> int:
    """Wait for its exit code."""
    assert proxy._process is not None
    return await asyncio.to_thread(proxy._process.wait, within)


async def streaming(stack: AsyncExitStack, port: int, count: int) -> list[Peer]:
    """So many clients, each with the first content of its stream."""
    peers = [
        await stack.enter_async_context(asking(port, body(f"stream {number}", history(1), stream=True)))
        for number in range(count)
    ]
    for peer in peers:
        await asyncio.wait_for(peer.reader.readuntil(b"\r\n\r\n"), acts.PATIENCE)
    return peers


@SIGNALS
async def test_a_signal_loses_none_of_a_hundred_streams(valkey: Server, tmp_path: Path, which: signal.Signals) -> None:
    """Every byte arrives, what was asked in the last moment is answered, idle connections end; then exit 0."""
    async with acts.patient() as upstream, served(upstream, valkey, tmp_path) as proxy, AsyncExitStack() as stack:
        streams, port = Streams(), port_of(proxy)
        upstream.answers = {f"stream {number}": streams for number in range(STREAMS)}
        upstream.answers["short"] = lambda copy: copy.answer(OK)
        idle = await stack.enter_async_context(asking(port, body("short", history(1))))
        assert (await idle.message()).status == 200
        peers = await streaming(stack, port, STREAMS)
        last = [
            await stack.enter_async_context(asking(port, body("short", history(1)))) for _ in range(AT_THE_LAST_MOMENT)
        ]
        began = time.monotonic()
        proxy.send(which)
        assert await idle.gone() < GO_ON
        assert [(await peer.message()).status for peer in last] == [200] * AT_THE_LAST_MOMENT
        await until_refused(port)
        await asyncio.sleep(max(0.0, GO_ON - (time.monotonic() - began)))
        streams.end.set()
        whole = [await peer._chunks() for peer in peers]
        assert whole == [streams.wrote[f"stream {number}"] for number in range(STREAMS)]
        assert await ended(proxy, 20) == 0
    print(f"\n{which.name}: {STREAMS} of {STREAMS} streams whole, {sum(map(len, whole)):,} bytes, none lost")


async def until_refused(port: int) -> None:
    """Wait until new connections are refused."""
    async with asyncio.timeout(acts.PATIENCE):
        while not await refuses(port):  # noqa: ASYNC110 - another process's doing sets no event
            await asyncio.sleep(0.02)


async def cut(peer: Peer) -> None:
    """What comes of a stream that is not let end: the end of its connection without the end of its message."""
    rest = await peer.rest()
    assert not rest.endswith(b"0\r\n\r\n")


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once(valkey: Server, tmp_path: Path) -> None:
    """The streams are cut so that their clients see it, and the exit code says that not all ended well."""
    async with acts.patient() as upstream, served(upstream, valkey, tmp_path) as proxy, AsyncExitStack() as stack:
        upstream.answers = {f"stream {number}": Streams() for number in range(3)}
        peers = await streaming(stack, port_of(proxy), 3)
        proxy.send(signal.SIGTERM)
        await until_refused(port_of(proxy))
        await asyncio.sleep(1.0)  # one that comes at once is the first one's echo
        proxy.send(signal.SIGTERM)
        assert await ended(proxy, 10) == 1
        for peer in peers:
            await cut(peer)


@pytest.mark.slow
async def test_a_drain_that_lasts_too_long_is_cut(valkey: Server, tmp_path: Path) -> None:
    """After `timeouts.drain`; the exit code says so."""
    async with (
        acts.patient() as upstream,
        served(upstream, valkey, tmp_path, CARRYON_TIMEOUTS__DRAIN="1s") as proxy,
        AsyncExitStack() as stack,
    ):
        upstream.answers = {"stream 0": Streams()}
        (peer,) = await streaming(stack, port_of(proxy), 1)
        proxy.send(signal.SIGTERM)
        assert await ended(proxy, 10) == 1
        await cut(peer)


STUBBORN = """
import asyncio, threading, time

class Swallows:
    async def compact(self, job):
        print("at work", flush=True)
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

class Blocks:
    async def compact(self, job):
        print("at work", flush=True)
        await asyncio.to_thread(time.sleep, 3600)
"""


def installed(site: Path) -> None:
    """Lay a package there that offers two compactors."""
    about = site / "stubborn-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "stubborn.py").write_text(STUBBORN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stubborn\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[carryon.compactors]\nswallows = stubborn:Swallows\nblocks = stubborn:Blocks\n"
    )


@pytest.mark.parametrize("name", ["swallows", pytest.param("blocks", marks=SLOW)])
async def test_a_compactor_that_does_not_end_does_not_hold_up_the_exit(
    valkey: Server, tmp_path: Path, name: str
) -> None:
    """One that ignores its cancellation, one that waits in a thread: both are left behind, and the log says so."""
    installed(tmp_path / "site")
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    settings = {"CARRYON_COMPACTOR": name, "PYTHONPATH": path}
    async with acts.patient() as upstream, served(upstream, valkey, tmp_path / "state", **settings) as proxy:
        async with asking(port_of(proxy), body("over", history(20))):
            await until(lambda: "at work" in proxy.log)
        await until(lambda: proxy.events("request"))
        proxy.send(signal.SIGTERM)
        assert await ended(proxy, 12) == 0
        (line,) = proxy.events("work-left-behind")
        assert line["level"] == "warning"
