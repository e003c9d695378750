"""The life of one request, as stories (`tests.playbooks`) told twice: in process, and over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from unittest.mock import ANY

import pytest

from proxy import exchange
from proxy.core.meter import Meter
from proxy.dialects.chat import CHAT, Chat
from proxy.steps import packing
from proxy.steps.turn import Turn
from proxy.store.binary import find_server
from proxy.tokens import count_with
from tests.houses import closed, furnished, posted
from tests.oracle import Oracle, acting, drawn
from tests.performance import perform
from tests.phrases import HISTORY, LONG, OK, OVER, body, packed
from tests.playbook import Ask, Copy, Playbook
from tests.playbooks import PLAYBOOKS
from tests.store.servers import Server

#: Random runs that hold every kind of run.
_ALL_KINDS = 1_000
METER = Meter(CHAT.weigh, count_with("o200k_base"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compactor that hangs is waited for a tenth of a second beyond its time, not five."""
    monkeypatch.setattr(packing, "_SLACK", 0.1)


@pytest.fixture
def own_server() -> Iterator[Callable[[], Server]]:
    """Start a server that a story may stop."""
    started: list[Server] = []

    def start() -> Server:
        started.append(Server(find_server()))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize(
    ("content", "coding", "thread"),
    [
        ("short", "", "MainThread"),
        ("long " * 100_000, "", "read"),
        ("long " * 100_000, "gzip", "read"),
        ([{"type": "text", "text": "a"}] * 5_000, "", "read"),
    ],
    ids=["short", "long", "long when decoded", "many parts"],
)
async def test_what_takes_long_to_read_is_read_in_a_thread_of_its_own(
    content: object, coding: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size as decoded counts, and how many values it has: a small body may be the slowest."""
    house, names = furnished(), list[str]()
    split = type(CHAT).split

    def noted(dialect: Chat, raw: bytes, *, model: str = "") -> object:
        names.append(threading.current_thread().name.partition("_")[0])
        return split(dialect, raw, model=model)

    monkeypatch.setattr(Chat, "split", noted)
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    incoming = posted(gzip.compress(raw), ("Content-Encoding", "gzip")) if coding else posted(raw)
    assert isinstance(await exchange._read(house, incoming), Turn)
    assert names == [thread]
    await closed(house)


@pytest.mark.parametrize("kind", ["process", "sockets"])
@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.name)
async def test_the_story_goes_as_it_is_told(
    playbook: Playbook, kind: str, valkey: Server, own_server: Callable[[], Server]
) -> None:
    """Copies, bodies, replies, headers and generations are exactly those of the playbook."""
    await perform(playbook, kind, valkey, own_server)


async def test_random_compactors_never_bring_about_a_copy_without_evidence(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 runs (200 where it is not `CARRYON_THOROUGH`): copies match the oracle exactly, honest ones succeed."""
    monkeypatch.setattr(packing, "_SLACK", 2.0)
    seed = int(os.environ.get("CARRYON_SEED", random.randrange(1 << 32)))
    runs = _ALL_KINDS if os.environ.get("CARRYON_THOROUGH") else 200
    tally, places = Counter[str](), asyncio.Semaphore(8)

    async def run(number: int) -> None:
        async with places:
            try:
                tally.update(await _random_run(Random(f"{seed}:{number}"), valkey))
            except AssertionError as error:
                error.add_note(f"CARRYON_SEED={seed}, run {number}")
                raise

    async with asyncio.TaskGroup() as group:
        for number in range(runs):
            group.create_task(run(number))
    print(dict(tally))
    rare = ("copies: 3",) if runs >= _ALL_KINDS else ()  # 200 runs held none once
    assert min(tally[kind] for kind in ("honest", "copies: 1", "copies: 2", *rare)) > 0, "too few of a kind"
    assert tally["honest, recovered"] >= 0.99 * tally["honest"]


async def _random_run(random: Random, valkey: Server) -> list[str]:
    """One request under random compactors: told as a playbook that the oracle wrote."""
    cap, compactions = random.choice((0, 1, 1, 2)), [drawn(random) for _ in range(2)]
    oracle = Oracle(_size)
    copies, items, made = [Copy(sees=None, says=OVER)], HISTORY, 0
    for compaction in compactions[:cap]:
        oracle.compact(compaction)
        if not oracle.authorises(items, made):
            break
        items, made = oracle.book.items, oracle.book.made
        says = OVER if random.random() < 0.3 else OK
        copies.append(Copy(sees=packed(*items), says=says))
        if says is OK:
            break
    good = copies[-1].says is OK
    story = Ask(
        body=LONG,
        copies=tuple(copies),
        gets=len(copies) - 1,
        compactor=acting(compactions),
        action="overflow-retry" if good else "overflow-refused",
        refused=None if good else ANY,
        generation=made or None,
        commits=oracle.commits,
    )
    quick = {"summary": {"timeout": "10ms"}} if any(one.end == "hang" for one in compactions[:cap]) else {}
    await perform(Playbook(name="random", asks=(story,), cap=cap, policy=quick), "process", valkey, lambda: valkey)
    honest = cap > 0 and {deed.name for deed in compactions[0].deeds} in ({"replace"}, {"replace", "wait"})
    succeeded = ["honest, recovered"] if honest and len(copies) > 1 else []
    return [f"copies: {len(copies)}", *(["honest"] if honest else []), *succeeded]


def _size(messages: tuple[bytes, ...]) -> int:
    transcript = CHAT.split(body(*messages))
    assert transcript is not None
    return METER.total(transcript.envelope, transcript.items)
