"""Where the embedded store keeps data and socket."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.store import StoreConfigError
from proxy.store.places import Places


@pytest.fixture(autouse=True)
def no_runtime_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Prepare places below a long path."""
    places = Places.prepare(tmp_path / ("long" * 40))
    yield places
    shutil.rmtree(places.run)


def test_both_directories_are_private_and_the_sockets_path_is_short(places: Places) -> None:
    """Whatever the umask and however long the path of the state directory."""
    assert [path.stat().st_mode & 0o777 for path in (places.data, places.run)] == [0o700, 0o700]
    assert len(os.fsencode(places.socket)) < 100


def test_one_state_directory_has_one_socket(places: Places, tmp_path: Path) -> None:
    """Reached by another spelling or a link it is still the same store."""
    (tmp_path / "link").symlink_to(tmp_path / ("long" * 40))
    assert Places.prepare(tmp_path / "link").socket == places.socket
    other = Places.prepare(tmp_path / "other")
    assert other.socket != places.socket
    other.run.rmdir()


def test_the_users_runtime_directory_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is short enough for a socket."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    short = len(str(tmp_path)) < 70
    places = Places.prepare(tmp_path / "state")
    assert (places.run.parent == tmp_path) is short
    places.run.rmdir()


def test_a_run_directory_that_is_a_link_is_refused(places: Places, tmp_path: Path) -> None:
    """Somebody may have put it there first."""
    places.run.rmdir()
    places.run.symlink_to(tmp_path)
    with pytest.raises(StoreConfigError, match="run directory"):
        Places.prepare(tmp_path / ("long" * 40))
    places.run.unlink()
    places.run.mkdir()


def test_a_state_directory_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    """The message names the setting and what the system said."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreConfigError, match=r"state_dir.*Not a directory.*redis\.url"):
        Places.prepare(tmp_path / "file" / "state")


def test_a_state_directory_that_cannot_be_written_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found before a server is started (a full disk looks the same)."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreConfigError, match=r"state_dir.*No space left"):
        Places.prepare(tmp_path / "state")
