"""The embedded store: shared, adopted, restarted, and stopped by the last one out (rule 5.10)."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import redis

from proxy.store import StoreConfigError, embedded
from proxy.store.embedded import EmbeddedStore
from proxy.store.places import Places
from proxy.store.redis import RedisLedger
from tests.sockets import until
from tests.store.conftest import commit_one
from tests.store.servers import Server

C = "ab12.cd34"

Open = Callable[..., RedisLedger]

OWNER = """
import asyncio, pathlib, sys
from proxy.store.embedded import EmbeddedStore
async def main():
    store = EmbeddedStore(pathlib.Path(sys.argv[1]))
    print(await store.start(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await store.stop()
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after the server more often than in production."""
    monkeypatch.setattr(embedded, "LOOK_EVERY", 0.05)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
async def open_store(tmp_path: Path) -> AsyncIterator[Callable[[], EmbeddedStore]]:
    """Further users of one state directory."""
    opened: list[EmbeddedStore] = []

    def make() -> EmbeddedStore:
        opened.append(EmbeddedStore(tmp_path))
        return opened[-1]

    yield make
    for store in opened:
        await store.stop()


def socket_of(url: str) -> Path:
    """Return the socket's path."""
    return Path(url.removeprefix("unix://"))


def modes(*paths: Path) -> list[int]:
    """Return the permissions of files."""
    return [path.stat().st_mode & 0o777 for path in paths]


def lose(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def remove(directory: Path) -> None:
    """Remove a directory with all that is in it."""
    shutil.rmtree(directory)


def make(directory: Path) -> None:
    """Make a directory, its parents too."""
    directory.mkdir(parents=True, mode=0o700)


def exists(path: Path) -> bool:
    """Return whether there is such a file."""
    return path.exists()


def run(*command: str) -> subprocess.Popen[str]:
    """Start a program whose input and output are ours."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def append_only(state: Path) -> Path:
    """Return the file that holds what was written since the start."""
    (file,) = (state / "store" / "appendonlydir").glob("*.incr.aof")
    return file


def cut(file: Path, size: int) -> None:
    """Cut the last bytes off a file."""
    os.truncate(file, file.stat().st_size - size)


def ask(url: str) -> redis.Redis:
    """Return a plain client."""
    return redis.Redis.from_url(url, decode_responses=True)


def pid(url: str) -> int:
    """Return the process id of the server behind a URL."""
    return int(ask(url).info("server")["process_id"])


def alive(process: int) -> bool:
    """Whether a process runs (one that is dead and not yet reaped does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def answers(url: str) -> bool:
    """Whether the server answers."""
    try:
        return bool(ask(url).ping())
    except redis.RedisError:
        return False


async def test_the_server_is_ours_alone(open_store: Callable[[], EmbeddedStore]) -> None:
    """A private socket, no port, every write on disk before it is confirmed, bounded memory."""
    url = await open_store().start()
    assert modes(socket_of(url), socket_of(url).parent) == [0o700, 0o700]
    settings = ask(url).config_get("*")
    wanted = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory": str(256 * 1024 * 1024),
        "maxmemory-policy": "volatile-lru",
        "save": "",
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert os.getsid(pid(url)) == pid(url)  # the terminal's Ctrl-C does not reach it


async def test_a_ledger_works_on_it_and_its_confirmations_are_from_disk(
    open_store: Callable[[], EmbeddedStore], open_ledger: Open
) -> None:
    """With `aof` demanded."""
    ledger = open_ledger(await open_store().start(), durability="aof")
    await ledger.start()
    record = await commit_one(ledger, C, "op1")
    assert await ledger.confirm(C) == record


async def test_users_share_it_and_the_last_one_out_stops_it(open_store: Callable[[], EmbeddedStore]) -> None:
    """Whoever started it."""
    first, second = open_store(), open_store()
    urls = await asyncio.gather(first.start(), second.start())
    assert urls[0] == urls[1]
    server = pid(urls[0])
    await first.stop()
    assert alive(server)
    assert answers(urls[0])
    await second.stop()
    assert not alive(server)
    assert not exists(socket_of(urls[0]).parent)


async def test_surfaces_survive_a_restart(open_store: Callable[[], EmbeddedStore], open_ledger: Open) -> None:
    """Stopped and started, everything is there."""
    store = open_store()
    record = await commit_one(open_ledger(await store.start()), C, "op1")
    await store.stop()
    assert await open_ledger(await open_store().start()).load(C) == record


async def test_a_killed_owner_leaves_a_server_that_is_adopted(
    open_store: Callable[[], EmbeddedStore], open_ledger: Open, tmp_path: Path
) -> None:
    """Never a second one on the same data, and the adopter stops it when it leaves."""
    owner = run(sys.executable, "-c", OWNER, str(tmp_path))
    assert owner.stdout is not None
    url = (await asyncio.to_thread(owner.stdout.readline)).strip()
    server = pid(url)
    record = await commit_one(open_ledger(url), C, "op1")
    owner.kill()
    owner.communicate()
    assert answers(url)
    adopter = open_store()
    assert await adopter.start() == url
    assert pid(url) == server
    assert await open_ledger(url).load(C) == record
    await adopter.stop()
    await until(lambda: not alive(server))


async def test_a_killed_server_comes_back_with_its_data(
    open_store: Callable[[], EmbeddedStore], open_ledger: Open
) -> None:
    """Restarted once, by whichever user notices; what was confirmed is there."""
    stores = [open_store() for _ in range(3)]
    url = (await asyncio.gather(*(store.start() for store in stores)))[0]
    record = await commit_one(open_ledger(url), C, "op1")
    killed = pid(url)
    os.kill(killed, signal.SIGKILL)
    await until(lambda: answers(url) and pid(url) != killed)
    assert await open_ledger(url).load(C) == record
    again = pid(url)
    await asyncio.sleep(0.3)
    assert pid(url) == again


async def test_whatever_fails_while_a_server_is_started_anew_it_is_tried_again(
    open_store: Callable[[], EmbeddedStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else does: a watch that ended would leave the store away for good, without a word."""
    store = open_store()
    url = await store.start()
    ensure, failed = store._ensure, asyncio.Event()

    async def fails_once(places: Places) -> None:
        if not failed.is_set():
            failed.set()
            raise LookupError("nobody foresaw this")
        await ensure(places)

    monkeypatch.setattr(store, "_ensure", fails_once)
    os.kill(pid(url), signal.SIGKILL)
    await until(lambda: failed.is_set() and answers(url))
    assert "does not start" in caplog.text


async def test_a_watch_that_ends_is_told(
    open_store: Callable[[], EmbeddedStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it, so its failure is logged; the store can still be left."""

    def fails(_: Places) -> bool:
        raise LookupError

    store = open_store()
    await store.start()
    monkeypatch.setattr(embedded, "is_well", fails)
    await until(lambda: "background-failed" in caplog.text)
    await store.stop()


async def test_left_over_files_of_a_crash_do_no_harm(open_store: Callable[[], EmbeddedStore]) -> None:
    """A stale socket and a process id that is now somebody else's."""
    store = open_store()
    url = await store.start()
    places = store._places
    assert places is not None
    await store.stop()
    places.open_run()
    places.socket.touch()
    bystander = run("sleep", "60")
    places.pid.write_text(f"{bystander.pid}\n")
    again = open_store()
    assert await again.start() == url
    assert answers(url)
    await again.stop()
    assert bystander.poll() is None
    bystander.kill()
    bystander.communicate()


async def test_another_process_is_never_signalled_in_the_servers_place(
    open_store: Callable[[], EmbeddedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id on file is believed only of a process that was started with our socket."""
    store = open_store()
    server = pid(await store.start())
    places = store._places
    assert places is not None
    bystander = run("sleep", "60")
    places.pid.write_text(f"{bystander.pid}\n")
    monkeypatch.setattr(embedded, "STOP_WITHIN", 0.1)
    await store.stop()
    assert (bystander.poll(), alive(server)) == (None, True)
    bystander.kill()
    bystander.communicate()
    places.pid.write_text(f"{server}\n")
    monkeypatch.setattr(embedded, "STOP_WITHIN", 10.0)
    again = open_store()
    await again.start()
    await again.stop()
    assert not alive(server)


@pytest.mark.parametrize("noticed_by", ["its user", "a newcomer"])
async def test_a_server_whose_socket_was_removed_is_replaced_not_doubled(
    noticed_by: str, open_store: Callable[[], EmbeddedStore], open_ledger: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the data, so it goes before another comes (a cleaner of /tmp may remove sockets)."""
    monkeypatch.setattr(embedded, "SOCKET_WITHIN", 0.2)
    monkeypatch.setattr(embedded, "LOOK_EVERY", 0.05 if noticed_by == "its user" else 60.0)
    url = await open_store().start()
    record = await commit_one(open_ledger(url), C, "op1")
    lost = pid(url)
    lose(socket_of(url))
    if noticed_by == "a newcomer":
        assert await open_store().start() == url
    await until(lambda: answers(url))
    assert pid(url) != lost
    assert not alive(lost)
    assert await open_ledger(url).load(C) == record


async def test_a_cut_append_only_file_is_read_as_far_as_it_goes(
    open_store: Callable[[], EmbeddedStore], open_ledger: Open, tmp_path: Path
) -> None:
    """A crash in the middle of a write leaves the old surface whole (I7)."""
    store = open_store()
    ledger = open_ledger(await store.start())
    first = await commit_one(ledger, C, "op1")
    await commit_one(ledger, C, "op2", base=1)
    await store.stop()
    log = append_only(tmp_path)
    cut(log, 30)
    again = open_ledger(await open_store().start())
    record = await again.load(C)
    assert record == first
    assert await again.surface(C, record.epoch or "", record.entries[0]) == b"surface of op1"


async def test_a_server_that_will_not_start_says_why(open_store: Callable[[], EmbeddedStore], tmp_path: Path) -> None:
    """Its own last words, and what to do."""
    store = open_store()
    await store.start()
    await store.stop()
    log = append_only(tmp_path)
    log.write_bytes(b"*1\r\n$4\r\nNOPE\r\n" + b"garbage " * 10)
    with pytest.raises(StoreConfigError) as caught:
        await open_store().start()
    error = caught.value
    assert error.key == "state_dir"
    assert error.message.startswith("the embedded store's server ended with ")
    assert "; its last words: " in error.message
    assert "\n" not in str(error)
    assert re.fullmatch(r"mend what it names \(.*damaged data in /.*/store\), or set redis\.url to .*own", error.cure)


async def test_a_state_directory_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    """Nothing is started."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreConfigError, match="state_dir"):
        await EmbeddedStore(tmp_path / "file").start()


async def test_a_binary_that_cannot_run_is_a_configuration_error(tmp_path: Path) -> None:
    """Another machine's, say."""
    (tmp_path / "server").write_text("not a program")
    (tmp_path / "server").chmod(0o755)
    store = EmbeddedStore(tmp_path / "state", binary=tmp_path / "server")
    with pytest.raises(StoreConfigError, match="cannot start"):
        await store.start()
    assert store._places is not None
    assert not store._places.run.exists()


async def test_a_server_of_other_data_on_our_socket_is_not_taken_for_ours(
    open_store: Callable[[], EmbeddedStore], start_server: Callable[..., Server]
) -> None:
    """Whoever put it there, it is named and left alone."""
    store = open_store()
    url = await store.start()
    await store.stop()
    socket_of(url).parent.mkdir(mode=0o700)
    stranger = start_server(unixsocket=str(socket_of(url)))
    with pytest.raises(StoreConfigError, match="other data"):
        await open_store().start()
    assert answers(url)
    stranger.stop()
    shutil.rmtree(socket_of(url).parent)


async def test_a_state_directory_removed_under_it_ends_with_its_server(
    open_store: Callable[[], EmbeddedStore], tmp_path: Path
) -> None:
    """Traffic goes on, stopping raises nothing, and no server is left that nobody could find again."""
    store = open_store()
    server = pid(await store.start())
    remove(tmp_path / "store")
    await asyncio.sleep(0.2)
    await store.stop()
    assert not alive(server)


async def test_a_server_killed_in_a_removed_directory_is_looked_after_still(
    open_store: Callable[[], EmbeddedStore], tmp_path: Path
) -> None:
    """Once the directory is back, a server is, too: the supervisor did not end with it."""
    store = open_store()
    url = await store.start()
    os.kill(pid(url), signal.SIGKILL)
    remove(tmp_path / "store")
    await asyncio.sleep(0.3)
    make(tmp_path / "store")
    await until(lambda: answers(url))


async def test_stopping_what_was_not_started_is_nothing(tmp_path: Path) -> None:
    """Also twice."""
    store = EmbeddedStore(tmp_path)
    await store.stop()
    await store.stop()
