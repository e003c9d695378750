"""A compactor by name: there, or a mistake that says what is there."""

from __future__ import annotations

import importlib.metadata

import pytest

from proxy.settings.compactors import GROUP, absent


@pytest.mark.parametrize(
    ("name", "offered", "cure"),
    [
        ("builtin", (), ""),
        ("mine", ("mine", "other"), ""),
        ("mine", (), "write builtin, or install the package that offers mine beside Carryon"),
        ("mine", ("b", "a"), "write builtin or a or b, or install the package that offers mine beside Carryon"),
    ],
)
def test_a_compactor_that_nobody_offers_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch, name: str, offered: tuple[str, ...], cure: str
) -> None:
    """The cure names those that can be had."""
    points = importlib.metadata.EntryPoints(importlib.metadata.EntryPoint(one, "m:C", GROUP) for one in offered)
    monkeypatch.setattr(importlib.metadata, "entry_points", points.select)
    assert [wrong.cure for wrong in absent(name)] == ([cure] if cure else [])
