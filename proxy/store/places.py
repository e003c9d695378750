"""Where the embedded store keeps its data and its socket, checked before anything is started."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy.store import StoreConfigError

__all__ = ["Places"]

#: A socket's path may have about 104 bytes on macOS, 108 on Linux.
SOCKET_PATH_AT_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Paths of one embedded store; all but the socket lie in `data`."""

    data: Path
    run: Path

    @property
    def socket(self) -> Path:
        """The server's Unix socket."""
        return self.run / "store.sock"

    @property
    def log(self) -> Path:
        """The server's log, emptied at every start of the server."""
        return self.data / "valkey.log"

    @property
    def pid(self) -> Path:
        """The server's process id; believed only while `alive` is locked."""
        return self.data / "valkey.pid"

    @property
    def alive(self) -> Path:
        """Locked by the server process itself for as long as it lives."""
        return self.data / "server.lock"

    @property
    def users(self) -> Path:
        """Locked, shared, by every process that uses the store."""
        return self.data / "users.lock"

    @property
    def turn(self) -> Path:
        """Locked by whoever starts or stops the server just now."""
        return self.data / "turn.lock"

    @classmethod
    def prepare(cls, state_dir: Path) -> Places:
        """Make and check the directories of `<state_dir>/store`. Raises `StoreConfigError`."""
        data = state_dir.absolute() / "store"
        _make_private(data)
        _try_to_write(data)
        name = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        candidates = [Path(runtime, f"carryon-{name}")] if runtime and os.access(runtime, os.W_OK) else []
        candidates.append(Path(f"/tmp/carryon-{os.getuid()}-{name}"))  # noqa: S108 - owner and mode are checked
        run = next(path for path in candidates if len(os.fsencode(path)) + 12 < SOCKET_PATH_AT_MOST)
        places = cls(data=data, run=run)
        places.open_run()
        return places

    def open_run(self) -> None:
        """Make and check the socket's directory. Raises `StoreConfigError`."""
        _make_private(self.run, "the run directory: ")

    def close_run(self) -> None:
        """Remove the socket and its directory: a store that does not run leaves nothing outside its data."""
        self.socket.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or gone
            self.run.rmdir()


def _make_private(path: Path, what: str = "") -> None:
    """Make a directory that is ours alone; refuse a link, another owner, or what is no directory."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            message = f"{what}{path} belongs to another user or is no directory"
            raise StoreConfigError(message, key="state_dir", cure="remove it")
        path.chmod(0o700)
    except OSError as error:
        raise StoreConfigError(f"{what}cannot make {path}: {error.strerror}", key="state_dir", cure=_CURE) from error


def _try_to_write(path: Path) -> None:
    probe = path / f".write-{os.getpid()}"
    try:
        probe.write_bytes(b"carryon")
        probe.unlink()
    except OSError as error:
        raise StoreConfigError(f"cannot write in {path}: {error.strerror}", key="state_dir", cure=_CURE) from error


_CURE = "set state_dir to a directory that Carryon may write, or redis.url to a server of your own"
