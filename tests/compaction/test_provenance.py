"""Who wrote a summary, and what its calls took together."""

from __future__ import annotations

import pytest

from proxy.compaction.provenance import provenance
from proxy.core.surface import Provenance
from proxy.dialects import Completion, Usage


def _answer(model: str = "m", usage: Usage | None = None) -> Completion:
    return Completion(text="x", finish="stop", model=model, usage=usage)


def test_the_usage_of_all_calls_is_added_and_the_last_model_named() -> None:
    """As S3 has them; a reply that tells none adds none."""
    answers = [
        _answer("a", Usage(prompt=100, completion=10)),
        _answer("b"),
        _answer("c-2026", Usage(prompt=50, completion=7)),
    ]
    expected = Provenance(model="c-2026", prompt=150, completion=17, calls=3, operation="op")
    assert provenance(answers, "op") == expected


def test_without_an_answer_there_is_none_and_without_usage_no_count() -> None:
    """Nothing is made up."""
    assert provenance([]) is None
    assert provenance([_answer()]) == Provenance(model="m", calls=1)


@pytest.mark.parametrize(
    ("model", "word"),
    [("", "unknown"), ("a, b;c\r\nx: y", "abcx:y"), ("\ud800\u00e4", "unknown"), ("m" * 999, "m" * 128)],
)
def test_a_model_s_name_is_a_word_that_headers_and_stores_can_hold(model: str, word: str) -> None:
    """A reply may say anything there."""
    found = provenance([_answer(model)])
    assert found is not None
    assert found.model == word
