"""The embedded server as a process: how it is started, whether it lives and answers, how it is signalled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from proxy.store import StoreConfigError
from proxy.store.lock import FileLock
from proxy.store.places import Places

__all__ = ["answers", "arguments", "ended", "is_well", "lives", "send", "unusable"]

ANSWER_WITHIN = 1.0
_INSTEAD = "or set redis.url to a server of your own"


def arguments(places: Places) -> list[str]:
    """Return the server's command line (rule 5.10); what is not named keeps the server's default."""
    settings = {
        "port": "0",
        "unixsocket": str(places.socket),
        "unixsocketperm": "700",
        "dir": str(places.data),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
        "aof-load-truncated": "yes",
        "maxmemory": "256mb",
        "maxmemory-policy": "volatile-lru",
        "databases": "1",
        "set-proc-title": "no",
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def lives(places: Places) -> bool:
    """Whether a server process holds the data, answering or not."""
    probe = FileLock(places.alive)
    free = probe.take(shared=True)
    probe.release()
    return not free


def is_well(places: Places) -> bool:
    """Whether the server lives and has its socket. A removed directory (where locks lie) is not well."""
    try:
        return lives(places) and places.socket.exists()
    except OSError:
        return False


async def answers(places: Places) -> bool:
    """Whether a server answers on the socket and works on our data."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            directory = await _directory(places.socket)
    except (OSError, EOFError, ValueError):  # a time-out is an OSError, a server still loading a ValueError
        return False
    if not _is_data(directory, places):
        raise unusable(f"a server for other data ({directory}) listens on {places.socket}", "stop it")
    return True


async def _directory(socket: Path) -> str:
    """Ask a server where its data lies; raise ValueError where it answers with an error.

    In plain words of the protocol: the client library's time-outs may swallow a cancellation on Python 3.11,
    and a supervisor that cannot be cancelled would hang its owner's stop.
    """
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        # While it reads its file a server answers CONFIG already, but not PING.
        writer.write(b"PING\r\nCONFIG GET dir\r\n")
        if await reader.readuntil(b"\r\n") != b"+PONG\r\n" or await reader.readuntil(b"\r\n") != b"*2\r\n":
            raise ValueError("not a server that answers")
        await reader.readuntil(b"dir\r\n")
        size = int((await reader.readuntil(b"\r\n")).lstrip(b"$"))
        return os.fsdecode(await reader.readexactly(size))
    finally:
        writer.close()


def _is_data(directory: str, places: Places) -> bool:
    try:
        return Path(directory).samefile(places.data)
    except OSError:  # it was removed under the server
        return False


def send(places: Places, sign: signal.Signals) -> None:
    """Signal the server whose id is on file, if that id is still a server of ours."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(places.pid.read_text(encoding="ascii"))
        if _is_ours(pid, places):
            os.kill(pid, sign)


def _is_ours(pid: int, places: Places) -> bool:
    """Whether a process was started with our socket; process ids are used again after a crash."""
    command = Path(f"/proc/{pid}/cmdline")
    if command.exists():
        return os.fsencode(places.socket) in command.read_bytes().split(b"\0")
    listed = subprocess.run(  # noqa: S603 - a number and fixed words
        ["/bin/ps", "-p", str(pid), "-o", "command="], capture_output=True, check=False
    )
    return os.fsencode(places.socket) in listed.stdout


def ended(places: Places, code: int) -> StoreConfigError:
    """Return the error for a server that ended while it was starting."""
    last = []
    with contextlib.suppress(OSError):
        last = places.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
    told = f"its last words: {' | '.join(last) or '(nothing)'}"
    message = f"the embedded store's server ended with {code} while starting; {told}"
    return unusable(message, f"mend what it names (a full disk, damaged data in {places.data}), {_INSTEAD}")


def unusable(message: str, cure: str = f"mend that, {_INSTEAD}") -> StoreConfigError:
    """Return the error for a store that cannot be used."""
    return StoreConfigError(message, key="state_dir", cure=cure)
