"""Cutting text to its head and tail, with a marker that says how much is gone.

A marker holds no clock and no random id, so equal text gives equal bytes. Cuts compose: cutting what
was cut before counts the characters of the original, and a second pass changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["Count", "cut", "fit", "mask"]

#: Tokens of a text.
Count = Callable[[str], int]

_MARKER = re.compile(r"\n?\[… (\d{1,12}) characters elided …\]\n?")
#: Code points looked at for one token of budget: more is cut before it is counted, which bounds the work.
_PER_TOKEN = 16
#: A text that was cut ends with at least this share of it from its end.
_TAIL_SHARE = 5
_LEAST = 16


def cut(text: str, *, limit: int, head: int, tail: int) -> str:
    """Keep the first `head` and the last `tail` code points of a text over `limit` code points.

    `limit` must leave room for the marker (about 40 code points), or a second pass would cut again.
    """
    if len(text) <= limit:
        return text
    end = len(text) - tail
    shorter = f"{text[:head]}\n{_marker(text[head:end])}\n{text[end:]}"
    return shorter if len(shorter) < len(text) else text


def mask(text: str) -> str:
    """The marker alone, or the text where that is no longer than the marker."""
    marker = _marker(text)
    return marker if len(marker) < len(text) else text


def fit(text: str, budget: int, count: Count) -> str:
    """Cut a text to its head and tail so that it counts at most `budget` tokens; empty where nothing fits."""
    if budget <= 0:
        return ""
    length = min(len(text), budget * _PER_TOKEN)
    shorter = _to_length(text, length)
    while (size := count(shorter)) > budget:
        length = min(length * budget // size, length * 9 // 10)
        if length < _LEAST:
            return ""
        shorter = _to_length(text, length)
    return shorter


def _to_length(text: str, length: int) -> str:
    tail = length // _TAIL_SHARE
    return cut(text, limit=length, head=length - tail, tail=tail)


def _marker(gone: str) -> str:
    """The marker for `gone`; what an earlier marker in it stood for counts as well."""
    earlier = [*_MARKER.finditer(gone)]
    size = len(gone) + sum(int(one[1]) - len(one[0]) for one in earlier)
    return f"[… {max(size, 0)} characters elided …]"
