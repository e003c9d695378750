"""Regular expressions from the configuration."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from proxy.settings.patterns import regex


@pytest.mark.parametrize(
    "text",
    [
        r"too (long|big)", r"(?i)max(imum)? \d+ tokens", r"(\w+ )+over", r"(?:\w+, )*limit", r"a{1,9}b+", "x+y*z",
        r"(a+b){2,5}", r"^\s*prompt\s+is\s+too\s+long", "(?:ab|cd)+!", "[[a]",
    ],
)  # fmt: skip
def test_an_expression_that_says_something_is_taken(text: str) -> None:
    """Repeats with something between them end in time."""
    assert regex(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("too (long", "missing \\)"), ("a{99999999999}", "repeats or nests"),
        ("(" * 900 + ")" * 900, "repeats or nests"),
        ("x" * 3000, "longer than 2,000"), ("(?<=a*)b", "look-behind"), ("", "every text"), (".*", "every text"),
        ("(a?){1000}", "every text"), ("x|", "every text"),
    ],
)  # fmt: skip
def test_an_expression_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    """What does not compile, and what matches everything: then every error would be an overflow."""
    with pytest.raises(PydanticCustomError, match=message):
        regex(text)


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$", "(a*)*b", "(a+)*b", "((a+))+$", r"(?:\w+\s*)+:", r"(\s*\w+)+$", "(x|y+)+$", "(.*a)+$",
        "(?:(?:a{2,})+)+$",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
    ],
)  # fmt: skip
def test_a_repeat_of_a_repeat_is_refused(text: str) -> None:
    """One long message would hold up every request: these were tried, and double their time with each letter."""
    with pytest.raises(PydanticCustomError, match="forever") as refusal:
        regex(text)
    assert (refusal.value.context or {})["cure"]
