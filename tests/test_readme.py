"""The README's promises, kept: its two commands run on a clean clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
#: Set for what the README's commands start, so that a test of them never starts itself.
INNER = "README_COMMANDS_RUNNING"


def commands() -> list[str]:
    """The commands of the README's first block, without what is said about them."""
    block = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert block
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has: the files of this checkout that git knows or would take, and nothing that was built."""
    folder = tmp_path_factory.mktemp("clone") / "carryon"
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


def test_the_first_command_shows_and_the_second_tests() -> None:
    """The README opens with `make demo` and `make test`."""
    assert commands() == ["make demo", "make test"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(INNER in os.environ, reason="already inside a run of the README's commands")
def test_the_readmes_commands_run_on_a_clean_clone(clone: Path, tmp_path: Path) -> None:
    """Both set up what they need and succeed, in their order; the second one runs tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTEST_"))}
    environment |= {INNER: "1", "XDG_STATE_HOME": str(tmp_path)}
    for command in commands():
        done = subprocess.run(
            command,
            shell=True,
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-2000:]}"
    assert re.search(r"\d+ passed", done.stdout)
