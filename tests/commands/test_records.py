"""How `inspect`, `export` and `forget` are called, wrong use included: in this process, and as their own."""

from __future__ import annotations

import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy import cli
from proxy.commands.inspect import listed
from tests.commands.conftest import Store
from tests.shelf import SUMMARY, body
from tests.terminal import Done, arguments, environment, run, running

HERE = f"{'a' * 32}.{'1' * 32}"
OTHER = f"{'b' * 32}.{'2' * 32}"
Call = Callable[..., Done]


class Keyboard(io.StringIO):
    """Somebody sits there."""

    def isatty(self) -> bool:
        """It is a terminal."""
        return True


@pytest.fixture
def call(store: Store, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Iterator[Call]:
    """Run a command in this process, on the store."""
    handlers = logging.getLogger().handlers[:]

    def called(*words: str | Path, typed: str | None = None, **environ: str) -> Done:
        for name, value in {**store.environ, **environ}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["carryon", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()) if typed is None else Keyboard(typed))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsysbinary.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, out.decode(), err.decode())

    yield called
    logging.getLogger().handlers[:] = handlers


WRONG: dict[str, tuple[list[str], int, str]] = {
    "an unknown id": (["inspect", "ffff"], 1, "no conversation ffff is stored"),
    "an unknown id to export": (["export", "ffff"], 1, "no conversation ffff is stored"),
    "an unknown id to forget": (["forget", "ffff"], 1, "no conversation ffff is stored"),
    "a beginning of both": (["forget", "1"], 1, "begins the ids of 2 conversations"),
    "a pattern for an id": (["forget", "*"], 2, "is no conversation's id"),
    "a pattern for a tenant": (["forget", "--tenant", "*", "--yes"], 2, "a tenant is 32 hex digits, or anonymous"),
    "an empty id": (["inspect", ""], 0, "2 conversations"),
    "an empty id to forget": (["forget", ""], 2, "is no conversation's id"),
    "a second id": (["inspect", "1", "2"], 2, "unexpected extra argument"),
    "an id and a tenant": (["inspect", "1", "--tenant", "a"], 2, "stands beside an ID"),
    "nothing to export": (["export"], 2, "an ID or --request FILE is missing"),
    "two things to export": (["export", "1", "--request", "f"], 2, "exclude each other"),
    "a tenant without a request": (["export", "1", "--tenant", "a"], 2, "go with --request"),
    "no such file": (["export", "--request", "nowhere.json"], 2, "nowhere.json cannot be read: No such file"),
    "a directory": (["export", "--request", "/"], 2, "it is a directory"),
    "nothing on standard input": (["export", "--request", "-"], 2, "holds no request of a known dialect"),
    "nothing to forget": (["forget"], 2, "nothing says which"),
    "an id and all": (["forget", "1", "--all"], 2, "several are asked for at a time"),
    "a tenant and all": (["forget", "--all", "--tenant", "a"], 2, "several are asked for at a time"),
    "no duration": (["forget", "--older-than", "soon"], 2, "--older-than: is not an amount with a unit"),
    "all without a word": (["forget", "--all"], 2, "would forget 2 conversations"),
    "an unknown option": (["forget", "--everything"], 2, "No such option"),
    "no such configuration": (["inspect", "--config", "nowhere.yaml"], 2, "cannot be read"),
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_use_is_told_and_changes_nothing(store: Store, call: Call, how: str) -> None:
    """What is wrong, and what to do; 1 for what is not so, 2 for what was typed."""
    words, code, told = WRONG[how]
    for name in (HERE, f"{'a' * 32}.1{'2' * 31}"):
        store.shelve(name, body(4))
    done = call(*words)
    assert (done.code, told in " ".join(done.said.replace("│", " ").split())) == (code, True), done.said
    assert len(listed(store.settings())) == 2


@pytest.mark.parametrize(
    "command", [["inspect"], ["inspect", "1"], ["export", "1"], ["forget", "1"], ["forget", "--all"]]
)
def test_a_store_that_is_down_and_a_wrong_secret_are_told(store: Store, call: Call, command: list[str]) -> None:
    """Exit codes 1 and 2; no password and no secret is shown."""
    store.shelve(HERE, body(4))
    assert call("inspect").code == 0
    wrong = call(*command, CARRYON_SECRET="another secret of thirty-two characters")
    assert (wrong.code, "another `secret`" in wrong.said, "thirty-two" in wrong.said) == (2, True, False)
    down = call(*command, CARRYON_REDIS__URL="redis://:hunter2@127.0.0.1:1/0", CARRYON_REDIS__CONNECT_TIMEOUT="1s")
    assert (down.code, "does not answer" in down.said, "hunter2" in down.said) == (1, True, False)
    assert down.said.count("\n") == 2, "the message and its cure, nothing else"


def test_all_that_print_data_print_json(store: Store, call: Call, tmp_path: Path) -> None:
    """And nothing else on standard output."""
    store.shelve(HERE, body(6))
    file = tmp_path / "body.json"
    file.write_bytes(body(6))
    assert [row["id"] for row in json.loads(call("inspect", "--json").out)] == ["1" * 32]
    assert json.loads(call("inspect", "1", "--json").out)["conversation"]["generation"] == 1
    assert SUMMARY in json.dumps(json.loads(call("export", "1", "--json").out)["surfaces"][0]["parts"])
    assert [len(json.loads(line)) for line in call("export", "1").out.splitlines()] == [1, 1]
    asked = json.loads(call("export", "--request", file, "--json").out)
    assert (asked["conversation"], asked["covered"], SUMMARY in asked["body"]) == ("1" * 32, 4, True)
    assert json.loads(call("forget", "1", "--json").out) == {"forgotten": 1, "ids": ["1" * 32]}


def test_a_request_is_printed_ready_to_send(store: Store, call: Call, tmp_path: Path) -> None:
    """To the byte, what is said of it on the other stream; 1 where nothing applies."""
    store.shelve(HERE, body(6))
    file = tmp_path / "body.json"
    file.write_bytes(body(6))
    laid = call("export", "--request", file)
    assert (laid.code, json.loads(laid.out)["messages"][1]["content"]) == (0, SUMMARY)
    assert f"surface 1 of conversation {'1' * 32}" in laid.err
    other = call("export", "--request", file, "--tenant", "b" * 32)
    assert (other.code, other.out, "printed as it came" in other.err) == (1, body(6).decode(), True)
    keyed = call("export", "--request", file, "--credential", "env:KEY", KEY="sk-nobody")
    assert (keyed.code, "sk-nobody" in keyed.said) == (1, False)


@pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 2), ("\n", 1, 2), ("", 1, 2)])
def test_whoever_sits_there_is_asked_before_many_are_forgotten(
    store: Store, call: Call, typed: str, code: int, left: int
) -> None:
    """And told how many; an end of the input is a no."""
    for name in (HERE, OTHER):
        store.shelve(name, body(4))
    done = call("forget", "--all", typed=typed)
    assert (done.code, len(listed(store.settings()))) == (code, left), done.said
    assert "Forget 2 conversations?" in done.said


