"""The embedded store: our own Valkey server, shared by all workers and commands of one state directory.

Three locks, all released by the kernel when their holder dies, carry the life of the server:

* `server.lock` is inherited by the server process and by nothing else: locked means the server lives,
  whoever started it, so a second one is never started on the same data;
* `users.lock` is held, shared, by every user: who gets it alone is the last one out, and stops the server;
* `turn.lock` serialises starting, joining and stopping.

So a server that outlived a killed Carryon is simply found alive, and a killed server is simply found dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from proxy import events
from proxy.store import StoreConfigError
from proxy.store.binary import find_server
from proxy.store.lock import FileLock
from proxy.store.places import Places

__all__ = ["EmbeddedStore"]

_LOG = logging.getLogger(__name__)

#: Reading a full append-only file takes seconds; a server that needs longer than this is taken to hang.
START_WITHIN = 30.0
#: A server makes its socket before it reads its file: one that lives without a socket has lost it.
SOCKET_WITHIN = 2.0
#: With `appendfsync always` all that was confirmed is on disk already: then a kill loses nothing.
STOP_WITHIN = 10.0
LOOK_EVERY = 0.5
BACK_OFF = (0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
HEALTHY_AFTER = 60.0
POLL = 0.02
ANSWER_WITHIN = 1.0


class EmbeddedStore:
    """One user of the embedded server in `<state_dir>/store`. Every process, worker or command, has its own."""

    def __init__(self, state_dir: Path, *, binary: Path | None = None) -> None:
        self._state_dir = state_dir
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._users: FileLock | None = None
        self._places: Places | None = None

    async def start(self) -> str:
        """Join the server, starting it where none lives; return its URL. Raises `StoreConfigError`."""
        self._binary = self._binary or find_server()
        self._places = places = Places.prepare(self._state_dir)
        users = FileLock(places.users)
        try:
            async with _turn(places):
                users.take(shared=True)
                try:
                    await self._ensure(places)
                except BaseException:
                    if users.take() and _lives(places):  # nobody else uses it: leave no server without an owner
                        await self._end(places)
                    raise
        except OSError as error:
            users.release()
            raise _unusable(f"the embedded store in {places.data} cannot be used: {error}") from error
        except BaseException:
            users.release()
            raise
        self._users = users
        self._watch = asyncio.create_task(self._supervise(places))
        self._watch.add_done_callback(events.ended)
        return f"unix://{quote(str(places.socket))}"

    async def stop(self) -> None:
        """Leave; the last one out stops the server and waits until it is gone."""
        if self._places is None or self._users is None:
            return
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        try:
            async with _turn(self._places):
                if self._users.take():
                    await self._end(self._places)
        except OSError:  # its directory was removed, with the locks in it: nobody else can find this server
            _LOG.warning("the embedded store's directory %s is gone; what was in it is lost", self._places.data)
            await asyncio.to_thread(self._end_own)
        finally:
            self._users.release()
            self._users = None

    # -- life of the server ---------------------------------------------------------------------------------

    async def _ensure(self, places: Places) -> None:
        """Return when a server that is ours answers. The caller holds the turn."""
        patience = START_WITHIN if places.socket.exists() else SOCKET_WITHIN
        until, spawned = time.monotonic() + patience, None
        while not await _answers(places):
            if spawned is not None and spawned.poll() is not None:
                places.socket.unlink(missing_ok=True)
                raise _ended(places, spawned.returncode)
            alive = FileLock(places.alive)
            if alive.take():
                self._process = spawned = self._spawn(places, alive)
                until = time.monotonic() + START_WITHIN
            if time.monotonic() > until:
                # It lives but cannot be reached (a cleaner removed its socket, say). It must go before
                # another may start on the same data.
                await self._end(places)
                until, spawned = time.monotonic() + START_WITHIN, None
            await asyncio.sleep(POLL)

    def _spawn(self, places: Places, alive: FileLock) -> subprocess.Popen[bytes]:
        """Start the server; it inherits the lock that says it lives. It has its own session: Ctrl-C is ours."""
        try:
            places.open_run()
            places.socket.unlink(missing_ok=True)
            with places.log.open("wb") as log:
                process = subprocess.Popen(  # noqa: S603 - the binary is found by us, the arguments are ours
                    [str(self._binary), *_arguments(places)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=places.data,
                    env={"LC_ALL": "C"},
                    start_new_session=True,
                    pass_fds=[alive.hand_over()],
                )
            places.pid.write_text(f"{process.pid}\n", encoding="ascii")
        except OSError as error:
            places.close_run()
            raise _unusable(f"the embedded store cannot start {self._binary}: {error}") from error
        finally:
            alive.release()
        return process

    async def _end(self, places: Places) -> None:
        """Stop the server and wait until it is gone: politely, then not."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if _lives(places):
                _send(places, sign)
            until = time.monotonic() + STOP_WITHIN
            while time.monotonic() < until:
                if self._process is not None:
                    self._process.poll()
                if not _lives(places):
                    self._process = None
                    places.close_run()
                    places.pid.unlink(missing_ok=True)
                    return
                await asyncio.sleep(POLL)
        _LOG.error("the embedded store's server could not be stopped (see %s)", places.pid)

    def _end_own(self) -> None:
        """Stop the server this process started, without its files."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_WITHIN)

    async def _supervise(self, places: Places) -> None:
        """Start the server anew when it dies, with back-off; any user may be the one who does."""
        crashes, since = 0, time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._process is not None:
                self._process.poll()  # reap it: nobody else can
            if _is_well(places):
                if time.monotonic() - since > HEALTHY_AFTER:
                    crashes = 0
                continue
            _LOG.warning(
                "the embedded store's server or its socket is gone; starting it again (its log: %s)", places.log
            )
            await asyncio.sleep(BACK_OFF[min(crashes, len(BACK_OFF) - 1)])
            crashes, since = crashes + 1, time.monotonic()
            try:
                async with _turn(places):
                    await self._ensure(places)
            except Exception:  # noqa: BLE001 - whatever it was this time: nobody else starts the server anew
                _LOG.warning("the embedded store's server does not start", exc_info=True)


@contextlib.asynccontextmanager
async def _turn(places: Places) -> AsyncIterator[None]:
    """Hold the turn. Whoever holds it longer than a start and a stop take, hangs."""
    turn = FileLock(places.turn)
    try:
        async with asyncio.timeout(2 * (START_WITHIN + 2 * STOP_WITHIN)):
            await turn.wait()
    except TimeoutError as error:
        raise _unusable(f"another process holds {places.turn} and does not let go", "end it") from error
    try:
        yield
    finally:
        turn.release()


def _arguments(places: Places) -> list[str]:
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


def _lives(places: Places) -> bool:
    """Whether a server process holds the data, answering or not."""
    probe = FileLock(places.alive)
    free = probe.take(shared=True)
    probe.release()
    return not free


def _is_well(places: Places) -> bool:
    """Whether the server lives and has its socket. A removed directory (where locks lie) is not well."""
    try:
        return _lives(places) and places.socket.exists()
    except OSError:
        return False


async def _answers(places: Places) -> bool:
    """Whether a server answers on the socket and works on our data."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            directory = await _directory(places.socket)
    except (OSError, EOFError, ValueError):  # a time-out is an OSError, a server still loading a ValueError
        return False
    if not _is_data(directory, places):
        raise _unusable(f"a server for other data ({directory}) listens on {places.socket}", "stop it")
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


def _send(places: Places, sign: signal.Signals) -> None:
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


def _ended(places: Places, code: int) -> StoreConfigError:
    """Return the error for a server that ended while it was starting."""
    last = []
    with contextlib.suppress(OSError):
        last = places.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
    told = f"its last words: {' | '.join(last) or '(nothing)'}"
    message = f"the embedded store's server ended with {code} while starting; {told}"
    return _unusable(message, f"mend what it names (a full disk, damaged data in {places.data}), {_INSTEAD}")


_INSTEAD = "or set redis.url to a server of your own"


def _unusable(message: str, cure: str = f"mend that, {_INSTEAD}") -> StoreConfigError:
    return StoreConfigError(message, key="state_dir", cure=cure)
