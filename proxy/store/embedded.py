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
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from proxy import events
from proxy.store.binary import find_server
from proxy.store.lock import FileLock
from proxy.store.places import Places
from proxy.store.process import answers, arguments, ended, is_well, lives, send, unusable

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
                    if users.take() and lives(places):  # nobody else uses it: leave no server without an owner
                        await self._end(places)
                    raise
        except OSError as error:
            users.release()
            raise unusable(f"the embedded store in {places.data} cannot be used: {error}") from error
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
        while not await answers(places):
            if spawned is not None and spawned.poll() is not None:
                places.socket.unlink(missing_ok=True)
                raise ended(places, spawned.returncode)
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
                    [str(self._binary), *arguments(places)],
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
            raise unusable(f"the embedded store cannot start {self._binary}: {error}") from error
        finally:
            alive.release()
        return process

    async def _end(self, places: Places) -> None:
        """Stop the server and wait until it is gone: politely, then not."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if lives(places):
                send(places, sign)
            until = time.monotonic() + STOP_WITHIN
            while time.monotonic() < until:
                if self._process is not None:
                    self._process.poll()
                if not lives(places):
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
            if is_well(places):
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
        raise unusable(f"another process holds {places.turn} and does not let go", "end it") from error
    try:
        yield
    finally:
        turn.release()
