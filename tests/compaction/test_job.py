"""What a compactor is handed: a view to work on, and a door that our own work and the tests' double both are."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from proxy.compaction.builtin import Builtin
from proxy.compaction.job import BY_MODEL, Compactor, Job, View
from proxy.compaction.work import Work
from tests.compaction.scripted import ScriptedJob, conversation, steps


def _view() -> View:
    return ScriptedJob(conversation(*steps(3)), window=10_000).view


def test_a_view_s_total_is_all_that_is_sent() -> None:
    """The items and what surrounds them."""
    view = replace(_view(), envelope=7, tokens=(1, 2, 3))
    assert view.total == 13


@pytest.mark.parametrize(("calibration", "worst"), [(1.0, 100), (2.0, 100), (0.8, 125), (0.7, 143), (0.5, 200)])
def test_a_budget_that_must_not_be_passed_is_not_shrunk_by_a_calibration(calibration: float, worst: int) -> None:
    """One below 1 says that estimates were too high so far: the worst case takes them as they are, rounded up."""
    assert replace(_view(), calibration=calibration).worst(100) == worst


@pytest.mark.parametrize("made", [Work, ScriptedJob])
@pytest.mark.parametrize("name", ["measure", "propose", "ask"])
def test_whoever_is_a_job_has_the_calls_of_its_door(made: type, name: str) -> None:
    """With the same arguments: a compactor that works on the tests' double works in the proxy."""
    wanted, found = (inspect.signature(getattr(one, name)) for one in (Job, made))
    assert [*found.parameters] == [*wanted.parameters]
    assert found.return_annotation == wanted.return_annotation


def test_the_rungs_of_a_model_are_those_below_the_outline() -> None:
    """Pruning and the outline take no model."""
    assert {"prune", "S1", "S2", "S3", "S4"} - BY_MODEL == {"prune", "S4"}


def test_the_built_in_compactor_is_one_like_any_other() -> None:
    """It goes through the same entrance as one of another package, and offers nothing more."""
    assert [name for name in vars(Builtin) if not name.startswith("_")] == ["compact"]
    assert [*inspect.signature(Builtin.compact).parameters] == [*inspect.signature(Compactor.compact).parameters]
