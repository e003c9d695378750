from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.commands.demo.model import ScriptedModel
from proxy.commands.demo.story import Liar, tell
from tests.terminal import arguments, environment, run, running

MOMENTS = ("carryon demo:", "── 2", " 20   ")


def places(tmp_path: Path) -> dict[str, str]:
    """An environment in which a demo's folders are its own: other demos may run on this machine."""
    named = {"XDG_RUNTIME_DIR": tmp_path / "run", "TMPDIR": tmp_path / "tmp"}
    for place in named.values():
        place.mkdir()
    return {name: str(place) for name, place in named.items()}


def left_behind(tmp_path: Path) -> list[str]:
    """Whatever stands in its folders, and processes that work there."""
    found = [str(path) for name in ("run", "tmp") for path in (tmp_path / name).iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(tmp_path) in line:
            found.append(line)
    return found


def test_three_fates_as_they_must_be_in_time_and_nothing_left(tmp_path: Path) -> None:
    """The command as its user sees it: every turn with tokens and generation, exit 0, no file, no process."""
    began = time.monotonic()
    done = run("demo", environ=places(tmp_path))
    assert done.code == 0, done.said
    assert time.monotonic() - began < 30
    assert "3 of 3 fates as they must be" in done.out
    assert done.out.count("\n   as it must be") == 3
    turns = re.findall(r"^ {5,6}(\d+) .* (?:sent|refused)", done.out, re.MULTILINE)
    assert [int(turn) for turn in turns] == list(range(1, 21))
    assert max(map(len, done.out.splitlines())) <= 100
    assert left_behind(tmp_path) == []


def test_the_story_tells_what_happened_and_by_which_rung() -> None:
    """Packed with a summary; refused, packed and sent again; refused and handed over: in that order."""
    said: list[str] = []
    assert tell(said.append)
    text = "\n".join(said)
    marks = ["packed, then sent: summary by the model (S1)", "refused, packed, sent again: ", "handed over: no-advance"]
    found = [text.find(mark) for mark in marks]
    assert -1 not in found
    assert found == sorted(found)
    assert re.search(r"was 1 and is 2: the proof that it may be sent again; copies: 2", text)
    assert re.search(r"was 2 and is 2; copies: 1; the agent got\n   the model's own error, byte for byte: yes", text)


def test_a_model_that_never_refuses_fails_the_fates_that_need_a_refusal() -> None:
    """Only the first can go well, and the demo says so instead of going on for ever."""
    said: list[str] = []
    assert not tell(said.append, model=ScriptedModel(defends=False))
    assert said[-1].strip().startswith("1 of 3 fates")


def test_a_compactor_that_lies_from_the_start_fails_the_fates_that_need_packing() -> None:
    """Nothing is packed, nothing is sent again: what it claims counts for nothing."""
    said: list[str] = []
    assert not tell(said.append, compactor=Liar())
    assert said[-1].strip().startswith("1 of 3 fates")
    assert sum("NOT as it must be" in line for line in said) == 2


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_is_the_result_of_the_story(*, good: bool, code: int) -> None:
    """Not that it was told, but that it went as it must."""
    script = (
        "import sys; from proxy import cli; from proxy.commands.demo import story; "
        f"story.tell = lambda say: {good}; sys.argv[1:] = ['demo']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), cwd="/", check=False, timeout=30)
    assert done.returncode == code


def test_a_reader_that_has_enough_leaves_nothing_behind(tmp_path: Path) -> None:
    """`carryon demo | head -1`: no complaint, and everything is stopped."""
    with subprocess.Popen(
        arguments("demo"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
        env=environment(places(tmp_path)),
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        assert demo.stderr is not None
        demo.stdout.readline()
        demo.stdout.close()
        assert demo.stderr.read() == b""
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_in_the_middle_ends_it_cleanly(tmp_path: Path, which: signal.Signals, moment: str) -> None:
    """Ctrl-C or a service manager: no traceback, the embedded server is stopped, no folder stays."""
    with running("demo", log=tmp_path / "log", environ=places(tmp_path)) as demo:
        demo.until(moment)
        code = demo.end(which)
        assert "Traceback" not in demo.said
    assert code == 130 or (code == 0 and moment == MOMENTS[-1])  # there the story may be faster than the signal
    assert left_behind(tmp_path) == []


def test_its_words_are_explained_before_they_are_used() -> None:
    """A newcomer knows neither a generation nor a rung."""
    said: list[str] = []
    assert tell(said.append)
    legend = next(line for line in said if line.startswith("generation: "))
    assert "S1: " in legend
    assert said.index(legend) < next(at for at, line in enumerate(said) if line.startswith("\n── 1"))
