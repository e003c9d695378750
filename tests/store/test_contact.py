"""Whose server it is, when it is left alone, and what its trouble becomes (rules 5.9, 5.11)."""

from __future__ import annotations

import logging
import random
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from proxy.store import Commit, Learned, Record, StoreConfigError, StoreError
from proxy.store.contact import fingerprint
from proxy.store.redis import RedisLedger
from tests.store.chaos import Chaos
from tests.store.conftest import commit_one, entry
from tests.store.rubbish import NOISE, Rubbish, spelled, value
from tests.store.servers import SEALS, Server

C = "ab12.cd34"

Open = Callable[..., RedisLedger]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


async def test_another_secret_is_refused(server: Server, open_ledger: Open) -> None:
    """The first to come claims the server, for as long as it is in use."""
    mine, theirs = fingerprint(b"one secret"), fingerprint(b"another secret")
    assert mine != theirs
    await open_ledger(server.url, fingerprint=mine).start()
    await open_ledger(server.url, fingerprint=mine).start()
    assert 0 < server.client().ttl("carryon:1:secret") <= 7 * 86_400
    stranger = open_ledger(server.url, fingerprint=theirs)
    with pytest.raises(StoreConfigError, match="secret"):
        await stranger.start()
    with pytest.raises(StoreError, match="secret"):
        await stranger.load(C)


async def test_the_fingerprint_is_refreshed_and_compared_every_ten_minutes(server: Server, open_ledger: Open) -> None:
    """A server that was emptied meanwhile is claimed anew."""
    clock = Clock()
    ledger = open_ledger(server.url, fingerprint=fingerprint(b"one secret"), clock=clock)
    await ledger.start()
    server.client().delete("carryon:1:secret")
    await ledger.load(C)
    assert not server.client().exists("carryon:1:secret")
    clock.now += 601
    await ledger.load(C)
    assert server.client().get("carryon:1:secret") == fingerprint(b"one secret")
    server.client().pexpire("carryon:1:secret", 1000)
    clock.now += 601
    await ledger.load(C)
    assert server.client().ttl("carryon:1:secret") > 1000


async def test_a_full_server_that_is_ours_is_still_read(server: Server, open_ledger: Open) -> None:
    """It cannot be claimed, but it need not be; one that is nobody's is not taken for ours."""
    mine = fingerprint(b"one secret")
    first = open_ledger(server.url, fingerprint=mine)
    await commit_one(first, C, "op1")
    server.client().config_set("maxmemory", "1")
    assert (await open_ledger(server.url, fingerprint=mine).load(C)).generation == 1
    server.client().delete("carryon:1:secret")
    with pytest.raises(StoreError, match="maxmemory"):
        await open_ledger(server.url, fingerprint=mine).load(C)


async def test_a_wrong_password_is_a_store_error(start_server: Callable[..., Server], open_ledger: Open) -> None:
    """Also at start it is trouble that may pass, not a reason not to serve."""
    server = start_server()
    server.client().config_set("requirepass", "right")
    wrong = open_ledger(f"{server.url}?password=wrong")
    await wrong.start()
    with pytest.raises(StoreError):
        await wrong.load(C)
    assert await open_ledger(f"{server.url}?password=right").load(C) == Record()


async def test_a_refused_port_fails_at_once(open_ledger: Open) -> None:
    """No connection is tried twice."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ledger = open_ledger(f"redis://127.0.0.1:{free.getsockname()[1]}/0")
    await ledger.start()
    began = time.perf_counter()
    with pytest.raises(StoreError):
        await ledger.load(C)
    assert time.perf_counter() - began < 0.1


async def test_a_breaker_leaves_redis_alone_and_recovers(
    chaos: Chaos, open_ledger: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Three failures, then no waiting and no connection; one warning; the first probe that works ends it."""
    clock = Clock()
    ledger = open_ledger(chaos.url, timeout=0.05, clock=clock)
    chaos.silent = True
    with caplog.at_level(logging.WARNING, "proxy.store"):
        for _ in range(3):
            with pytest.raises(StoreError):
                await ledger.load(C)
        accepted, began = chaos.accepted, time.perf_counter()
        for _ in range(50):
            with pytest.raises(StoreError, match="left alone"):
                await ledger.load(C)
        assert time.perf_counter() - began < 0.05
    assert chaos.accepted == accepted
    assert len(caplog.records) == 1
    assert ledger.away
    clock.now += 1.9
    with pytest.raises(StoreError, match="left alone"):
        await ledger.load(C)
    chaos.silent = False
    clock.now += 0.2
    assert await ledger.load(C) == Record()
    assert not ledger.away
    assert await ledger.load(C) == Record()


