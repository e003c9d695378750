"""A dialogue's own calibration: of its last counted turn, and of no other dialogue."""

from __future__ import annotations

from proxy.core.anchors import Anchors
from tests.transcripts import says, transcript, user

FIRST = transcript(user("task"))
NEXT = transcript(user("task"), says("ok"), user("go on"))
LAST = transcript(user("task"), says("ok"), user("go on"), says("done"), user("more"))
BRANCH = transcript(user("task"), says("ok"), user("another way"))


def test_a_dialogue_is_measured_by_its_last_count() -> None:
    """The deepest turn that it passed; a branch by where it left."""
    anchors = Anchors()
    assert anchors.get("c", LAST) is None
    anchors.put("c", FIRST, 1.1)
    anchors.put("c", NEXT, 1.2)
    assert [anchors.get("c", one) for one in (LAST, NEXT)] == [1.2, 1.2]
    assert anchors.get("c", BRANCH) is None, "the turn before the fork gave way to the one after it"
    assert anchors.get("another", LAST) is None


def test_sessions_that_begin_alike_are_told_apart() -> None:
    """As many as are told apart; the oldest gives way."""
    anchors = Anchors()
    sessions = [transcript(user("task"), says("ok"), user(f"session {number}")) for number in range(20)]
    for number, one in enumerate(sessions):
        anchors.put("c", one, 1 + number / 100)
    found = [anchors.get("c", one) for one in sessions]
    assert found == [None] * 4 + [1 + number / 100 for number in range(4, 20)]


def test_a_count_beyond_belief_is_none() -> None:
    """Less than half of the estimate or more than four times it is somebody's mistake."""
    anchors = Anchors()
    for ratio in (0.49, 4.01, float("nan")):
        anchors.put("c", FIRST, ratio)
    assert anchors.get("c", NEXT) is None
