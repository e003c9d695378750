"""`carryon inspect`: what is stored, without a word of it."""

from __future__ import annotations

import json

import pytest

from proxy.commands.inspect import inspected, listed, shown, shown_list
from proxy.errors import ConfigError, WrongError
from proxy.settings import Settings
from proxy.store.keys import Keys
from tests.commands.conftest import Store
from tests.shelf import SUMMARY, body

HERE = f"{'a' * 32}.{'1' * 32}"
OTHER = f"{'b' * 32}.{'2' * 32}"


def test_a_list_shows_what_was_used_last_first(store: Store) -> None:
    """One line each, and their number."""
    store.shelve(HERE, body(4), at=1_000)
    store.shelve(OTHER, body(4))
    lines = list(shown_list(listed(store.settings())))
    assert lines[0].split() == ["id", "tenant", "model", "gen", "surfaces", "items", "tokens", "used", "expires"]
    assert lines[1].startswith(f"{'2' * 12}  {'b' * 12}  gpt-5")
    assert lines[2].startswith("1" * 12)
    assert "12,000 → 3,000" in lines[1]
    assert lines[3:] == ["2 conversations"]


def test_a_list_keeps_to_a_tenant(store: Store) -> None:
    """What is no tenant is refused, and meets nothing."""
    for name in (HERE, OTHER):
        store.shelve(name, body(4))
    assert [row["id"] for row in listed(store.settings(), "b" * 32)] == ["2" * 32]
    assert listed(store.settings(), "c" * 32) == []
    with pytest.raises(ConfigError, match="--tenant: a tenant is 32 hex digits"):
        listed(store.settings(), "*")


def test_nothing_stored_is_said_and_is_no_failure(store: Store) -> None:
    """An empty list."""
    assert list(shown_list(listed(store.settings()))) == ["no conversation is stored"]


def test_a_conversation_shows_its_surfaces_as_a_table(store: Store) -> None:
    """Oldest first, with who wrote them; no text."""
    store.shelve(HERE, body(4))
    record = store.shelve(HERE, body(6), covered=6)
    name = f"b:{record.entries[0].operation}"
    store.server.client().hset(Keys.of(HERE).record, name, "damage")
    described = inspected(store.settings(), "1")
    lines = list(shown(described))
    assert lines[:4] == [
        f"id          {'1' * 32}",
        f"tenant      {'a' * 32}",
        f"epoch       {record.epoch}",
        "generation  2",
    ]
    assert lines[7].split() == [
        "gen",
        "items",
        "put",
        "kept",
        "bytes",
        "tokens",
        "rung",
        "written",
        "by",
        "state",
        "age",
        "used",
    ]
    assert "new, unreadable" in lines[8]
    assert "S1    writer-1 (900 + 80)  new" in lines[9]
    assert len(lines) == 10
    assert SUMMARY not in "\n".join(lines) + json.dumps(described)


def test_one_that_is_not_stored_is_told(store: Store, tmp_path: object) -> None:
    """Whether or not there is a store."""
    with pytest.raises(WrongError, match="no conversation 1 is stored"):
        inspected(store.settings(), "1")
    with pytest.raises(WrongError, match="nothing is stored here"):
        inspected(Settings.model_validate({"state_dir": f"{tmp_path}/nowhere"}), "1")
