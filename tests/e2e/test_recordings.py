"""Every recorded session, on all three APIs, grown until it is packed: what the upstream saw, judged by a witness.

All clients are one tenant, their turns interleaved; some are there twice, with other words after the same beginning.
Then each session runs alone, without the calls beside it, to know how many summaries it needs. Run with `-s` to see
the table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.reading import READINGS
from tests.e2e.replay import RECORDINGS, Ask, Recording
from tests.e2e.stand import Row, Stage, staged
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

#: Summaries a client may pay for beyond those its session alone needs.
_MOST_EXTRA = 1
#: What runs with every change; all of them take a while.
_QUICK = ("aider", "litellm", "openai-python", "pydantic", "openai-agents-0.24.0_responses", "claude-code-2.1_title")
_FEW = [one for one in RECORDINGS if one.name.startswith(_QUICK)]


@pytest_asyncio.fixture(loop_scope="module")
async def stage(ledger: Server, tmp_path: Path) -> AsyncIterator[Stage]:
    """A proxy that knows three windows, by the models' names."""
    async with staged(ledger, tmp_path) as found:
        yield found


def _interleaved(recordings: list[Recording]) -> Iterator[tuple[Recording, Ask]]:
    """One request of each in turn."""
    for asks in zip_longest(*(one.asks() for one in recordings)):
        yield from ((one, ask) for one, ask in zip(recordings, asks, strict=True) if ask is not None)


@pytest.mark.parametrize(
    "recordings", [pytest.param(_FEW, id="few"), pytest.param(RECORDINGS, id="all", marks=pytest.mark.slow)]
)
async def test_no_recorded_session_gets_another_history_s_surface_or_pays_twice(
    stage: Stage, recordings: list[Recording]
) -> None:
    """0 wrong surfaces and at most one summary more than a session alone, over all clients; a packed line stays so."""
    rows = {one.name: Row(name=one.name, api=one.api) for one in recordings}
    everybody = f"sk-everybody-of-{len(recordings)}"  # the store outlives a run, its witness does not
    for recording, ask in _interleaved(recordings):
        await stage.send(rows[recording.name], ask, everybody)
    for recording in recordings:
        alone = Row(name=recording.name)
        for ask in recording.asks(linear=True):
            await stage.send(alone, ask, f"{everybody}-{recording.name}")
        rows[recording.name].needed = alone.summaries
        rows[recording.name].wrong += alone.wrong
    assert len(rows) == len(recordings) >= len(_FEW) == len(_QUICK) + 3
    assert {row.api for row in rows.values()} == READINGS.keys()
    print("\n" + Row.head(), *rows.values(), sep="\n")
    assert [one for row in rows.values() for one in row.wrong] == []
    assert all(row.actions["pressure"] and row.actions["projected"] for row in rows.values())
    assert all(row.needed and row.extra <= _MOST_EXTRA for row in rows.values())
