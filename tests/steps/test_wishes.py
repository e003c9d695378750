"""What a request's own headers ask: they narrow, or are named as misspelt."""

from __future__ import annotations

import pytest

from proxy.steps.wishes import Wishes, wishes


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, Wishes()),
        ({"x-session-id": "s", "x-carry": "off"}, Wishes()),
        ({"x-carryon": " OFF "}, Wishes(off=True)),
        ({"x-carryon": "no-store"}, Wishes(no_store=True)),
        ({"x-carryon-scope": "s"}, Wishes()),
        ({"x-carryon": "no-stor"}, Wishes(unread=("x-carryon",))),
        ({"x-carryon": ""}, Wishes(unread=("x-carryon",))),
        ({"x-carryon-scop": "a"}, Wishes(unread=("x-carryon-scop",))),
        ({"x-carryon-scope": "a" * 257}, Wishes(unread=("x-carryon-scope",))),
        ({"x-carryon": "off", "x-carryon-generation": "9"}, Wishes(off=True, unread=("x-carryon-generation",))),
    ],
)
def test_headers_narrow_or_are_named(headers: dict[str, str], found: Wishes) -> None:
    """Case and spaces around a value do not count."""
    assert wishes(headers) == found
