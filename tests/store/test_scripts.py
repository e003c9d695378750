"""The Lua scripts as package data."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from proxy.store.scripts import LOAD, SCRIPTS, Command


def test_every_lua_file_is_a_script_and_every_script_a_file() -> None:
    """None is forgotten on either side."""
    lua = {path.name for path in files("proxy.store").joinpath("lua").iterdir() if path.name.endswith(".lua")}
    assert lua == {f"{script.name}.lua" for script in SCRIPTS}


def test_a_script_is_called_by_the_digest_of_its_source() -> None:
    """And spelled out for a server that does not hold it."""
    command = LOAD(("a", "b", "c"), "x", 7)
    assert command.words == (
        "EVALSHA",
        hashlib.sha1(LOAD.source.encode(), usedforsecurity=False).hexdigest(),
        3,
        "a",
        "b",
        "c",
        "x",
        7,
    )
    assert command.spelled().words == ("EVAL", LOAD.source, 3, "a", "b", "c", "x", 7)


def test_a_plain_command_is_spelled_already() -> None:
    """Only scripts have two forms."""
    command = Command(("GET", "x"))
    assert command.spelled() is command


def test_every_script_says_what_it_is_for() -> None:
    """Name, keys, arguments and result stand at the head of each."""
    for script in SCRIPTS:
        head = script.source.split("\nlocal", 1)[0]
        assert head.startswith(f"-- {script.name}: ")
        assert all(word in head for word in ("-- KEYS", "-- ARGV", "-- Result"))
