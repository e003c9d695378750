"""Real servers for tests: started on a Unix socket in a short directory, stopped by process id."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import redis

from proxy.store.sealing import Seals

#: The keys of tests that configure no secret.
SEALS = Seals([b"a secret of the tests"])


class Server:
    """One Valkey or Redis server; `options` are its settings by name."""

    def __init__(self, binary: Path, **options: str) -> None:
        self._binary, self._options = binary, options
        self.directory = Path(tempfile.mkdtemp(prefix="cy-", dir="/tmp"))
        self.socket = self.directory / "s"
        self.socket = Path(options.get("unixsocket", self.socket))
        self._spawn(options)
        self._wait()

    def _spawn(self, options: dict[str, str]) -> None:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no",
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen([self._binary, *arguments], stdout=log, stderr=log, start_new_session=True)

    def again(self, **options: str) -> None:
        """Kill it and start it on the same files with further settings; returns when it answers, be it "loading"."""
        self.process.kill()
        self.process.wait()
        self._spawn({**self._options, **options})
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                if self.client().ping():
                    return
            except redis.BusyLoadingError:
                return
            except redis.RedisError:
                time.sleep(0.01)
        raise RuntimeError((self.directory / "log").read_text())

    @property
    def url(self) -> str:
        """The URL that reaches the server."""
        return f"unix://{self.socket}"

    def client(self, **options: object) -> redis.Redis:
        """Return a plain client, to look at what is stored."""
        return redis.Redis(unix_socket_path=str(self.socket), decode_responses=True, **options)

    def stop(self) -> None:
        """End the server and remove its files."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
