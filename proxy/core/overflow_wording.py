"""What a row of the tables of wordings is, and how its pattern names the numbers it captures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from re import Pattern

__all__ = ["Phrase", "compile_phrase", "phrase"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A wording that is an overflow.

    Where the pattern captures nothing, the numbers are read by role (`overflow_numbers.read_numbers`), unless
    `numbers` is false: then what looks like one is something else. `compactable` is false where
    the wording says that the requested output fills the window.
    """

    name: str
    provider: str
    pattern: Pattern[str]
    limit_kind: str = ""
    numbers: bool = True
    compactable: bool = True


def compile_phrase(pattern: str) -> Pattern[str]:
    """Compile a pattern whose `{role}` stands for a number in that role."""
    number = r"\d{2,9}(?![\d%]|\.[1-9]| ?[km]\b)"
    for role in ("limit", "requested", "input", "output", "excess"):
        pattern = pattern.replace("{" + role + "}", f"(?P<{role}>{number})(?:\\.0+)?")
    return re.compile(pattern.replace("{n}", number))


def phrase(
    name: str,
    provider: str,
    limit_kind: str,
    pattern: str,
    *,
    numbers: bool = True,
    compactable: bool = True,
) -> Phrase:
    """Build one row of a table; `pattern` is as `compile_phrase` takes it."""
    return Phrase(
        name=name,
        provider=provider,
        pattern=compile_phrase(pattern),
        limit_kind=limit_kind,
        numbers=numbers,
        compactable=compactable,
    )
