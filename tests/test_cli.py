from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import _placed
from proxy.store import StoreConfigError
from tests.terminal import arguments, environment, run


def test_without_a_command_the_help_is_printed() -> None:
    """Nobody must know a word beforehand; it is still no success."""
    done = run()
    assert "Usage: carryon" in done.out
    assert all(name in done.out for name in ("serve", "demo", "check", "classify", "inspect", "export", "forget"))
    assert done.code == 2


def test_what_the_store_finds_wrong_is_told_with_its_own_key_and_cure(tmp_path: Path) -> None:
    """Whatever its words: the last ones of a server end in no sentence."""
    file = tmp_path / "carryon.yaml"
    file.write_text("listen: {port: 0}\nstate_dir: x\n")
    found = _placed(StoreConfigError("ended. Its words: A. B", key="state_dir", cure="mend it"), file, {})
    assert (found.file, found.line, found.key, found.message, found.cure) == (
        str(file),
        2,
        "state_dir",
        "ended. Its words: A. B",
        "mend it",
    )


def test_the_version_is_told() -> None:
    """`carryon --version` and nothing else."""
    done = run("--version")
    assert (done.code, bool(re.fullmatch(r"carryon \d+\.\d+\.\d+\n", done.out))) == (0, True)


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("serve", "carryon serve --upstream http://127.0.0.1:8080/v1"),
        ("demo", "no network"),
        ("check", "carryon check carryon.yaml"),
        ("classify", "carryon classify --jsonl answers.jsonl"),
        ("classify", "kind is what the error is"),
        ("classify", "no for what is no overflow, and where the error's own words say that the requested output"),
        ("check", "surface the most that stands in place of the rest"),
        ("serve", "default https://api.openai.com/v1"),
    ],
)
def test_the_help_of_a_command_teaches_by_example(command: str, example: str) -> None:
    """Each `--help` shows a line that can be pasted, or says what is needed."""
    done = run(command, "--help")
    assert done.code == 0
    assert example in " ".join(done.out.replace("│", " ").split())


@pytest.mark.parametrize(
    "words", [[], ["serve"], ["demo"], ["check"], ["classify"], ["inspect"], ["export"], ["forget"]]
)
def test_the_short_word_for_help_works_everywhere(words: list[str]) -> None:
    """`-h` is what many type first."""
    short, long = run(*words, "-h"), run(*words, "--help")
    assert (short.code, short.out) == (0, long.out)


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--help"]])
def test_commands_of_later_versions_are_refused(words: list[str]) -> None:
    """They are known words, refused whatever follows them, and not silently good."""
    done = run(*words)
    assert (done.code, "not in this version" in done.said) == (2, True)


@pytest.mark.parametrize("words", [["sreve"], ["serve", "--prot", "1"], ["serve", "--port", "many"], ["check"]])
def test_wrong_usage_is_exit_2_without_a_traceback(words: list[str]) -> None:
    """A misspelt command or option, a word for a number, a missing file."""
    done = run(*words)
    assert done.code == 2
    assert "carryon" in done.said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", "--window", "4k"], "'4k' is not a whole number; write it in digits, such as 4096"),
        (["serve", "--port", "8_787"], "'8_787' is not a whole number"),
        (["serve", "--port", "70000"], "--port: listen.port: is more than 65535"),
        (["serve", "--window", "4"], "--window: defaults.context_window: is less than 1024"),
        (["serve", "--host", "a:1"], "--host: listen.host: is neither an address nor a name"),
        (["classify", "--status", "9999"], "'9999' is no HTTP status; write a number from 100 to 599"),
        (["classify", "--status", "many"], "'many' is no HTTP status"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_told_with_its_option(words: list[str], message: str) -> None:
    """What was typed, and what to write."""
    done = run(*words)
    assert done.code == 2
    assert message in " ".join(done.said.replace("│", " ").split())
    assert words[1] in done.said


def test_a_stream_that_cannot_spell_a_sign_shows_another() -> None:
    """Help holds box-drawing lines; an ASCII terminal gets something else, not an error."""
    done = run("--help", environ={"PYTHONIOENCODING": "ascii"})
    assert (done.code, "Usage" in done.said) == (0, True)


def test_a_reader_that_has_enough_ends_a_command_quietly(tmp_path: Path) -> None:
    """`carryon classify --jsonl … | head -1` prints one line and no complaint about a pipe."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": 1, "status": 400, "body": "x"}\n' * 20_000, encoding="utf-8")
    command = arguments("classify", "--jsonl", lines)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd="/"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"id": 1')
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(20)


def test_no_command_imports_litellm_and_classify_no_server() -> None:
    """`litellm` costs seconds, memory and a look at the network; aiohttp and redis are for who serves."""
    script = (
        "import sys; import proxy.cli, proxy.commands.classify; "
        "print([m for m in ('litellm', 'aiohttp', 'redis', 'pydantic') if m in sys.modules]); "
        "import proxy.commands.check, proxy.commands.serve, proxy.commands.demo.story; print('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), cwd="/", check=True)
    assert done.stdout.decode().split("\n")[:2] == ["[]", "False"]
