"""Which policy holds for a model."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.settings.match import merged
from proxy.settings.shape import ModelPolicy, PolicyShape


def _entries(*entries: dict[str, Any]) -> list[ModelPolicy]:
    return [ModelPolicy.model_validate(entry) for entry in entries]


def test_an_entry_changes_only_what_it_names() -> None:
    """Nested mappings included."""
    defaults = PolicyShape.model_validate({"retain_ratio": 0.1, "summary": {"max_tokens": 1000, "language": "English"}})
    entries = _entries({"model": "m", "threshold_ratio": 0.9, "summary": {"max_tokens": 2000}})
    policy = merged(defaults, entries, "u", "m")
    assert (policy.threshold_ratio, policy.retain_ratio) == (0.9, 0.1)
    assert (policy.summary.max_tokens, policy.summary.language) == (2000, "English")
    assert merged(defaults, entries, "u", "other") == defaults


def test_a_key_named_with_its_default_stands_over_a_less_specific_entry() -> None:
    """What is written counts, not what differs."""
    entries = _entries({"model": "m*", "auto": False}, {"model": "m1", "auto": True})
    assert merged(PolicyShape(), entries, "u", "m1").auto is True
    assert merged(PolicyShape(), entries, "u", "m2").auto is False


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ({}, {"model": "g*"}),
        ({"model": "g*"}, {"model": "gpt-*"}),
        ({"model": "gpt-*"}, {"model": "gpt-5"}),
        ({"model": "gpt-*"}, {"upstream": "local"}),
        ({"upstream": "local"}, {"model": "gpt-5"}),
        ({"upstream": "lo*"}, {"model": "gpt-*"}),
        ({"model": "gpt-5"}, {"model": "gpt-5", "upstream": "l*"}),
        ({"model": "gpt-5", "upstream": "l*"}, {"model": "gpt-5", "upstream": "local"}),
        ({"upstream": "local"}, {"upstream": "local", "model": "g*"}),
        ({"upstream": "l*", "model": "g*"}, {"upstream": "local", "model": "g*"}),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_more_specific_entry_wins_wherever_it_stands(
    *, weaker: dict[str, str], stronger: dict[str, str], turned: bool
) -> None:
    """Exact beats glob, longer glob beats shorter; the order of the file does not matter."""
    entries = _entries({**weaker, "context_window": 1111}, {**stronger, "context_window": 2222})
    policy = merged(PolicyShape(), reversed(entries) if turned else entries, "local", "gpt-5")
    assert policy.context_window == 2222


def test_letters_are_told_apart_by_case() -> None:
    """Names of models are identifiers."""
    entries = _entries({"model": "GPT*", "auto": False})
    assert merged(PolicyShape(), entries, "u", "gpt-5").auto is True


@pytest.mark.parametrize(
    ("inherited", "named", "kept"),
    [
        ({"threshold_tokens": 9000}, {"threshold_ratio": 0.5}, {"threshold_tokens": None, "threshold_ratio": 0.5}),
        ({"retain_tokens": 900}, {"retain_ratio": 0.1}, {"retain_tokens": None, "retain_ratio": 0.1}),
        ({"threshold_ratio": 0.5}, {"threshold_tokens": 9000}, {"threshold_tokens": 9000}),
        ({"context_window": 4096}, {"like": "n"}, {"context_window": None, "like": "n"}),
        ({"like": "n"}, {"context_window": 4096}, {"context_window": 4096, "like": None}),
        ({"context_window": 4096}, {"auto": False}, {"context_window": 4096}),
    ],
)
def test_what_an_entry_says_in_one_way_is_not_undone_by_what_it_inherits_in_the_other(
    *, inherited: dict[str, Any], named: dict[str, Any], kept: dict[str, Any]
) -> None:
    """A ratio of one model stands over the tokens of all models, as a ratio would over a ratio."""
    for defaults, entries in (
        (PolicyShape.model_validate(inherited), _entries({"model": "m", **named})),
        (PolicyShape(), _entries({"model": "*", **inherited}, {"model": "m", **named})),
    ):
        policy = merged(defaults, entries, "u", "m")
        assert {name: getattr(policy, name) for name in kept} == kept
