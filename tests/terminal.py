"""`carryon` as a process of its own, outside the checkout: what goes in, what comes out, what is left behind."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

__all__ = ["Done", "Running", "arguments", "environment", "run", "running"]

_CHECKOUT = Path(__file__).parents[1]
_READY = re.compile(r"OPENAI_BASE_URL=(http://\S+)")
#: A loaded machine without compiled bytecode needs seconds for the imports alone.
PATIENCE = 40.0


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Both streams; no command ever shows a traceback."""
        assert "Traceback" not in self.out + self.err, self.err
        return self.out + self.err


@cache
def _bytecode() -> str:
    """Where the session's commands keep compiled bytecode: outside the checkout, and compiled once."""
    place = tempfile.mkdtemp(prefix="carryon-pyc-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def environment(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The environment of a command: this one's without anything of Carryon's or Python's, and what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARRYON_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(_CHECKOUT), "PYTHONPYCACHEPREFIX": _bytecode(), "COLUMNS": "100", **more}


def arguments(*words: str | Path) -> list[str]:
    """The command line that runs `carryon` with these words."""
    return [sys.executable, "-m", "proxy.cli", *map(str, words)]


def run(*words: str | Path, stdin: bytes = b"", environ: Mapping[str, str] = MappingProxyType({})) -> Done:
    """Run a command to its end; `environ` are further environment variables."""
    done = subprocess.run(
        arguments(*words), input=stdin, capture_output=True, cwd="/", env=environment(environ),
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


class Running:
    """A command that runs; both its streams go into one file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def until(self, pattern: str | re.Pattern[str], within: float = PATIENCE) -> re.Match[str]:
        """Wait until it has printed something."""
        deadline = time.monotonic() + within
        while (found := re.search(pattern, self.said)) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{pattern} was not printed; exit {self.process.poll()}:\n{self.said}")
            time.sleep(0.01)
        return found

    def ready(self) -> str:
        """Wait until it serves; returns the base URL it says to paste."""
        return self.until(_READY)[1]

    def end(self, which: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(which)
        return self.process.wait(PATIENCE)


@contextmanager
def running(
    *words: str | Path, log: Path, environ: Mapping[str, str], command: list[str] | None = None
) -> Iterator[Running]:
    """Start a command; one that still runs at the end is ended, politely first."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command or arguments(*words), stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd="/",
            env=environment(environ),
        )  # fmt: skip
    try:
        yield Running(process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
