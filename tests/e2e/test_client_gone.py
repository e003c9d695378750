"""A client that goes away: wherever its request is, what is spent for it stops within a second (rule 3.6, I8, I11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest
import pytest_asyncio

from proxy.exchange import exchange
from proxy.house import House
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Door
from proxy.store.redis import RedisLedger
from proxy.store.sealing import Seals
from proxy.upstream.client import Client
from tests.e2e import patient as acts
from tests.e2e.agent import TASK
from tests.e2e.carryon import Carryon
from tests.e2e.patient import Copy, Patient, asking, complete
from tests.e2e.scribe import good
from tests.e2e.stored import SECRET
from tests.e2e.talk import WINDOW, body, history
from tests.houses import closed, furnished
from tests.sockets import Peer, client, until
from tests.store.chaos import Chaos
from tests.store.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Within so many seconds an upstream sees its connection end after the client has left (rule 3.6).
SECOND = 1.0
#: Below the threshold, over it (and small enough to be summarised), and what `refuses_once` finds too long, in steps.
SHORT, LONG, REFUSED = 1, 13, 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Patient]:
    """The upstream; tests keep apart by their models."""
    async with acts.patient() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chaos(ledger: Server) -> AsyncIterator[Chaos]:
    """Carryon's way to its store."""
    async with Chaos(ledger.socket) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(upstream: Patient, chaos: Chaos, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Carryon]:
    """`carryon serve`, as a process."""
    settings = {
        "CARRYON_REDIS__URL": chaos.url,
        "CARRYON_SECRET": SECRET,
        "CARRYON_REDIS__TIMEOUT": "5s",
        "CARRYON_REDIS__DURABILITY": "memory",
    }
    running = Carryon(upstream.url, tmp_path_factory.mktemp("carryon"), "--window", str(WINDOW), **settings)
    await running.start()
    yield running
    assert await running.stop() == 0
    assert not running.events("internal-fault")


def talk(model: str, steps: int, **settings: object) -> bytes:
    """A request of so many steps in a conversation that only this model has."""
    return body(model, history(steps, task=f"{TASK} This is for {model}."), **settings)


def port_of(proxy: Carryon) -> int:
    """Where it listens."""
    return int(proxy.url.rpartition(":")[2].partition("/")[0])


async def leaves(peer: Peer, copy: Copy) -> float:
    """The client leaves; seconds until the upstream's connection has ended."""
    left = time.monotonic()
    peer.close()
    async with asyncio.timeout(acts.PATIENCE):
        await copy.gone.wait()
    return time.monotonic() - left


async def logged(proxy: Carryon, model: str) -> None:
    """Wait until the request of this model has its line: it is over."""
    await until(lambda: [line for line in proxy.events("request") if line.get("model", "") == model])


async def test_in_prefill_the_upstream_is_let_go(proxy: Carryon, upstream: Patient) -> None:
    """It had not answered yet; and it is not asked again."""
    async with asking(port_of(proxy), talk("prefill", SHORT, stream=True)) as peer:
        copy = await upstream.copy("prefill")
        assert await leaves(peer, copy) < SECOND
    await logged(proxy, "prefill")
    assert len(upstream.of("prefill")) == 1
    (line,) = [line for line in proxy.events("request") if line.get("model") == "prefill"]
    assert (line["status"], line["copies"]) == (499, 1)


@pytest.mark.parametrize(
    ("model", "act", "sees"),
    [("streams", acts.trickles, b"more"), ("held", acts.only_role, b"")],
    ids=["in a stream", "while its reply is held"],
)
async def test_a_reply_under_way_is_let_go(
    proxy: Carryon, upstream: Patient, model: str, act: Callable[[Copy], Awaitable[None]], sees: bytes
) -> None:
    """A stream that runs and one that has not begun for the client end alike."""
    upstream.answers[model] = act
    async with asking(port_of(proxy), talk(model, SHORT, stream=True)) as peer:
        copy = await upstream.copy(model)
        if sees:
            await peer.reader.readuntil(sees)
        assert await leaves(peer, copy) < SECOND
    await logged(proxy, model)
    assert len(upstream.of(model)) == 1


async def test_a_summary_for_nobody_is_let_go(proxy: Carryon, upstream: Patient) -> None:
    """Over the threshold, its summary under way: the summariser's connection ends, and the turn is never sent."""
    async with asking(port_of(proxy), talk("summary", LONG)) as peer:
        copy = await upstream.copy("summary", summary=True)
        assert await leaves(peer, copy) < SECOND
    await logged(proxy, "summary")
    assert not upstream.of("summary")


async def test_in_a_retry_the_second_copy_is_let_go(proxy: Carryon, upstream: Patient) -> None:
    """Refused, packed, sent once more: that copy ends with the client, and there is no third."""
    upstream.answers["retry"] = acts.refuses_once
    async with asking(port_of(proxy), talk("retry", REFUSED)) as peer:
        copy = await upstream.copy("retry", 2)
        assert await leaves(peer, copy) < SECOND
    await logged(proxy, "retry")
    assert len(upstream.of("retry")) == 2


