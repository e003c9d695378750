"""Whether an attempt may be made, and what is noted of one (rule 6.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.house import House
from proxy.steps.guards import hindered, hopeless, tried
from proxy.steps.turn import Turn
from tests.houses import seen, turned
from tests.phrases import HISTORY, body


@pytest.mark.parametrize(
    ("change", "away", "word"), [({}, False, ""), ({"may_pack": False}, False, "off"), ({}, True, "redis")]
)
async def test_an_attempt_needs_leave_and_a_store(
    house: House, turn: Turn, change: dict[str, bool], word: str, *, away: bool
) -> None:
    """The client's and the policy's leave, and something that can hold what comes of it."""
    known, sight = await seen(house, turn)
    assert hindered(house, replace(turn, **change), known, replace(sight, store_away=away), tokens=1) == word


async def test_three_failures_pause_a_dialogue_at_every_replica(
    house: House, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """They are noted in the store; the log says it once; another dialogue under the same record goes on."""
    credential = dict(turn.passage.call.headers)["Authorization"]
    later = turned(house, body(*HISTORY, HISTORY[1], HISTORY[2]), credential=credential)
    for count in range(3):
        known, sight = await seen(house, turn)
        assert hindered(house, turn, known, sight, tokens=9_000) == "", count
        tried(house, turn, sight, landed=False, tokens=9_000)
        await house.background.close(1.0)
    for _ in range(2):
        known, sight = await seen(house, later)
        assert hindered(house, later, known, sight, tokens=9_100) == "paused"
    assert hindered(house, later, known, sight, tokens=9_500) == "", "it grew by 5 % of the window"
    told = [record.getMessage() for record in caplog.records]
    assert told == ["packing-paused"]


async def test_a_hopeless_request_is_told_once(house: House, turn: Turn, caplog: pytest.LogCaptureFixture) -> None:
    """Envelope and newest unit alone are over the goal."""
    assert not hopeless(house, turn, least=10, goal=10)
    assert [hopeless(house, turn, least=11, goal=10) for _ in range(2)] == [True, True]
    assert [record.getMessage() for record in caplog.records] == ["cannot-pack"]
