"""Every recorded chat session, grown until it is packed: what the upstream saw, judged by a witness of its own.

All clients are one tenant, their turns interleaved. Then each session runs alone, without the calls beside it, to
know how many summaries it needs. Run with `-s` to see the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.replay import RECORDINGS, WINDOWS, Ask, Recording
from tests.e2e.scribe import Scribe
from tests.e2e.stored import PATIENT, proxied
from tests.e2e.talk import Client, Reply
from tests.e2e.witness import Seen, Witness
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

#: Summaries a client may pay for beyond those its session alone needs.
_MOST_EXTRA = 1


@dataclass(slots=True, kw_only=True)
class Row:
    """What one client's session came to."""

    name: str
    requests: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    summaries: int = 0
    needed: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def extra(self) -> int:
        """Summaries beyond those that the session alone needs."""
        return max(0, self.summaries - self.needed)

    def __str__(self) -> str:
        told = (self.requests, *(self.actions[one] for one in ("pass", "pressure", "projected")))
        figures = (*told, self.summaries, self.needed, self.extra, len(self.wrong))
        return f"{self.name:58}" + "".join(f"{one:>10}" for one in figures)


_HEAD = ("requests", "verbatim", "packed", "projected", "summaries", "alone", "extra", "wrong")


class Stage:
    """Sends what clients sent and judges what came of it."""

    def __init__(self, client: Client, upstream: Scribe, witness: Witness) -> None:
        self._client, self._upstream, self._witness = client, upstream, witness
        self._surfaces: dict[tuple[str, int], bytes] = {}
        #: Clients' lines of which a surface was applied.
        self._packed: set[tuple[str, int]] = set()

    async def send(self, row: Row, ask: Ask, key: str) -> None:
        """Send one request and put into the row what the upstream saw."""
        before = len(self._upstream.requests)
        reply = await self._client.post(ask.spelled, key=key, **{"x-session-id": "", **ask.headers})
        assert reply.status == 200
        *asked, turn = self._upstream.requests[before:]
        row.requests += 1
        row.actions[reply.action] += 1
        row.summaries += len(asked)
        seen = self._witness.judged(turn.body, ask.spelled)
        found = [*(self._witness.asked(one, ask.spelled) for one in asked), seen.wrong]
        found += self._reported(reply, seen, packed=bool(asked)), self._expected(key + row.name, ask, seen)
        row.wrong += [f"{row.name}, request {row.requests}: {one}" for one in found if one]

    def _reported(self, reply: Reply, seen: Seen, *, packed: bool) -> str:
        """Whether the headers say what was sent: a generation is one surface, and one surface a generation."""
        if (reply.generation == 0) != (seen.surface == b"") or (reply.action == "pass") != (seen.surface == b""):
            return f"{reply.action}, generation {reply.generation}, but the body says otherwise"
        if packed and reply.action != "pressure":
            return "a summary was made and not used"
        known = self._surfaces.setdefault((reply.conversation, reply.generation), seen.surface)
        return "" if known == seen.surface else f"generation {reply.generation} is another surface than before"

    def _expected(self, session: str, ask: Ask, seen: Seen) -> str:
        """Whether a line that was packed stays packed."""
        if ask.kind != "main":
            return ""
        if seen.surface:
            self._packed.add((session, ask.line))
        return "" if seen.surface or (session, ask.line) not in self._packed else "a packed session was sent raw"


@pytest_asyncio.fixture(loop_scope="module")
async def stage(upstream: Scribe, ledger: Server, tmp_path: Path) -> AsyncIterator[Stage]:
    """A proxy that knows three windows, by the models' names."""
    models = [{"model": f"{name}-model", "context_window": size} for name, size in WINDOWS.items()]
    config = tmp_path / "carryon.yaml"
    config.write_text(json.dumps({"defaults": {"context_window": 1_000_000}, "models": models}))
    running = proxied(ledger, upstream.url, tmp_path, "--config", str(config), **PATIENT)
    witness = Witness()
    for name in WINDOWS:
        upstream.summarisers[f"{name}-model"] = witness.summarise
    async with Client(await running.start()) as client:
        yield Stage(client, upstream, witness)
    assert await running.stop() == 0
    assert not running.events("internal-fault")


def _interleaved(recordings: list[Recording]) -> Iterator[tuple[Recording, Ask]]:
    """One request of each in turn."""
    for asks in zip_longest(*(one.asks() for one in recordings)):
        yield from ((one, ask) for one, ask in zip(recordings, asks, strict=True) if ask is not None)


#: What runs with every change; all of them take a while.
_FEW = [one for one in RECORDINGS if one.name.startswith(("aider", "litellm", "openai-python", "pydantic"))]


@pytest.mark.parametrize(
    "recordings", [pytest.param(_FEW, id="few"), pytest.param(RECORDINGS, id="all", marks=pytest.mark.slow)]
)
async def test_no_recorded_session_gets_another_history_s_surface_or_pays_twice(
    stage: Stage, recordings: list[Recording]
) -> None:
    """0 wrong surfaces and at most one summary more than a session alone, over all recorded chat clients."""
    rows = {one.name: Row(name=one.name) for one in recordings}
    for recording, ask in _interleaved(recordings):
        await stage.send(rows[recording.name], ask, "sk-everybody")
    for recording in recordings:
        alone = Row(name=recording.name)
        for ask in recording.asks(linear=True):
            await stage.send(alone, ask, f"sk-{recording.name}-alone")
        rows[recording.name].needed = alone.summaries
        rows[recording.name].wrong += alone.wrong
    assert len(rows) == len(recordings) >= len(_FEW) == 4
    print("\n" + " " * 58 + "".join(f"{one:>10}" for one in _HEAD), *rows.values(), sep="\n")
    assert [one for row in rows.values() for one in row.wrong] == []
    assert all(row.actions["pressure"] and row.actions["projected"] for row in rows.values())
    assert all(row.needed and row.extra <= _MOST_EXTRA for row in rows.values())
