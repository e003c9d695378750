"""The ledger when Redis is refused, silent, slow, full, read-only, locked or loses a reply (rules 5.5, 5.9)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.store import Commit, Record, StoreError
from proxy.store.redis import RedisLedger
from tests.store.chaos import Chaos
from tests.store.conftest import commit_one, entry
from tests.store.servers import Server

C = "ab12.cd34"
KEY = "carryon:1:{ab12.cd34}"

Open = Callable[..., RedisLedger]


def calls(server: Server, command: str) -> int:
    """How often the server ran a command."""
    stats = server.client().info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


@pytest.fixture
async def warm(ledger: RedisLedger, server: Server) -> AsyncIterator[RedisLedger]:
    """Open a ledger on a server that holds all scripts."""
    await commit_one(ledger, "warm.up", "op")
    await ledger.confirm("warm.up")
    yield ledger
    server.client().delete("carryon:1:{warm.up}", "carryon:1:{warm.up}:m")


async def test_a_commit_whose_reply_is_lost_ran_once(
    warm: RedisLedger, server: Server, chaos: Chaos, open_ledger: Open
) -> None:
    """It is reported as ambiguous, never repeated by the client, and found by its operation id."""
    cut = open_ledger(chaos.url)
    loaded = await cut.load(C)
    before = calls(server, "evalsha")
    chaos.lose = 1
    with pytest.raises(StoreError):
        await cut.commit(C, loaded, entry("op1"), b"x")
    assert calls(server, "evalsha") == before + 1
    assert [e.operation for e in (await warm.load(C)).entries] == ["op1"]
    assert await cut.commit(C, loaded, entry("op1"), b"x") is Commit.MINE
    assert (await cut.load(C)).generation == 1


async def test_commits_through_lost_replies_are_exactly_once(
    warm: RedisLedger, chaos: Chaos, open_ledger: Open
) -> None:
    """A hundred logical commits, every third reply lost: the generation is a hundred."""
    cut = open_ledger(chaos.url)
    chance = random.Random(7)

    async def logical(operation: str) -> None:
        loaded = await warm.load(C)
        for _ in range(20):
            chaos.lose = int(chance.random() < 1 / 3)
            try:
                answer = await cut.commit(C, loaded, entry(operation, base=loaded.generation), b"x")
            except StoreError:
                cut._contact.breaker.succeeded()  # the breaker is another test's matter
                continue
            assert answer in {Commit.DONE, Commit.MINE}
            return

    for number in range(100):
        await logical(f"op{number}")
    assert (await warm.load(C)).generation == 100


async def test_a_full_server_writes_nothing(warm: RedisLedger, server: Server) -> None:
    """Out of memory raises at the first write: the old surface is whole, a new record is not begun."""
    loaded = await commit_one(warm, C, "op1")
    before = server.client().dump(KEY)
    server.client().config_set("maxmemory", "1")
    with pytest.raises(StoreError, match="maxmemory"):
        await warm.commit(C, loaded, entry("op2", base=1), b"x")
    with pytest.raises(StoreError, match="maxmemory"):
        await warm.commit("fresh.one", Record(), entry("op3"), b"x")
    assert server.client().dump(KEY) == before
    assert not server.client().exists("carryon:1:{fresh.one}")
    assert (await warm.load(C)).generation == 1  # reading goes on
    server.client().config_set("maxmemory", "0")
    assert await warm.commit(C, loaded, entry("op2", base=1), b"x") is Commit.DONE


async def test_a_read_only_server_confirms_nothing(
    warm: RedisLedger, start_server: Callable[..., Server], open_ledger: Open
) -> None:
    """A primary demoted to a replica still reads, but its word is not evidence."""
    server = start_server()
    ledger = open_ledger(server.url)
    loaded = await commit_one(ledger, C, "op1")
    server.client().execute_command("REPLICAOF", "127.0.0.1", "1")
    assert (await ledger.load(C)).generation == 1
    with pytest.raises(StoreError, match=r"(?i)read.?only"):
        await ledger.commit(C, loaded, entry("op2"), b"x")
    with pytest.raises(StoreError, match=r"(?i)read.?only"):
        await ledger.confirm(C)


async def test_scripts_lost_by_the_server_are_sent_again(warm: RedisLedger, server: Server) -> None:
    """After SCRIPT FLUSH every call still works, in the same round."""
    await commit_one(warm, C, "op1")
    for use in (warm.load, warm.confirm, lambda c: warm.mark(c, "op1", "proven"), lambda c: warm.note(c, "a", "b")):
        server.client().script_flush()
        await use(C)
    server.client().script_flush()
    assert await warm.commit(C, await warm.load(C), entry("op2"), b"x") is Commit.DONE
    assert (await warm.load(C)).entries[0].proven


@pytest.mark.parametrize("trouble", ["silent", "slow"])
async def test_a_call_ends_at_its_deadline(trouble: str, chaos: Chaos, open_ledger: Open) -> None:
    """A server that never answers, or after two seconds, costs the configured time and no more."""
    chaos.silent, chaos.delay = trouble == "silent", 2.0 if trouble == "slow" else 0.0
    ledger = open_ledger(chaos.url, timeout=0.1)
    began = time.perf_counter()
    with pytest.raises(StoreError, match="100 ms"):
        await ledger.load(C)
    with pytest.raises(StoreError, match="50 ms"):
        await ledger.load(C, wait=0.05)
    assert 0.15 <= time.perf_counter() - began < 0.25


async def test_a_late_reply_answers_nobody(warm: RedisLedger, chaos: Chaos, open_ledger: Open) -> None:
    """After a time-out the next call reads its own reply."""
    await commit_one(warm, C, "op1")
    ledger = open_ledger(chaos.url, timeout=0.1)
    await ledger.load("other.one")
    chaos.delay = 0.2
    with pytest.raises(StoreError):
        await ledger.load(C)
    chaos.delay = 0.0
    for _ in range(5):
        assert await ledger.load("other.one") == Record()
        await asyncio.sleep(0.05)
    assert (await ledger.load(C)).generation == 1


async def test_a_cancelled_call_stays_cancelled(warm: RedisLedger, chaos: Chaos, open_ledger: Open) -> None:
    """A client that leaves is not held up, is no StoreError, and its reply answers nobody else."""
    await commit_one(warm, C, "op1")
    ledger = open_ledger(chaos.url)
    await ledger.load(C)
    chaos.delay = 0.2
    call = asyncio.create_task(ledger.load(C))
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.perf_counter() - began < 0.05
    chaos.delay = 0.0
    assert await ledger.load("other.one") == Record()


async def test_surfaces_of_this_process_serve_while_redis_is_away(
    start_server: Callable[..., Server], open_ledger: Open
) -> None:
    """Record and surface come from memory; a confirmation does not."""
    server = start_server()
    ledger = open_ledger(server.url, timeout=0.1)
    record = await commit_one(ledger, C, "op1")
    await ledger.surface(C, record.epoch or "", record.entries[0])
    server.process.kill()
    server.process.wait()
    with pytest.raises(StoreError):
        await ledger.load(C)
    held = ledger.remembered(C)
    assert held == record
    assert await ledger.surface(C, held.epoch or "", held.entries[0]) == b"surface of op1"
    with pytest.raises(StoreError):
        await ledger.confirm(C)


async def test_all_connections_in_use_is_a_deadline_like_any_other(chaos: Chaos, open_ledger: Open) -> None:
    """A hundred calls at once on a slow server end in time, and the pool is whole afterwards."""
    ledger = open_ledger(chaos.url, timeout=0.15)
    chaos.delay = 0.3
    began = time.perf_counter()
    results = await asyncio.gather(*(ledger.load(C) for _ in range(100)), return_exceptions=True)
    assert all(isinstance(result, StoreError) for result in results)
    assert time.perf_counter() - began < 0.4
    chaos.delay = 0.0
    ledger._contact.breaker.succeeded()
    await asyncio.sleep(0.4)
    assert await asyncio.gather(*(ledger.load(C, wait=5.0) for _ in range(100))) == [Record()] * 100
