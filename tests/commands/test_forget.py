"""`carryon forget`: exactly what was named goes."""

from __future__ import annotations

import time

import pytest

from proxy.commands.forget import Which, forget, seconds
from proxy.commands.inspect import listed
from proxy.commands.kept import wanted
from proxy.errors import ConfigError, WrongError
from proxy.settings import Settings
from tests.commands.conftest import Store
from tests.shelf import body

DAY = 86_400
A_NEW, A_OLD = f"{'a' * 32}.{'1' * 32}", f"{'a' * 32}.{'2' * 32}"
B_NEW, B_OLD = f"{'b' * 32}.{'3' * 32}", f"{'b' * 32}.{'4' * 32}"


@pytest.fixture
def full(store: Store) -> Store:
    """Two conversations of each of two tenants, one of them last used ten days ago."""
    for name, days in ((A_NEW, 0), (A_OLD, 10), (B_NEW, 0), (B_OLD, 10)):
        store.shelve(name, body(4), at=int(time.time()) - days * DAY)
    return store


def left(store: Store) -> set[str]:
    """The first digits of what is still stored."""
    return {row["id"][0] for row in listed(store.settings())}


@pytest.mark.parametrize(
    ("which", "stays"),
    [
        (Which(ids=(wanted("1"),)), "234"),
        (Which(ids=(wanted("1"), wanted("11"), wanted("4"))), "23"),
        (Which(tenant="a" * 32), "34"),
        (Which(older=5.0 * DAY), "13"),
        (Which(tenant="b" * 32, older=5.0 * DAY), "123"),
        (Which(older=11.0 * DAY), "1234"),
        (Which(tenant="c" * 32), "1234"),
        (Which(), ""),
    ],
)
def test_exactly_those_that_were_named_go(full: Store, which: Which, stays: str) -> None:
    """And their ids are told, each once."""
    gone = forget(full.settings(), which)
    assert gone is not None
    assert left(full) == set(stays)
    assert sorted(one[0] for one in gone) == sorted(set("1234") - set(stays))


def test_whoever_is_asked_and_says_no_loses_nothing(full: Store) -> None:
    """They were told how many."""
    asked: list[int] = []

    def refused(count: int) -> bool:
        asked.append(count)
        return False

    assert forget(full.settings(), Which(tenant="a" * 32), refused) is None
    assert (asked, left(full)) == ([2], set("1234"))


def test_one_unknown_id_among_several_and_none_goes(full: Store) -> None:
    """Nothing is half done."""
    with pytest.raises(WrongError, match="no conversation ff is stored"):
        forget(full.settings(), Which(ids=(wanted("1"), wanted("ff"))))
    assert left(full) == set("1234")


def test_with_all_of_a_tenant_goes_what_is_only_noted_of_it(full: Store) -> None:
    """It is no conversation, and not counted."""
    client = full.server.client()
    for tenant in "ab":
        client.hset(f"carryon:1:{{{tenant * 32}.{'5' * 32}}}:n", "pause", "1")
    assert len(forget(full.settings(), Which(tenant="a" * 32)) or ()) == 2
    assert {key[11] for key in client.keys("*:n")} == {"b"}
    assert len(forget(full.settings(), Which()) or ()) == 2
    assert client.keys() == ["carryon:1:secret"]


def test_where_nothing_was_ever_stored_there_is_nothing_to_forget(tmp_path: object) -> None:
    """All of nothing is nothing, one of nothing is a mistake."""
    settings = Settings.model_validate({"state_dir": f"{tmp_path}/nowhere"})
    assert forget(settings, Which()) == []
    with pytest.raises(WrongError, match="nothing is stored here"):
        forget(settings, Which(ids=(wanted("1"),)))


@pytest.mark.parametrize(("text", "told"), [("7d", 7 * DAY), ("1.5h", 5_400), ("10s", 10)])
def test_ages_are_durations_with_a_unit(text: str, told: float) -> None:
    """As everywhere in the configuration."""
    assert seconds(text) == told


@pytest.mark.parametrize("text", ["7", "d", "-1d", "7 weeks", "0d", "soon", "1e3d", "99999999d"])
def test_what_is_no_duration_is_refused_with_its_cure(text: str) -> None:
    """Exit code 2."""
    with pytest.raises(ConfigError) as refused:
        seconds(text)
    assert (refused.value.key, "7d" in refused.value.cure) == ("--older-than", True)