def test_yes_asks_nobody_and_none_is_good(store: Store, call: Call) -> None:
    """A job that runs every night says it beforehand."""
    for name in (HERE, OTHER):
        store.shelve(name, body(4))
    assert call("forget", "--tenant", "a" * 32, "--older-than", "1h").out == "forgot 0 conversations\n"
    assert call("forget", "--tenant", "a" * 32, "--yes").out == "forgot 1 conversation\n"
    assert call("forget", "--all", "-y").out == "forgot 1 conversation\n"


@pytest.mark.parametrize("command", ["inspect", "export", "forget"])
def test_the_help_shows_lines_to_paste(call: Call, command: str) -> None:
    """And says whose store it is."""
    told = " ".join(call(command, "--help").out.replace("│", " ").split())
    assert told.count(f"carryon {command}") >= 3
    assert "whether or not serve is running" in told


def test_a_reader_that_has_enough_ends_a_list_quietly(store: Store) -> None:
    """`carryon inspect | head -1`."""
    store.shelve(HERE, body(4))
    client = store.server.client()
    for number in range(2_000):
        client.copy(f"carryon:1:{{{HERE}}}", f"carryon:1:{{{'a' * 32}.{number:032x}}}")
    with subprocess.Popen(
        arguments("inspect"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(store.environ), cwd="/"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"id ")
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(20)


def test_ctrl_c_ends_a_command_without_a_traceback_and_leaves_no_server(tmp_path: Path) -> None:
    """While it asks: the embedded store that was started for it is stopped, and nothing is forgotten."""
    (tmp_path / "store").mkdir()
    environ = {"CARRYON_STATE_DIR": str(tmp_path)}
    with running("export", "--request", "-", log=tmp_path / "log", environ=environ, command=_slow()) as command:
        command.until("asked")
        assert (tmp_path / "store" / "valkey.pid").exists()
        assert command.end(signal.SIGINT) in {1, 130}
        assert "Traceback" not in command.said
    assert not (tmp_path / "store" / "valkey.pid").exists()
    assert run("inspect", environ=environ).out == "no conversation is stored\n"


def _slow() -> list[str]:
    """`carryon inspect` whose store takes for ever to be listed."""
    script = (
        "import asyncio, sys; from proxy import cli; from proxy.store.catalogue import Catalogue\n"
        "async def page(self, *_, **__): print('asked', flush=True); await asyncio.sleep(60)\n"
        "Catalogue.page = page; sys.argv = ['carryon', 'inspect']; cli.main()"
    )
    return [sys.executable, "-c", script]


def test_reading_writes_nothing_but_whose_store_it_is(store: Store, call: Call) -> None:
    """Neither a note nor a mark."""
    store.shelve(HERE, body(4))
    for words in (["inspect"], ["inspect", "1"], ["export", "1"]):
        assert call(*words).code == 0
    assert set(store.server.client().keys()) == {f"carryon:1:{{{HERE}}}", "carryon:1:secret"}
