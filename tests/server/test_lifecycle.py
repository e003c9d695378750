"""Start, drain, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
import uvloop

from proxy.message import Incoming, Outgoing
from proxy.server import ServerBounds
from proxy.server.lifecycle import ECHO, Server
from tests.server.conftest import echo
from tests.sockets import Peer, client, exchange, until

if TYPE_CHECKING:
    from tests.server.conftest import Serving

GET = b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"


class Streams:
    """An exchange whose streams run until told to end."""

    def __init__(self) -> None:
        self.begun = 0
        self.end = asyncio.Event()

    async def __call__(self, _: Incoming) -> Outgoing:
        """Answer with a stream."""
        return Outgoing(status=200, headers=(), body=self._frames())

    async def _frames(self) -> AsyncIterator[bytes]:
        yield b"first"
        self.begun += 1
        await self.end.wait()
        yield b"last"


async def test_a_drain_loses_no_open_stream(serving: Serving) -> None:
    """Twenty streams and a half-sent upload end well; new connections are refused; idle ones are closed."""
    streams = Streams()
    async with serving(streams) as served:
        async with asyncio.timeout(10):
            peers = [Peer(*await asyncio.open_connection("127.0.0.1", served.port)) for _ in range(20)]
            for peer in peers:
                await peer.send(GET)
            half, idle = [Peer(*await asyncio.open_connection("127.0.0.1", served.port)) for _ in range(2)]
            await half.send(POST + b"ab")
            await idle.send(b"HEAD /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
            await idle.message(bodiless=True)
            await until(lambda: streams.begun == 20)
            draining = asyncio.ensure_future(served.server.drain())
            assert await idle.gone() < 1
            assert served.server.readiness() is None
            with pytest.raises(OSError):  # noqa: PT011 - refused or reset
                await asyncio.open_connection("127.0.0.1", served.port)
            await half.send(b"cd")
            streams.end.set()
            for peer in [*peers, half]:
                assert (await peer.message()).body == b"firstlast"
                assert await peer.gone() < 1
            assert await draining is True
            for peer in [*peers, half, idle]:
                peer.close()


def test_what_the_kernel_has_accepted_is_answered() -> None:
    """Connections that the loop of `carryon serve`, which takes them one by one, had not come to when it was told.

    Nor is one hung up on for the one round of the loop in which aiohttp has its request nowhere.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_told_at_once(400)) == [b"HTTP/1.1 200 OK"] * 400


async def _told_at_once(count: int) -> list[bytes]:
    """Let clients connect and ask while the loop has no turn, then drain; how each was answered."""
    server = Server(echo, ServerBounds(linger=0.2))
    port = await server.listen()
    with ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
        for peer in peers:
            peer.sendall(POST + b"abcd")
        assert await server.drain() is True
        await server.close()
        return [peer.recv(1_000).split(b"\r\n")[0].rstrip() for peer in peers]


async def test_replies_during_a_drain_end_their_connection(serving: Serving) -> None:
    """So that clients go elsewhere."""
    streams = Streams()
    async with serving(streams) as served, client(served.port) as peer:
        await peer.send(POST)
        await until(lambda: served.server._listener.busy)
        draining = asyncio.ensure_future(served.server.drain())
        await asyncio.sleep(0.1)
        streams.end.set()
        await peer.send(b"abcd")
        assert (await peer.message()).values(b"connection") == [b"close"]
        assert await draining is True


async def test_a_drain_has_an_end(serving: Serving) -> None:
    """What does not end in time is cut."""
    streams = Streams()
    async with serving(streams, drain=0.3) as served, client(served.port) as peer:
        await peer.send(GET)
        await until(lambda: streams.begun)
        assert await served.server.drain() is False
        await served.server.close()
        raw = await peer.rest()
    assert raw.endswith(b"first\r\n")


