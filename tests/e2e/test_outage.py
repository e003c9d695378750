"""A store that goes away, loses what it held, or is another one, in the middle of packed conversations (rule 5.9)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from proxy.store import Record
from proxy.store.binary import find_server
from proxy.store.redis import RedisLedger
from tests.e2e.matrix import RECOVERY, Ground, ground
from tests.e2e.traffic import Asked
from tests.sockets import until
from tests.store.servers import SEALS, Server
from tests.store.troubles import TROUBLES

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Longer than every interval of the breaker; RELIABILITY's own figure where there is time for it.
THOROUGH = bool(os.environ.get("CARRYON_THOROUGH"))
OUTAGE = 60.0 if THOROUGH else 12.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def field(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    """Carryon, its store and three clients with packed conversations."""
    async with ground(tmp_path_factory.mktemp("outage")) as found:
        yield found


def conversations(server: Server) -> set[str]:
    """What is stored: the names of all records."""
    keys = (key for key in server.client().scan_iter("carryon:1:{*}", count=1_000) if ":model:" not in key)
    return {key.partition("{")[2].rstrip("}") for key in keys}


async def loaded(server: Server, conversation: str) -> Record:
    """One record."""
    ledger = RedisLedger(server.url, seals=SEALS, timeout=5.0)
    try:
        return await ledger.load(conversation)
    finally:
        await ledger.close()


async def packed_anew(field: Ground) -> Asked:
    """The next request of a packed conversation whose store lost it: it must be packed again, and then go on."""
    client = field.clients[0]
    again = await client.ask("packed")
    assert (again.status, again.action) == (200, "pressure")
    assert (await client.ask("packed")).action == "projected"
    return again


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("trouble", ["hung", "refused"] if THOROUGH else ["hung"])
async def test_packed_conversations_go_on_through_an_outage(field: Ground, trouble: str) -> None:
    """From the surfaces of this process; retries are refused, for want of proof; afterwards commits land again."""
    before = {name: (await loaded(field.place.server, name)).generation for name in conversations(field.place.server)}
    async with TROUBLES[trouble](field.place):
        asked = await field.during(OUTAGE, ("packed", "below", "overflow"))
    ended = time.monotonic()
    took = await field.clients[0].recovered(ended, 15.0)
    assert [one for one in asked if not one.well] == []
    assert {one.action for one in asked if one.kind == "packed"} == {"projected"}
    assert {(one.action, one.refused) for one in asked if one.kind == "overflow"} == {("overflow-refused", "redis")}
    assert took <= RECOVERY
    for name, generation in before.items():
        assert (await loaded(field.place.server, name)).generation == generation
    assert conversations(field.place.server) > set(before)
    packed = sum(one.kind == "packed" for one in asked)
    print(
        f"\n{trouble} for {OUTAGE:.0f} s: {packed} packed requests projected, "
        f"{sum(one.kind == 'overflow' for one in asked)} retries refused, {len(asked)} of {len(asked)} well; "
        f"the first commit {took:.1f} s after it"
    )


async def _flushed(server: Server, conversation: str) -> None:
    server.client().flushall()


async def _evicted(server: Server, conversation: str) -> None:
    server.client().delete(f"carryon:1:{{{conversation}}}")


async def _expired(server: Server, conversation: str) -> None:
    client, key = server.client(), f"carryon:1:{{{conversation}}}"
    client.pexpire(key, 1)
    await until(lambda: not client.exists(key))


@pytest.mark.parametrize("lost", [_flushed, _evicted, _expired], ids=["flushed", "evicted", "expired"])
async def test_what_the_store_lost_is_packed_anew(
    field: Ground, lost: Callable[[Server, str], Awaitable[None]]
) -> None:
    """Under another epoch: nothing of the lost record counts."""
    server, client = field.place.server, field.clients[0]
    known = conversations(server)
    client.name = f"lost {time.monotonic()}"
    await client.prepare()
    (name,) = conversations(server) - known
    old = await loaded(server, name)
    await lost(server, name)
    await packed_anew(field)
    new = await loaded(server, name)
    assert (old.generation, new.generation) == (1, 1)
    assert new.epoch != old.epoch


async def test_another_server_at_the_same_address_begins_anew_and_the_old_one_is_taken_up_again(field: Ground) -> None:
    """A failover to an empty one and back: its own epoch there, the stored surface here, and no error between."""
    server, chaos, client = field.place.server, field.place.chaos, field.clients[0]
    known = conversations(server)
    client.name = f"failover {time.monotonic()}"
    await client.prepare()
    (name,) = conversations(server) - known
    old = await loaded(server, name)
    other = Server(find_server(), appendonly="yes")
    try:
        chaos.target = other.socket
        await chaos.cut()
        asked = [await client.ask("packed") for _ in range(5)]
        assert all(one.well for one in asked)
        assert [one.action for one in asked][-1] == "projected"
        assert "pressure" in [one.action for one in asked]
        there = await loaded(other, name)
        assert (there.generation, there.epoch != old.epoch) == (1, True)
    finally:
        chaos.target = server.socket
        await chaos.cut()
        other.stop()
    asked = [await client.ask("packed") for _ in range(3)]
    assert [one.action for one in asked] == ["projected"] * 3
    assert await loaded(server, name) == old
