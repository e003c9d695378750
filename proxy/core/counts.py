"""Whole numbers that somebody else wrote: what no count of tokens can be is none."""

from __future__ import annotations

__all__ = ["MOST", "count_of"]

#: No window and no usage has more; far below what a float can hold, so that every sum and ratio of counts is one.
MOST = 1_000_000_000


def count_of(value: object) -> int | None:
    """Return a value that is a whole number from 0 to `MOST`, None for any other: `true`, 1.5, -1, 400 digits."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST:
        return value
    return None