async def test_an_upload_that_breaks_off_is_let_go(proxy: Carryon, upstream: Patient) -> None:
    """A body that streams through has reached its upstream in part: that call ends with its client."""
    head = b"POST /v1/files HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\nContent-Length: 100\r\n\r\n"
    async with client(port_of(proxy)) as peer:
        await peer.send(head + acts.PART)
        copy = await upstream.copy(acts.UPLOAD)
        assert await leaves(peer, copy) < SECOND
    await logged(proxy, "")
    assert len(upstream.of(acts.UPLOAD)) == 1


async def test_half_of_a_turn_never_reaches_an_upstream(proxy: Carryon, upstream: Patient) -> None:
    """The body of a turn is read whole first; a client that leaves before its end was never here."""
    whole = talk("half", SHORT)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(whole)
    upstream.answers["after half"] = answers_well
    async with client(port_of(proxy)) as peer:
        await peer.send(head + whole[: len(whole) // 2])
    async with asking(port_of(proxy), talk("after half", SHORT)) as peer:
        assert (await peer.message()).status == 200
    assert not upstream.of("half")


async def answers_well(copy: Copy) -> None:
    """Answer a turn."""
    await copy.answer(acts.OK)


def records(ledger: Server) -> set[str]:
    """The keys of all records."""
    return {key for key in ledger.client().keys("carryon:1:{*}") if ":model:" not in key}


async def test_a_commit_that_was_sent_lands_whole_and_authorises_nothing(
    proxy: Carryon, upstream: Patient, chaos: Chaos, ledger: Server
) -> None:
    """The client leaves while the store's word on the commit is under way: it is stored whole, and nothing is sent."""

    async def refuses(copy: Copy) -> None:
        chaos.delay = 2.0
        await copy.answer(acts.OVER)

    upstream.answers["shield"] = refuses
    before = records(ledger)
    async with asking(port_of(proxy), talk("shield", REFUSED)):
        await until(lambda: records(ledger) - before)  # it is there, and Carryon does not know yet
    await logged(proxy, "shield")
    chaos.delay = 0.0
    (name,) = records(ledger) - before
    conversation = name.partition("{")[2].rstrip("}")
    reader = RedisLedger(ledger.url, seals=Seals([SECRET.encode()]), timeout=5.0)
    record = await reader.load(conversation)
    assert record.generation == len(record.entries) == 1
    assert await reader.surface(conversation, record.epoch or "", record.entries[0])
    await reader.close()
    assert len(upstream.of("shield")) == 1


# --- in this process: who waits for one summary ---------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module")
async def served(upstream: Patient, ledger: Server) -> AsyncIterator[tuple[House, int]]:
    """A house behind its door, and its port."""
    async with AsyncExitStack() as stack:
        models = Client()
        stack.push_async_callback(models.close)
        told = {"context_window": WINDOW, "window_kind": "total"}
        house = furnished(ledger.url, upstream=models, upstreams={"up": upstream.url}, defaults=told)
        stack.push_async_callback(closed, house)
        door = Door(partial(exchange, house), ServerBounds(), on_fault=lambda: house.fault("the door"))
        stack.push_async_callback(door.close)
        yield house, await door.listen()
        assert house.internal_faults == 0


def waiting(house: House) -> int:
    """How many wait for summaries."""
    return sum(flight.waiting for flight in house.flights._flying.values())


async def test_a_summary_is_kept_while_anybody_waits_for_it(served: tuple[House, int], upstream: Patient) -> None:
    """Two ask the same: one leaves, the other gets what was asked for once; when the last has gone it ends."""
    house, port = served
    ready = asyncio.Event()

    async def summarises_when_told(copy: Copy) -> None:
        if copy.summary:
            await ready.wait()
        await copy.answer(complete(good(1)))

    upstream.answers["shared"] = summarises_when_told
    wanted = talk("shared", LONG)
    async with asking(port, wanted) as first, asking(port, wanted) as second:
        await until(lambda: waiting(house) == 2)
        first.close()
        await until(lambda: waiting(house) == 1)
        ready.set()
        got = await second.message()
        assert (got.status, got.values(b"x-carryon-action")) == (200, [b"pressure"])
    assert len(upstream.of("shared", summary=True)) == len(upstream.of("shared")) == 1
    wanted = talk("shared by none", LONG)
    async with asking(port, wanted) as first, asking(port, wanted) as second:
        copy = await upstream.copy("shared by none", summary=True)
        await until(lambda: waiting(house) == 2)
        first.close()
        assert await leaves(second, copy) < SECOND
    assert not upstream.of("shared by none")
