"""A client as a process: a home of its own, no way out to the internet, a time limit, ended with all it started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: What a client keeps of the environment of whoever runs the tests.
_KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH")
#: Nothing listens there: a client that tries to reach the internet is refused at once.
_NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How it ended; `code` is None where it had to be ended."""

    code: int | None
    out: str
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of a process whose home is `home`."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    folders = {"TMPDIR": home / "tmp", "HOME": home} | {
        f"XDG_{kind}_HOME": home / kind.lower() for kind in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    outside = {"HTTPS_PROXY": _NOWHERE, "https_proxy": _NOWHERE, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return {**kept, **{name: str(folder) for name, folder in folders.items()}, **outside, "CI": "1", **more}


async def run(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, seconds: float, typed: str | None = None
) -> Ended:
    """Run it to its end, at most for `seconds`; `typed` is its standard input."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if typed is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd=cwd,
        start_new_session=True,
        limit=1 << 24,
    )
    talking = asyncio.ensure_future(process.communicate(typed.encode() if typed is not None else None))
    done, _ = await asyncio.wait({talking}, timeout=seconds)
    with suppress(ProcessLookupError):  # its session is its own: what it left running goes with it
        os.killpg(process.pid, signal.SIGKILL)
    out, err = await talking
    code = process.returncode if done else None
    return Ended(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))
