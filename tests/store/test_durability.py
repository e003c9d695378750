"""Which durability a server gives, and that only a confirmed write is evidence (rule 5.6)."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable

import pytest

from proxy.store import StoreConfigError
from proxy.store.durability import Demand, Facts, Level, confirmed, decide, facts, wait
from proxy.store.redis import RedisLedger
from tests.store.conftest import commit_one
from tests.store.servers import Server

C = "ab12.cd34"

Start = Callable[..., Server]
Open = Callable[..., RedisLedger]

GOOD = Facts(append_only=True, fsync="everysec", waits=True, replicas=0)
OFF = Facts(append_only=False, fsync="everysec", waits=True, replicas=1)
LAZY = Facts(append_only=True, fsync="no", waits=True, replicas=0)
OLD = Facts(append_only=True, fsync="always", waits=False, replicas=0)
MUTE = Facts(append_only=True, fsync=None, waits=None, replicas=None)


@pytest.mark.parametrize(
    ("demand", "known", "level", "warns"),
    [
        (Demand.AUTO, GOOD, Level.AOF, False),
        (Demand.AUTO, OFF, Level.MEMORY, True),
        (Demand.AUTO, LAZY, Level.MEMORY, True),
        (Demand.AUTO, OLD, Level.MEMORY, True),
        (Demand.AUTO, MUTE, Level.AOF, True),
        (Demand.AOF, GOOD, Level.AOF, False),
        (Demand.AOF, MUTE, Level.AOF, False),
        (Demand.REPLICA, OFF, Level.REPLICA, False),
        (Demand.REPLICA, MUTE, Level.REPLICA, False),
        (Demand.MEMORY, OFF, Level.MEMORY, False),
    ],
)
def test_a_level_follows_from_what_is_demanded_and_what_is_there(
    *, demand: Demand, known: Facts, level: Level, warns: bool
) -> None:
    """`auto` takes the best at hand and says when that is less than a disk."""
    found, warning = decide(demand, known)
    assert (found, warning is not None) == (level, warns)


@pytest.mark.parametrize(
    ("demand", "known"), [(Demand.AOF, OFF), (Demand.AOF, LAZY), (Demand.AOF, OLD), (Demand.REPLICA, GOOD)]
)
def test_a_level_that_cannot_be_given_is_refused_with_the_cure(demand: Demand, known: Facts) -> None:
    """The message names the setting."""
    with pytest.raises(StoreConfigError, match=r"redis\.durability"):
        decide(demand, known)


def test_an_error_in_place_of_a_reply_confirms_nothing() -> None:
    """Nor does a zero."""
    assert not confirmed(Level.AOF, [Exception("ERR unknown command")])
    assert not confirmed(Level.AOF, [[0, 0]])
    assert not confirmed(Level.REPLICA, [0])
    assert confirmed(Level.AOF, [[1, 0]])
    assert confirmed(Level.REPLICA, [1])
    assert wait(Level.MEMORY, 10) == ()


def test_what_a_server_hides_is_unknown() -> None:
    """Errors among the answers are not facts."""
    hidden = Exception("NOPERM")
    assert facts([hidden, hidden, hidden, hidden]) == Facts(append_only=None, fsync=None, waits=None, replicas=None)
    assert facts([b"aof_enabled:1\r\n", b"connected_slaves:2\r\n", [b"appendfsync", b"no"], [None]]) == Facts(
        append_only=True, fsync="no", waits=False, replicas=2
    )


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_commit_on_disk_is_confirmed(fsync: str, start_server: Start, open_ledger: Open) -> None:
    """`auto` waits for the append-only file where there is one; then a killed server still has it."""
    server = start_server(appendonly="yes", appendfsync=fsync)
    ledger = open_ledger(server.url, durability="auto", timeout=1.0)
    await ledger.start()
    record = await commit_one(ledger, C, "op1")
    assert await ledger.confirm(C) == record
    assert server.client().info("commandstats")["cmdstat_waitaof"]["calls"] == 1


async def test_without_an_append_only_file_auto_warns_once(
    start_server: Start, open_ledger: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Retries go on, at the level `memory`."""
    ledger = open_ledger(start_server().url, durability="auto")
    with caplog.at_level(logging.WARNING, "proxy.store"):
        await ledger.start()
        record = await commit_one(ledger, C, "op1")
        assert await ledger.confirm(C) == record
    assert [r.getMessage().count("append-only file is off") for r in caplog.records] == [1]


