"""One deadline per call, and no reply read by the wrong command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
from redis.exceptions import ResponseError

from proxy.store import StoreConfigError
from proxy.store.scripts import LOAD, Command
from proxy.store.wire import UNREACHED, Line, Wire
from tests.store.chaos import Chaos
from tests.store.servers import Server


def echo(word: str) -> Callable[[Line], object]:
    """Ask the server to say a word."""

    async def talk(line: Line) -> bytes:
        reply: bytes = (await line.ask(Command(("ECHO", word))))[0]
        return reply

    return talk


@pytest.fixture
async def wire(chaos: Chaos) -> AsyncIterator[Wire]:
    """One single connection through a misbehaving proxy."""
    wire = Wire(chaos.url, connect_timeout=1.0, connections=1)
    yield wire
    await wire.close()


async def test_replies_come_in_the_order_of_the_commands_errors_among_them(wire: Wire) -> None:
    """One refused command does not hide the others' replies, and the connection stays sound."""

    async def talk(line: Line) -> list[object]:
        return await line.ask(Command(("ECHO", "a")), Command(("NOSUCH",)), Command(("ECHO", "b")))

    first, error, last = await wire.call(talk, 1.0)
    assert (first, last) == (b"a", b"b")
    assert isinstance(error, ResponseError)
    assert await wire.call(echo("c"), 1.0) == b"c"


async def test_a_late_reply_is_never_the_next_commands(wire: Wire, chaos: Chaos) -> None:
    """The only connection timed out; what follows on it reads its own reply, whenever the late one comes."""
    assert await wire.call(echo("warm"), 1.0) == b"warm"
    for pause in (0.0, 0.02, 0.08):
        chaos.delay = 0.06
        with pytest.raises(TimeoutError):
            await wire.call(echo("late"), 0.03)
        chaos.delay = 0.0
        await asyncio.sleep(pause)
        assert await wire.call(echo("own"), 1.0) == b"own"


async def test_a_cancelled_caller_leaves_at_once_and_frees_the_connection(wire: Wire, chaos: Chaos) -> None:
    """Also when it is cancelled again and again."""
    for _ in range(10):
        chaos.delay = 5.0
        call = asyncio.create_task(wire.call(echo("never"), 10.0))
        await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    chaos.delay = 0.0
    assert await wire.call(echo("own"), 1.0) == b"own"


async def test_waiting_for_a_connection_counts_into_the_deadline(wire: Wire, chaos: Chaos) -> None:
    """The pool is not a way around it."""
    chaos.delay = 0.3
    first = asyncio.create_task(wire.call(echo("slow"), 1.0))
    await asyncio.sleep(0.02)
    began = time.perf_counter()
    with pytest.raises(TimeoutError):
        await wire.call(echo("second"), 0.05)
    assert time.perf_counter() - began < 0.1
    assert await first == b"slow"


async def test_a_server_slow_to_reach_is_reached_in_the_end(server: Server, chaos: Chaos) -> None:
    """A connection outlives the call it was begun for, whose commands are not sent."""
    server.client().config_set("requirepass", "pw")
    wire = Wire(chaos.url.replace("redis://", "redis://:pw@"), connect_timeout=1.0)
    try:
        chaos.delay = 0.1
        with pytest.raises(TimeoutError):
            await wire.call(echo("too late"), 0.05)
        chaos.delay = 0.0
        await asyncio.sleep(0.2)
        assert await wire.call(echo("own"), 0.05) == b"own"
        assert chaos.accepted == 1
    finally:
        server.client(password="pw").config_set("requirepass", "")
        await wire.close()


async def test_a_connection_that_fails_is_not_tried_again() -> None:
    """The caller has a deadline; the breaker, not the client library, decides when to try next."""
    accepted = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        wire = Wire(f"redis://:pw@127.0.0.1:{server.sockets[0].getsockname()[1]}", connect_timeout=1.0)
        with pytest.raises(UNREACHED):
            await wire.call(echo("never"), 1.0)
        await wire.close()
    assert accepted == 1


async def test_a_lost_connection_is_an_error_and_the_next_call_gets_a_new_one(wire: Wire, chaos: Chaos) -> None:
    """Nothing is sent twice."""
    assert await wire.call(echo("warm"), 1.0) == b"warm"
    chaos.lose = 1
    with pytest.raises(UNREACHED):
        await wire.call(echo("lost"), 1.0)
    assert await wire.call(echo("own"), 1.0) == b"own"


async def test_an_unknown_script_is_spelled_out(wire: Wire, server: Server) -> None:
    """NOSCRIPT ran nothing, so that is the one thing that is sent again."""
    server.client().script_flush()

    async def talk(line: Line) -> list[object]:
        return await line.ask(LOAD(("a", "b", "c")))

    assert await wire.call(talk, 1.0) == [[None, None, None, [], [], -2]]
    assert server.client().script_exists(LOAD.digest) == [True]


async def test_closing_ends_what_still_runs(chaos: Chaos) -> None:
    """A waiting caller hears of it."""
    wire = Wire(chaos.url, connect_timeout=1.0)
    chaos.silent = True
    call = asyncio.create_task(wire.call(echo("never"), 10.0))
    await asyncio.sleep(0.05)
    await wire.close()
    with pytest.raises(UNREACHED):
        await call


def test_a_url_of_another_kind_is_a_configuration_error() -> None:
    """With the setting's name."""
    with pytest.raises(StoreConfigError, match=r"redis\.url"):
        Wire("ftp://x", connect_timeout=1.0)