async def test_sigterm_drains_and_the_probes_say_so() -> None:
    """`run` returns when the last request is done; the admin listener answers until then."""
    streams = Streams()
    server = Server(streams, ServerBounds())
    port, admin = await server.listen(), await server.listen_admin()
    running = asyncio.ensure_future(server.run())
    readyz = b"GET /readyz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    async with asyncio.timeout(10), client(port) as peer:
        assert b"200 OK" in await exchange(admin, readyz)
        await peer.send(GET)
        await until(lambda: streams.begun)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert b" 503 " in await exchange(admin, readyz)
        assert not running.done()
        streams.end.set()
        assert (await peer.message()).body == b"firstlast"
        assert await running is True
        with suppress(OSError):
            await exchange(admin, readyz)
            raise AssertionError


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_stops_at_once_and_an_echo_does_not(which: signal.Signals) -> None:
    """Whoever says it twice means it; what arrives twice at once was said once."""
    streams = Streams()
    server = Server(streams, ServerBounds())
    port = await server.listen()
    running = asyncio.ensure_future(server.run())
    async with asyncio.timeout(10), client(port) as peer:
        await peer.send(GET)
        await until(lambda: streams.begun)
        os.kill(os.getpid(), which)
        await until(lambda: server.draining)
        os.kill(os.getpid(), which)
        await asyncio.sleep(ECHO + 0.1)
        assert not running.done()
        os.kill(os.getpid(), which)
        assert await running is False
        await peer.rest()


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_whoever_stops_it_is_told_what_is_waited_for(which: signal.Signals) -> None:
    """How many requests are open; a terminal that is gone costs them nothing."""
    told: list[tuple[int, signal.Signals]] = []

    def waiting(count: int, by: signal.Signals) -> None:
        told.append((count, by))
        raise BrokenPipeError

    streams = Streams()
    server = Server(streams, ServerBounds())
    port = await server.listen()
    running = asyncio.ensure_future(server.run(waiting=waiting))
    async with asyncio.timeout(10), client(port) as peer:
        await peer.send(GET)
        await until(lambda: streams.begun)
        os.kill(os.getpid(), which)
        await until(lambda: told)
        streams.end.set()
        assert (await peer.message()).body == b"firstlast"
        assert await running is True
    assert told == [(1, which)]


async def test_with_nothing_open_nothing_is_waited_for() -> None:
    """No word about it then."""
    told: list[int] = []
    server = Server(Streams(), ServerBounds())
    await server.listen()
    running = asyncio.ensure_future(server.run(waiting=lambda count, _: told.append(count)))
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running is True
    assert told == []


async def test_a_signal_is_caught_before_the_first_request_can_come() -> None:
    """One that comes while the listeners are opened: what was accepted by then is answered, then it ends."""
    server, asked = Server(echo, ServerBounds(linger=0.2)), socket.socket()

    async def begin() -> None:
        port = await server.listen()
        asked.connect(("127.0.0.1", port))
        asked.sendall(POST + b"abcd")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)

    with asked:
        async with asyncio.timeout(10):
            assert await server.run(begin) is True
        assert asked.recv(1_000).startswith(b"HTTP/1.1 200 OK")


async def test_a_start_that_fails_leaves_no_listener() -> None:
    """The one that was open already is closed, and whoever started it is told."""
    server = Server(Streams(), ServerBounds())
    ports: list[int] = []

    async def begin() -> None:
        ports.append(await server.listen())
        raise LookupError

    with pytest.raises(LookupError):
        await server.run(begin)
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset
        await asyncio.open_connection("127.0.0.1", ports[0])


async def test_a_signal_after_the_drain_does_not_end_the_process() -> None:
    """Whoever called `run` still has to leave all else whole."""
    server = Server(Streams(), ServerBounds())
    running = asyncio.ensure_future(server.run(server.listen))
    await until(lambda: server._runner.sites)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running is True
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)


async def test_a_drain_that_is_cut_leaves_no_task() -> None:
    """Nor one that its caller gave up."""
    server = Server(Streams(), ServerBounds())
    before = asyncio.all_tasks()
    giving_up = asyncio.ensure_future(server._drain_or(asyncio.Event()))
    await asyncio.sleep(0)
    giving_up.cancel()
    with suppress(asyncio.CancelledError):
        await giving_up
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    await server.close()
