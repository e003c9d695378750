"""What proxies of this kind do with the same requests: each installed from the package index, each on its defaults.

    .venv/bin/python benchmarks/alternatives.py            # three minutes; installs each into an environment of its own

Only what is seen from outside is asked: bytes, copies, statuses, tokens. A program is given its upstream, its port, an
empty home and Carryon's threshold (80 % of the window); all else is as it comes. Everything is on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from likewise import QUESTIONS, WINDOW, Address

_START = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How one is started, by its folder, port, upstream's origin and threshold in tokens."""

    name: str
    command: Callable[[Path, int, str, int], list[str]]
    environment: Callable[[Path, int, str, int], dict[str, str]] = lambda *_: {}
    package: str = ""


def _awecompress(home: Path, port: int, upstream: str, threshold: int) -> list[str]:
    config = home / "config.json"
    config.write_text(f'{{"thresholdTokens": {threshold}}}')
    return ["awecompress", "serve", "--port", str(port), "--upstream", upstream, "--config", str(config)]


PROGRAMS = (
    Program(
        name="Carryon",
        command=lambda _home, port, upstream, _threshold: [
            *(sys.executable, "-m", "proxy.cli", "serve", "--upstream", f"{upstream}/v1", "--port", str(port)),
        ],
        environment=lambda home, _port, _upstream, threshold: {
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "CARRYON_STATE_DIR": str(home / "state"),
            "CARRYON_ADMIN__PORT": "0",
            "CARRYON_DEFAULTS__THRESHOLD_TOKENS": str(threshold),
        },
    ),
    Program(
        name="context-guardian 0.12.0",
        package="context-guardian==0.12.0",
        command=lambda *_: ["context-guardian"],
        environment=lambda _home, port, upstream, threshold: {
            "GUARDIAN_PORT": str(port),
            "GUARDIAN_UPSTREAM_URL": f"{upstream}/v1",
            "GUARDIAN_NUM_CTX": str(threshold * 10 // 8),
            "GUARDIAN_COMPACT_THRESHOLD": "0.8",
            "GUARDIAN_RESERVE_OUTPUT": "0",
        },
    ),
    Program(name="awecompress 0.2.0", package="awecompress==0.2.0", command=_awecompress),
    Program(
        name="cliffcompaction 0.1.0",
        package="cliffcompaction==0.1.0",
        command=lambda _home, port, upstream, threshold: [
            *("cliff", "serve", "--port", str(port), "--openai-upstream", upstream, "--threshold", str(threshold)),
        ],
    ),
)


def _installed(program: Program, folder: Path) -> Path | None:
    """The folder of the program's commands; None where it cannot be installed."""
    if not program.package:
        return Path(sys.executable).parent
    place = folder / program.package
    if not (place / "bin").exists():
        print(f"installing {program.package}", file=sys.stderr)
        made = subprocess.run([sys.executable, "-m", "venv", str(place)], check=False)  # noqa: S603 - our own command
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if made.returncode or subprocess.run([*pip, program.package], check=False).returncode:  # noqa: S603 - pinned above
            return None
    return place / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def _running(program: Program, binaries: Path, upstream: str, threshold: int) -> AsyncIterator[Address]:
    """The program before an upstream, in an empty home; its `Address` can kill it and start it again."""
    with tempfile.TemporaryDirectory(prefix="carryon-peer-") as folder:
        home, port = Path(folder), _free_port()
        command = program.command(home, port, upstream, threshold)
        command[0] = str(binaries / command[0]) if (binaries / command[0]).exists() else command[0]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARRYON_", "GUARDIAN_"))}
        settings = {
            **kept,
            "HOME": folder,
            "XDG_RUNTIME_DIR": "",
            **program.environment(home, port, upstream, threshold),
        }
        running: list[subprocess.Popen[bytes]] = []

        async def start() -> None:
            with (home / "log").open("ab") as log:
                started = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=settings)  # noqa: ASYNC220, S603 - returns at once
                running.append(started)
            until = time.monotonic() + _START
            while time.monotonic() < until:
                if running[-1].poll() is not None:
                    break
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    return
                await asyncio.sleep(0.1)
            raise RuntimeError(f"{program.name} did not start: {(home / 'log').read_text()[-2_000:]}")

        async def end(how: signal.Signals) -> None:
            running[-1].send_signal(how)
            await asyncio.to_thread(running[-1].wait, 30)

        await start()
        try:
            yield Address(port=port, start=start, kill=lambda: end(signal.SIGKILL))
        finally:
            if running[-1].poll() is None:
                await end(signal.SIGTERM)


_FOLDER = Path(tempfile.gettempdir()) / "carryon-alternatives"


async def main(folder: Path, only: str) -> int:
    """Ask every program every question; 1 where Carryon's own answers are not what its documentation says."""
    wrong = 0
    for program in PROGRAMS:
        if only.lower() not in program.name.lower():
            continue
        binaries = _installed(program, folder)
        print(f"\n{program.name}", flush=True)
        if binaries is None:
            print("  could not be installed")
            continue
        for question in QUESTIONS:
            threshold = int(WINDOW * 0.8) * (1 if question.window_known else 100)
            async with question.upstream() as (upstream, heard):
                try:
                    async with _running(program, binaries, upstream, threshold) as address:
                        found, good = await asyncio.wait_for(question.ask(address, heard), 120)
                except (OSError, RuntimeError, TimeoutError, ValueError, EOFError, IndexError) as error:
                    found, good = f"failed: {type(error).__name__}: {str(error)[:300]}", False
            wrong += not good and not program.package
            print(f"  {'yes' if good else 'no ':3}  {question.name}: {found}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "carryon-alternatives", help="where"
    )
    parser.add_argument("--only", default="", help="a part of one name")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.folder, given.only)))
