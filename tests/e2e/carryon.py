"""`carryon serve` as its users start it: the installed command, its own state directory, its own log."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_START_SECONDS = 30.0
_READY = re.compile(r"OPENAI_BASE_URL=(http://\S+)")


def command() -> list[str]:
    """The installed `carryon` of this environment, else the same module where the project is not installed."""
    installed = shutil.which("carryon", path=str(Path(sys.executable).parent))
    return [installed] if installed else [sys.executable, "-m", "proxy.cli"]


class Carryon:
    """One running proxy. `environment` adds settings; every run appends to the same log."""

    def __init__(self, upstream: str, state: Path, *options: str, **environment: str) -> None:
        self._log = state / "carryon.log"
        state.mkdir(parents=True, exist_ok=True)
        settings = {
            "CARRYON_STATE_DIR": str(state),
            "CARRYON_ADMIN__PORT": "0",
            "CARRYON_LOG__FORMAT": "json",
            "CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "false",  # so that it is known which turn is packed
            **environment,
        }
        self._arguments = [*command(), "serve", "--upstream", upstream, "--port", "0", *options]
        # Whoever runs the tests may have settings of their own: none of them is Carryon's here.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CARRYON_")}
        self._environment = {**kept, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    async def start(self) -> str:
        """Start and wait until it listens; returns the base URL to paste."""
        self._log.touch()
        seen = self._log.stat().st_size
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                self._arguments, stdout=out, stderr=out, env=self._environment, start_new_session=True
            )
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            if found := _READY.search(self._log.read_bytes()[seen:].decode(errors="replace")):
                self.url = found[1]
                return self.url
            await asyncio.sleep(0.05)
        await self.stop()
        raise RuntimeError(f"carryon did not start: {self._log.read_text(errors='replace')[-2000:]}")

    def send(self, which: signal.Signals) -> None:
        """Signal it."""
        assert self._process is not None
        self._process.send_signal(which)

    @property
    def log(self) -> str:
        """All it has printed so far."""
        return self._log.read_text(errors="replace")

    async def stop(self) -> int:
        """End it as a service manager does; returns its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._process.wait, 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of that name it has logged so far, in order."""
        found = []
        for line in self._log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == name:
                    found.append(event)
        return found
