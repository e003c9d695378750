"""What speaks against a planned replacement, whoever planned it; `test_work` shows that it is not stored then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed

import pytest

from proxy.compaction.objections import objections
from proxy.core.replacement import replace
from proxy.core.surface import Carry, Keep, Put
from proxy.dialects.chat import CHAT
from tests.compaction.scripted import ScriptedJob, call, conversation, result, says, user

LONG = "word " * 400
TALK = conversation(
    user(f"Task. {LONG}"),
    call("c"),
    result("c", LONG),
    {"role": "system", "content": "Stay kind."},
    says(LONG),
    user("Go on."),
)
CARRIER = Put(CHAT.user("All before was summarised."))


def _objections(
    parts: Sequence[Put | Keep], through: int, *, freed: int = 5_000, trigger: str = "pressure"
) -> list[str]:
    job = ScriptedJob(TALK, window=2_048)
    view = changed(job.view, trigger=trigger)
    plan = replace(job.now, parts, through, CHAT.item, carry=Carry(), summary="S1")
    assert plan is not None
    return [found.partition(":")[0] for found in objections(view, plan, through, view.total - freed)]


def test_nothing_speaks_against_a_summary_of_whole_units_that_frees_enough() -> None:
    """Its carrier is a user's, the system text stays."""
    assert _objections([CARRIER, Keep(3, 4)], 4) == []


@pytest.mark.parametrize(
    ("parts", "through", "reason"),
    [
        ([CARRIER], 2, "the cut splits a unit"),
        ([CARRIER, Keep(3, 4)], 6, "the newest unit is not summarised"),
        ([Put(CHAT.assistant("All was summarised."))], 1, "no word of the user would be left of what is replaced"),
        ([CARRIER], 4, "system text in mid-conversation is kept as it stands, and none is added"),
    ],
)
def test_what_may_not_be_stored_is_named(parts: list[Put | Keep], through: int, reason: str) -> None:
    """By its first word for the log."""
    assert _objections(parts, through)[0] == reason


def test_what_the_dialect_would_reject_is_named_too() -> None:
    """A result without its call."""
    assert len(_objections([CARRIER, Keep(2, 3), Keep(3, 4)], 4)) == 1


@pytest.mark.parametrize(
    ("trigger", "freed", "objects"), [("pressure", 20, True), ("overflow", 20, False), ("overflow", 0, True)]
)
def test_a_replacement_must_free_enough(*, trigger: str, freed: int, objects: bool) -> None:
    """A tenth under pressure; anything on overflow."""
    assert bool(_objections([CARRIER, Keep(3, 4)], 4, freed=freed, trigger=trigger)) is objects
