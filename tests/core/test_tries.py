"""Attempts to pack: how they are noted, and when they pause (rule 6.8)."""

from __future__ import annotations

import pytest

from proxy.core.chain import place
from proxy.core.transcript import Transcript
from proxy.core.tries import Try, noted, pauses, tries
from tests.transcripts import says, transcript, user

TURNS = [transcript(*(user("a") if at % 2 == 0 else says("b") for at in range(1, 2 * turn))) for turn in range(1, 6)]
NOW = 1_000_000.0


def after(outcomes: str, *, tokens: int = 8_000, at: float = NOW, same: bool = False) -> tuple[Try, ...]:
    """What a dialogue knows after attempts that landed (`l`) or failed (`f`): one a turn, or all at the first."""
    notes: dict[str, str] = {}
    for number, outcome in enumerate(outcomes):
        turn = TURNS[0 if same else number]
        name, value = noted(tries(turn, notes), place(turn), landed=outcome == "l", tokens=tokens, at=at)
        notes[name] = value
    return tries(TURNS[-1], notes)


def held(known: tuple[Try, ...], *, tokens: int = 8_000, applied: bool = False, now: float = NOW) -> bool:
    """Whether an attempt is paused in a window of 10,000."""
    return pauses(known, tokens=tokens, window=10_000, applied=applied, now=now)


@pytest.mark.parametrize("same", [True, False])
def test_three_failures_pause(*, same: bool) -> None:
    """In three turns, or three times at one; two do not."""
    assert not held(after("ff", same=same))
    assert held(after("fff", same=same))
    assert held(after("fff", same=same), applied=True)


def test_two_commits_after_which_nothing_applies_pause() -> None:
    """Where a surface applies they were of use."""
    assert not held(after("l"))
    assert held(after("ll"))
    assert not held(after("ll"), applied=True)


def test_what_lands_ends_the_failures_before_it() -> None:
    """Three in a row are counted from there."""
    assert not held(after("fflff"), applied=True)
    assert held(after("flfff"), applied=True)


def test_a_pause_ends_when_the_dialogue_grew_or_after_ten_minutes() -> None:
    """By 5 % of the window since the last attempt."""
    known = after("fff")
    assert held(known, tokens=8_499)
    assert not held(known, tokens=8_500)
    assert held(known, now=NOW + 599)
    assert not held(known, now=NOW + 600)


def test_notes_of_other_dialogues_and_of_other_kinds_do_not_count() -> None:
    """Nor what makes no sense."""
    other: Transcript = transcript(user("other"), says("b"), user("c"))
    place_here = place(TURNS[0])
    notes = dict([noted((), place(other), landed=False, tokens=1, at=NOW)])
    notes |= {"force": place_here, f"tried:{place_here}": "failed:x:1:1", "tried:": "failed:1:1:1", "trial": "1"}
    assert tries(TURNS[-1], notes) == ()
    assert tries(TURNS[-1], {f"tried:{place_here}": "failed:2:1:1"}) == (
        Try(place=place_here, landed=False, times=2, tokens=1, at=1),
    )
