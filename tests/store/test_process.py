"""The embedded server's process, without the supervisor around it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.store import StoreConfigError
from proxy.store.lock import FileLock
from proxy.store.places import Places
from proxy.store.process import answers, arguments, ended, is_well, lives, send, unusable
from tests.store.servers import Server


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A store of its own, its directories made."""
    found = Places.prepare(tmp_path)
    yield found
    found.close_run()


def test_it_takes_no_port_and_loses_nothing_that_was_confirmed(places: Places) -> None:
    """A socket for its owner alone, every write on disk before it is confirmed (rule 5.10)."""
    words = arguments(places)
    said = dict(zip(words[::2], words[1::2], strict=True))
    assert (said["--port"], said["--unixsocket"], said["--unixsocketperm"]) == ("0", str(places.socket), "700")
    assert (said["--appendonly"], said["--appendfsync"], said["--maxmemory-policy"]) == (
        "yes",
        "always",
        "volatile-lru",
    )


def test_it_lives_as_long_as_somebody_holds_its_lock(places: Places) -> None:
    """And is well only with its socket."""
    assert not lives(places)
    held = FileLock(places.alive)
    assert held.take()
    assert lives(places)
    assert not is_well(places)
    places.socket.touch()
    assert is_well(places)
    held.release()
    assert not is_well(places)


async def test_only_a_server_of_this_data_answers_for_it(places: Places, server: Server) -> None:
    """Nobody listens: no. Another's server on our socket: that is a mistake to mend."""
    assert not await answers(places)
    places.socket.symlink_to(server.url.partition("://")[2])
    with pytest.raises(StoreConfigError, match="a server for other data"):
        await answers(places)


def test_a_process_that_is_not_ours_is_never_signalled(places: Places) -> None:
    """Its id may be on file since before a crash; rubbish on file is nobody's."""
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        for noted in (str(other.pid), "x", ""):
            places.pid.write_text(noted)
            send(places, signal.SIGTERM)
        assert other.poll() is None
        os.kill(other.pid, signal.SIGKILL)


def test_one_that_ends_while_it_starts_has_its_last_words_told(places: Places) -> None:
    """With the key that is to be mended, and the cure."""
    places.log.write_text("one\ntwo\nthree\nBad file format\n")
    error = ended(places, 1)
    assert "ended with 1 while starting; its last words: two | three | Bad file format" in str(error)
    assert error.key == unusable("x").key == "state_dir"
    assert "redis.url" in error.cure