async def test_a_server_error_does_not_open_the_breaker(ledger: RedisLedger, server: Server) -> None:
    """A full server still reads: only silence is a reason to stay away."""
    loaded = await commit_one(ledger, C, "op1")
    server.client().config_set("maxmemory", "1")
    for _ in range(5):
        with pytest.raises(StoreError, match="maxmemory"):
            await ledger.commit(C, loaded, entry("op2"), b"x")
    assert (await ledger.load(C)).generation == 1


def test_an_unreadable_url_or_durability_is_a_configuration_error() -> None:
    """It can never work, so it fails at start."""
    with pytest.raises(StoreConfigError, match=r"redis\.url"):
        RedisLedger("http://localhost", seals=SEALS)
    with pytest.raises(StoreConfigError, match=r"redis\.durability"):
        RedisLedger("redis://localhost", seals=SEALS, durability="forever")


#: Every call of a ledger, and what it may come to where it does not fail.
CALLS: dict[str, tuple[Callable[[RedisLedger], Awaitable[object]], tuple[type, ...]]] = {
    "load": (lambda ledger: ledger.load(C), (Record,)),
    "surface": (lambda ledger: ledger.surface(C, "e", entry("op")), (bytes, type(None))),
    "commit": (lambda ledger: ledger.commit(C, Record(), entry("op"), b"x"), (Commit,)),
    "confirm": (lambda ledger: ledger.confirm(C), (Record, type(None))),
    "mark": (lambda ledger: ledger.mark(C, "op", "proven"), (type(None),)),
    "note": (lambda ledger: ledger.note(C, "a", "b"), (type(None),)),
    "claim": (lambda ledger: ledger.claim(C, "lease", "me", 1.0), (bool,)),
    "learned": (lambda ledger: ledger.learned("m", "c"), (Learned,)),
    "learn_limit": (lambda ledger: ledger.learn_limit("m", 4_096), (type(None),)),
    "learn_calibration": (lambda ledger: ledger.learn_calibration("c", 1.5), (type(None),)),
}


async def _called(ledger: RedisLedger, clock: Clock) -> None:
    """Call everything; nothing comes of it but what may, and `StoreError`."""
    for call, kinds in CALLS.values():
        clock.now += 1000.0  # the breaker allows a call again
        with suppress(StoreError):
            assert isinstance(await call(ledger), kinds)


@pytest.mark.parametrize("durability", ["memory", "auto"])
@pytest.mark.parametrize("secret", [None, "a" * 32])
async def test_any_reply_of_the_protocol_is_an_answer_or_a_store_error(
    durability: str, secret: str | None, open_ledger: Open
) -> None:
    """Values of any shape in place of ours: nothing else comes out of the ledger, and a start goes on."""
    chance, clock = random.Random(f"{durability} {secret}"), Clock()
    async with Rubbish(lambda: spelled(value(chance))) as server:
        ledger = open_ledger(server.url, durability=durability, fingerprint=secret, timeout=0.5, clock=clock)
        for _ in range(40):
            with suppress(StoreConfigError):  # a fingerprint that is not ours, a level that is not to be had
                await ledger.start()
            await _called(ledger, clock)


@pytest.mark.parametrize("noise", NOISE)
async def test_noise_is_a_store_error(noise: bytes, open_ledger: Open) -> None:
    """What is not the protocol, or never ends."""
    clock = Clock()
    async with Rubbish(lambda: noise) as server:
        ledger = open_ledger(server.url, durability="auto", timeout=0.05, wait_timeout=0.05, clock=clock)
        await ledger.start()
        await _called(ledger, clock)


async def test_a_reply_of_another_shape_is_warned_of_once_and_costs_its_connection(
    open_ledger: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose reply it was nobody knows: no further command goes there. After three the server is left alone."""
    clock = Clock()
    async with Rubbish(lambda: b"+OK\r\n") as server:
        ledger = open_ledger(server.url, clock=clock)
        with caplog.at_level(logging.WARNING, "proxy.store"):
            for number in range(1, 4):
                with pytest.raises(StoreError, match="something else"):
                    await ledger.load(C)
                assert server.accepted == number
        with pytest.raises(StoreError, match="left alone"):
            await ledger.load(C)
    assert len(caplog.records) == 1
