from __future__ import annotations

import pytest

from proxy.core.overflow_wording import compile_phrase, phrase


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("at most 8192 tokens", "8192"),
        ("at most 8192.0 tokens", "8192"),
        ("at most 8192.", "8192"),
        ("at most 8.5 tokens", None),
        ("at most 95% full", None),
        ("at most 256k", None),
        ("at most 7 tokens", None),
    ],
)
def test_a_role_captures_a_whole_number_of_tokens(text: str, limit: str | None) -> None:
    """Percentages, fractions, thousands written as a letter and single digits are something else."""
    found = compile_phrase("at most {limit}").search(text)
    assert (found["limit"] if found else None) == limit


def test_a_number_without_a_role_is_only_skipped() -> None:
    """`{n}` matches and captures nothing."""
    found = compile_phrase("{n} of {requested}").search("12 of 3456")
    assert found is not None
    assert found.groupdict() == {"requested": "3456"}


def test_a_row_says_what_most_rows_leave_out() -> None:
    """Numbers are read and packing helps, unless the row says otherwise."""
    row = phrase("name", "provider", "total", "too long")
    assert (row.numbers, row.compactable, row.limit_kind) == (True, True, "total")
