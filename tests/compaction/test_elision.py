"""Cutting text to head and tail: deterministic, composable, honest about what is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.compaction.elision import cut, fit, mask
from tests.compaction.scripted import estimate

LONG = st.text(alphabet="ab \n…é😀[]", min_size=0, max_size=400)


def test_a_long_text_keeps_its_head_and_tail() -> None:
    """The marker says how many characters are gone."""
    text = "a" * 50 + "b" * 12_345 + "c" * 10
    assert cut(text, limit=100, head=50, tail=10) == f"{'a' * 50}\n[… 12345 characters elided …]\n{'c' * 10}"


def test_a_text_within_the_limit_stays() -> None:
    """Nothing is changed that is short enough."""
    assert cut("a" * 100, limit=100, head=50, tail=10) == "a" * 100


def test_a_cut_never_makes_a_text_longer() -> None:
    """Where the marker would cost more than it saves, the text stays."""
    assert cut("a" * 101, limit=100, head=50, tail=45) == "a" * 101


def test_cuts_compose() -> None:
    """Cutting what was cut counts the characters of the original."""
    text = "".join(chr(97 + at % 26) for at in range(20_000))
    once = cut(text, limit=8_192, head=4_096, tail=1_024)
    assert cut(once, limit=2_000, head=1_000, tail=250) == cut(text, limit=2_000, head=1_000, tail=250)
    assert mask(once) == mask(text) == "[… 20000 characters elided …]"


@given(LONG, st.integers(60, 200))
def test_a_second_cut_changes_nothing(text: str, limit: int) -> None:
    """Whatever the text, also one that holds something like a marker."""
    once = cut(text, limit=limit, head=limit // 2, tail=limit // 8)
    assert cut(once, limit=limit, head=limit // 2, tail=limit // 8) == once
    assert mask(mask(text)) == mask(text)


def test_a_forged_marker_cannot_exhaust_memory_or_raise() -> None:
    """Its number is only ever added."""
    text = "x" * 300 + "[… 999999999999 characters elided …]" + "y" * 300
    assert len(cut(text, limit=200, head=100, tail=25)) < 200


@given(LONG, st.integers(0, 60))
def test_fitted_text_is_within_its_budget(text: str, budget: int) -> None:
    """In tokens, as the meter passed in counts them."""
    assert estimate(fit(text, budget, estimate)) <= budget
    if estimate(text) <= budget:
        assert fit(text, budget, estimate) == text


@pytest.mark.parametrize("per_token", [1, 3, 50])
def test_fitting_does_not_depend_on_how_many_characters_a_token_has(per_token: int) -> None:
    """Dense and sparse encodings both come out within the budget, and use a good part of it."""

    def count(text: str) -> int:
        return -(-len(text) // per_token)

    size = count(fit("word " * 20_000, 200, count))
    assert 60 <= size <= 200 or per_token == 50
    assert size <= 200
