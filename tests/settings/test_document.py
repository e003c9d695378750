"""One YAML text as plain values; how whole files are refused is in `test_layers` and `tests/e2e`."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.settings.document import MOST_LEVELS, MOST_VALUES, document, key_name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8787", 8787), ("8_787", 8787), ("-1", -1), ("0.5", 0.5), ("yes", True), ("off", False), ("~", None),
        ("", None),
        ("010", "010"), ("0x1F", "0x1F"), ("0b11", "0b11"), ("12:30", "12:30"), ("1:30.5", "1:30.5"),
        ("2026-12-01", "2026-12-01"), ("2026-99-99", "2026-99-99"), ("=", "="), ("'8787'", "8787"), ("!!str 1", "1"),
        ("9" * 5000, "9" * 5000), ("[a, {b: 1}]", ["a", {"b": 1}]),
    ],
)  # fmt: skip
def test_a_value_is_what_people_read(text: str, value: object) -> None:
    """Numbers are decimal; what YAML reads in other bases, and dates, stays the text that was written."""
    assert document(text, "c.yaml")[0] == value


def test_a_path_is_printed_as_people_write_it() -> None:
    """Whatever its keys hold, it stays on one line and changes nothing on a terminal."""
    assert key_name(("models", 1, "like")) == "models[1].like"
    assert key_name(("", "a\nb", "\x1b[31m")) == "''.'a\\nb'.'\\x1b[31m'"
    assert key_name(("k" * 100,)) == "k" * 79 + "…"


def _refusal(text: str, **named: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        document(text, "place", **named)
    return refusal.value


@pytest.mark.parametrize(
    "text",
    [
        "a: *hunter2hunter2", "a: !hunter2hunter2", "a: !!hunter2hunter2 1", "a: !!float hunter2hunter2",
        "a: !!bool hunter2hunter2", "a: !x!hunter2hunter2 1", "a: 'hunter2hunter2", "a: b: hunter2hunter2",
        "a: [hunter2hunter2",
    ],
)  # fmt: skip
def test_no_refusal_shows_a_value(text: str) -> None:
    """A password may begin with a sign that means something to YAML."""
    refusal = _refusal(text)
    assert "hunter2" not in str(refusal)
    assert refusal.line
    assert refusal.cure


def test_all_that_can_be_read_beside_a_mistake_is_judged_too() -> None:
    """Keys written twice and tags are told together, each with its line."""
    refusal = _refusal("a: 1\nb: !x 1\na: 2\n? [c]\n: 3\nd: {<<: 1}\n")
    assert [(mistake.line, mistake.key) for mistake in refusal.mistakes] == [(2, "b"), (3, "a"), (4, ""), (6, "d")]


def test_what_begins_on_another_line_is_told_with_it() -> None:
    """The mistake is there, not where YAML noticed."""
    refusal = _refusal("a: 1\nb: 'open\nc: 2\n")
    assert (refusal.line, refusal.message.endswith("; it begins at line 2")) == (4, True)


def test_values_are_counted_with_aliases_spelled_out() -> None:
    """A few lines may spell more than memory holds."""
    letters = "abcdefghijklmnopqrstuvwx"
    pairs = list(itertools.pairwise(letters))
    bomb = "a: &a [1, 1]\n" + "".join(f"{c}: &{c} [*{b}, *{b}]\n" for b, c in pairs)
    assert f"more than {MOST_VALUES:,} values" in _refusal(bomb).message
    nested = "a: &a [1]\n" + "".join(f"{c}: &{c} [*{b}]\n" for b, c in pairs)
    assert len(nested.splitlines()) > MOST_LEVELS
    assert "nested too deeply" in _refusal(nested).message


def test_the_text_of_a_variable_has_a_key_and_no_line() -> None:
    """Nobody counts lines there."""
    refusal = _refusal("[{a: 1, a: 2}]", at=("models",), lines=False)
    assert str(refusal) == "place: models[0].a: is written twice\n  cure: keep one of the two"
    assert _refusal("\x00", at=("models",), lines=False).line is None
