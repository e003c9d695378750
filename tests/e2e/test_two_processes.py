"""Two `carryon serve` processes on one Redis, and one that is started again on its own store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.store.redis import RedisLedger
from tests.e2e.carryon import Carryon
from tests.sockets import Peer, Raw, raw_upstream, reply
from tests.store.servers import SEALS, Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

#: The upstream refuses bodies over this many bytes.
ROOM = 16_000
SETTINGS = {"CARRYON_DEFAULTS__SUMMARY__METHOD": "outline", "CARRYON_REDIS__TIMEOUT": "2s"}
OK = b'{"id":"r","choices":[{"index":0,"message":{"role":"assistant","content":"aye"},"finish_reason":"stop"}]}'
OVER = json.dumps({"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}}).encode()


@dataclass
class Narrow:
    """An upstream with little room; it remembers what it was sent, by the client's own number for the turn."""

    url: str = ""
    seen: dict[str, list[bytes]] = field(default_factory=dict)

    async def serve(self, peer: Peer) -> None:
        """One connection."""
        while True:
            raw: Raw = await peer.message()
            if not raw.start.startswith(b"POST /v1/chat"):
                await peer.send(reply(b"{}", status="404 No"))
                continue
            self.seen.setdefault(raw.values(b"x-turn")[0].decode(), []).append(raw.body)
            fits = len(raw.body) <= ROOM
            await peer.send(reply(OK) if fits else reply(OVER, status="400 Bad Request"))


@asynccontextmanager
async def narrow() -> AsyncIterator[Narrow]:
    """Run one."""
    upstream = Narrow()
    async with raw_upstream(upstream.serve) as raw:
        upstream.url = f"{raw.url}/v1"
        yield upstream


def history(steps: int) -> list[dict[str, Any]]:
    """An agent's conversation: a task, then steps of a call and its long result."""
    found: list[dict[str, Any]] = [
        {"role": "system", "content": "Be careful."},
        {"role": "user", "content": "Mend it."},
    ]
    for at in range(steps):
        call = {
            "id": f"c{at}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"f{at}"})},
        }
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"line of file {at}\n" * 120})
    return found


async def ask(base: str, steps: int, turn: str) -> dict[str, str]:
    """Send one turn; its reply headers. Every turn must be answered."""
    body = {"model": "m", "messages": history(steps)}
    headers = {"Authorization": "Bearer sk-team", "x-turn": turn}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base}/chat/completions", json=body, headers=headers) as got,
    ):
        assert got.status == 200, (turn, got.status, await got.text(), dict(got.headers))
        assert await got.read() == OK
        return {name.lower(): value for name, value in got.headers.items()}


@asynccontextmanager
async def carryon(upstream: Narrow, state: Path, **settings: str) -> AsyncIterator[Carryon]:
    """One running process."""
    process = Carryon(upstream.url, state, "--window", "20000", **SETTINGS, **settings)
    await process.start()
    try:
        yield process
    finally:
        assert await process.stop() == 0


async def test_what_one_process_packed_another_projects(valkey: Server, tmp_path: Path) -> None:
    """The second process finds the first one's surface in Redis, byte for byte the same projection."""
    valkey.client().flushall()
    shared = {"CARRYON_REDIS__URL": valkey.url, "CARRYON_SECRET": "the same for all replicas"}
    async with (
        narrow() as upstream,
        carryon(upstream, tmp_path / "a", **shared) as one,
        carryon(upstream, tmp_path / "b", **shared) as two,
    ):
        packed = await ask(one.url, 12, "packed")
        assert (packed["x-carryon-action"], packed["x-carryon-generation"]) == ("overflow-retry", "1")
        again = await ask(two.url, 12, "again")
        assert (again["x-carryon-action"], again["x-carryon-generation"]) == ("projected", "1")
        assert upstream.seen["again"] == upstream.seen["packed"][1:]
        assert again["x-carryon-conversation"] == packed["x-carryon-conversation"]


async def test_twenty_overflows_at_once_leave_a_strictly_rising_generation(valkey: Server, tmp_path: Path) -> None:
    """Whoever wins each race: all are answered, in at most two copies, and every commit counts exactly once."""
    valkey.client().flushall()
    shared = {"CARRYON_REDIS__URL": valkey.url, "CARRYON_SECRET": "the same for all replicas"}
    async with (
        narrow() as upstream,
        carryon(upstream, tmp_path / "a", **shared) as one,
        carryon(upstream, tmp_path / "b", **shared) as two,
    ):
        turns = [ask((one, two)[at % 2].url, 12 + at % 2, f"turn {at}") for at in range(20)]
        got = await asyncio.gather(*turns)
        assert all(len(copies) <= 2 for copies in upstream.seen.values())
        commits = [event["generation"] for process in (one, two) for event in process.events("commit")]
        assert sorted(commits) == list(range(1, len(commits) + 1))
        (key,) = [key for key in valkey.client().keys("carryon:1:{*}") if ":model:" not in key]
        ledger = RedisLedger(valkey.url, seals=SEALS, timeout=2.0, durability="memory")
        record = await ledger.load(key.partition("{")[2][:-1])
        await ledger.close()
        assert record.generation == len(commits) > 0
        generations = [entry.generation for entry in record.entries]
        assert generations == sorted(set(generations))
        assert max(int(one_got["x-carryon-generation"]) for one_got in got) <= record.generation


async def test_surfaces_live_on_when_carryon_is_started_again(tmp_path: Path) -> None:
    """With its own embedded store: packed before, projected after, in one copy."""
    async with narrow() as upstream:
        async with carryon(upstream, tmp_path) as process:
            packed = await ask(process.url, 12, "before")
            assert packed["x-carryon-action"] == "overflow-retry"
        async with carryon(upstream, tmp_path) as process:
            again = await ask(process.url, 12, "after")
        assert (again["x-carryon-action"], again["x-carryon-generation"]) == (
            "projected",
            packed["x-carryon-generation"],
        )
        assert upstream.seen["after"] == upstream.seen["before"][1:]