@pytest.mark.parametrize(
    ("durability", "options"),
    [("aof", {}), ("aof", {"appendonly": "yes", "appendfsync": "no"}), ("replica", {})],
)
async def test_a_demanded_level_that_is_missing_fails_at_start(
    durability: str, options: dict[str, str], start_server: Start, open_ledger: Open
) -> None:
    """Not at the first overflow."""
    with pytest.raises(StoreConfigError):
        await open_ledger(start_server(**options).url, durability=durability).start()


async def test_a_level_lost_after_the_start_confirms_nothing(start_server: Start, open_ledger: Open) -> None:
    """The server is asked for every confirmation: after a failover it is another one."""
    server = start_server(appendonly="yes", appendfsync="always")
    ledger = open_ledger(server.url, durability="aof")
    await ledger.start()
    await commit_one(ledger, C, "op1")
    assert await ledger.confirm(C) is not None
    server.client().config_set("appendonly", "no")
    assert await ledger.confirm(C) is None
    assert (await ledger.load(C)).generation == 1


async def test_a_write_that_does_not_reach_the_disk_is_not_evidence(start_server: Start, open_ledger: Open) -> None:
    """A server that hides its settings and never syncs: the wait ends unanswered, in time."""
    server = start_server(appendonly="yes", appendfsync="no")
    server.client().execute_command("ACL", "SETUSER", "managed", "on", ">pw", "+@all", "-config", "~*")
    ledger = open_ledger(f"{server.url}?username=managed&password=pw", durability="auto", wait_timeout=0.5)
    await commit_one(ledger, C, "op1")
    began = time.perf_counter()
    assert await ledger.confirm(C) is None
    assert time.perf_counter() - began < 0.55


@pytest.fixture
async def followed(start_server: Start) -> tuple[Server, Server]:
    """Start a primary and a replica that follows it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    primary = start_server(port=port, repl_diskless_sync_delay="0")
    replica = start_server(replicaof=f"127.0.0.1 {port}")
    until = time.monotonic() + 10
    while primary.client().info("replication").get("slave0", {}).get("state") != "online":
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
    client = primary.client(single_connection_client=True)
    client.set("first", "write")
    assert client.wait(1, 5000) == 1  # its first acknowledgement takes up to a second
    client.config_resetstat()
    return primary, replica


async def test_a_commit_between_the_touch_and_the_load_is_waited_for_too(
    followed: tuple[Server, Server], open_ledger: Open
) -> None:
    """What the evidence load shows is what was confirmed, not something younger."""
    primary, replica = followed
    ledger, other = (open_ledger(primary.url, durability="replica", wait_timeout=5.0) for _ in range(2))
    await commit_one(ledger, C, "op1")
    replica.process.send_signal(signal.SIGSTOP)
    confirming = asyncio.create_task(ledger.confirm(C))
    await asyncio.sleep(0.1)
    await commit_one(other, C, "op2", base=1)
    replica.process.send_signal(signal.SIGCONT)
    record = await confirming
    assert record is not None
    assert record.generation == 2
    assert primary.client().info("commandstats")["cmdstat_wait"]["calls"] == 2


async def test_a_replica_confirms_while_it_follows(followed: tuple[Server, Server], open_ledger: Open) -> None:
    """A stalled replica confirms nothing, and the wait for it is bounded."""
    primary, replica = followed
    ledger = open_ledger(primary.url, durability="replica", wait_timeout=0.5)
    await ledger.start()
    record = await commit_one(ledger, C, "op1")
    assert await ledger.confirm(C) == record
    replica.process.send_signal(signal.SIGSTOP)
    began = time.perf_counter()
    assert await ledger.confirm(C) is None
    assert time.perf_counter() - began < 0.6
    replica.process.send_signal(signal.SIGCONT)
    assert await ledger.confirm(C) == record
