"""What the benchmarks claim of every session holds: quick runs of them, as benchmarks/README.md has them.

Run with `-s` to see their figures.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("script", "options"), [("fidelity", ["--quick"]), ("cost", ["--quick"]), ("alternatives", ["--only", "carryon"])]
)
async def test_every_claim_of_a_benchmark_holds_in_its_quick_run(script: str, options: list[str]) -> None:
    """It ends with 0: task, rules, words, paths, projections and prefixes; prices, loops, waits; what others lose."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        f"benchmarks/{script}.py",
        *options,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    print(f"\n{said}")
    assert process.returncode == 0, said
