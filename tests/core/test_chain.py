"""Where a transcript stood: found again by what goes on from there, and by nothing else."""

from __future__ import annotations

import pytest

from proxy.core.chain import depth, passed, place
from tests.transcripts import calls, result, says, transcript, user

START = (user("task"), calls("c"), result("c", "x"))
HERE = transcript(*START)


def test_a_dialogue_passes_the_places_it_went_through() -> None:
    """Its own, and those of its earlier turns; not those of an edited one."""
    later, edited = transcript(*START, says("ok"), user("go on")), transcript(user("another"), *START[1:], says("ok"))
    places = [place(one) for one in (HERE, later, edited)]
    assert passed(later, places) == {places[0], places[1]}
    assert passed(HERE, places) == {places[0]}
    assert passed(edited, places) == {places[2]}


def test_a_place_says_how_deep_it_is() -> None:
    """In significant items; a transcript without any stands nowhere."""
    assert depth(place(HERE)) == 3
    assert place(transcript()) == ""


@pytest.mark.parametrize("nonsense", ["", ":", "x", "3", "-1:aa", "3:", "9" * 5_000 + ":aa", "٣:aa", "0:aa"])
def test_what_is_no_place_is_passed_by_nobody(nonsense: str) -> None:
    """Notes may have been written by another version."""
    assert passed(HERE, [nonsense]) == frozenset()
