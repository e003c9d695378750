"""What the commands that read the store share."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.commands.kept import age, counted, found, nothing_stored, on_store, shortest, table, wanted
from proxy.errors import ConfigError, WrongError
from proxy.settings import Settings
from proxy.store import StoreConfigError
from proxy.store.redis import RedisLedger
from tests.commands.conftest import Store
from tests.shelf import body

HERE = f"{'a' * 32}.{'1' * 32}"
ALIKE = f"{'b' * 32}.{'1' * 8}{'2' * 24}"


def look(store: Store, typed: str) -> str:
    """The conversation that is found for what was typed."""

    async def work(ledger: RedisLedger) -> str:
        return (await found(ledger, wanted(typed))).conversation

    return on_store(store.settings(), work, nothing="nothing")


@pytest.mark.parametrize("typed", ["1" * 32, "1" * 9, f" {'1' * 9} ", HERE, f"{'a' * 32}.1"])
def test_an_id_may_be_shortened_as_long_as_it_is_one(store: Store, typed: str) -> None:
    """With or without its tenant, in any case."""
    for name in (HERE, ALIKE):
        store.shelve(name, body(4))
    assert look(store, typed.upper()) == HERE


def test_a_beginning_of_several_names_them_and_nothing_is_taken(store: Store) -> None:
    """Exit code 1, with what to do."""
    for name in (HERE, ALIKE):
        store.shelve(name, body(4))
    with pytest.raises(WrongError, match=f"(?s)of 2 conversations: {'1' * 32}, {'1' * 8}2.*cure: write more digits"):
        look(store, "1")


def test_an_id_of_nobody_is_told(store: Store) -> None:
    """Exit code 1."""
    with pytest.raises(WrongError, match="no conversation ffff is stored"):
        look(store, "ffff")


@pytest.mark.parametrize("typed", ["", "*", "1*", "?", "[0-9]", "x", "1" * 33, "1.1", "*.1", "\x1b[31m", "..", "../1"])
def test_what_can_be_no_id_is_refused_before_the_store_is_opened(typed: str) -> None:
    """Exit code 2; a sign that means something to a pattern meets nothing."""
    with pytest.raises(ConfigError) as refused:
        wanted(typed)
    assert "32 hex digits" in refused.value.cure
    assert str(refused.value).isprintable() is ("\n" not in str(refused.value))


def test_where_no_store_was_ever_made_none_is_made(tmp_path: Path) -> None:
    """Whoever looks in a wrong place leaves nothing there."""

    async def never(ledger: RedisLedger) -> str:
        raise AssertionError

    settings = Settings.model_validate({"state_dir": str(tmp_path / "state")})
    assert on_store(settings, never, nothing="nothing") == "nothing"
    assert not (tmp_path / "state").exists()
    assert "--config" in str(nothing_stored())


def test_a_store_that_is_down_is_told_with_its_cause(store: Store) -> None:
    """Exit code 1, without the password of its URL."""

    async def work(ledger: RedisLedger) -> object:
        return await ledger.catalogue.page(wait=1.0)

    settings = store.settings(redis={"url": "redis://:hunter2@127.0.0.1:1/0"})
    with pytest.raises(WrongError, match=r"the store \(redis.url\) does not answer: .*127.0.0.1") as error:
        on_store(settings, work, nothing=None)
    assert "hunter2" not in str(error.value)


def test_another_secret_is_refused_with_its_cure(store: Store) -> None:
    """Exit code 2, as `serve` does."""
    store.shelve(HERE, body(4))
    look(store, "1")

    async def work(ledger: RedisLedger) -> object:
        return await ledger.catalogue.page()

    with pytest.raises(StoreConfigError, match="another `secret`"):
        on_store(store.settings(secret="another secret of thirty-two characters"), work, nothing=None)


def test_ids_are_shown_as_long_as_they_must_be_to_differ() -> None:
    """Twelve digits at least."""
    assert shortest([]) == shortest(["1" * 32]) == shortest(["1" * 32, "1" * 32]) == 12
    assert shortest(["1" * 32, "1" * 20 + "2" * 12]) == 21


@pytest.mark.parametrize(
    ("when", "told"),
    [
        (None, "-"),
        ("1970-01-01T00:16:40Z", "0s ago"),
        ("1970-01-01T00:16:30Z", "10s ago"),
        ("1970-01-01T00:13:00Z", "3m ago"),
        ("1970-01-01T00:20:00Z", "in 3m"),
        ("1970-01-08T00:00:00Z", "in 6d"),
    ],
)
def test_times_are_told_as_people_say_them(when: str | None, told: str) -> None:
    """From the thousandth second."""
    assert age(when, now=1_000.0) == told


def test_a_table_sets_numbers_to_the_right_and_shows_no_sign_that_moves_the_terminal() -> None:
    """A client names its model as it likes."""
    lines = table(("a", "n"), [("x\x1b[2J\n", 1), ("y", 1_000)], {"n"})
    assert lines == ["a          n", "x�[2J�     1", "y       1000"]


def test_numbers_of_conversations_are_spelled() -> None:
    """One is one."""
    assert (counted(1), counted(0), counted(10_000)) == ("1 conversation", "0 conversations", "10,000 conversations")
