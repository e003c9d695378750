"""What trouble of the store costs the clients: every row of the matrix, and what compaction costs where all is well.

    .venv/bin/python benchmarks/redis_trouble.py [--seconds 5] [--only full,refused]

Real servers in real trouble, `carryon serve` as a process with its own time-outs, three clients at once. Ends with 1
where invariant I10 does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.e2e.matrix import RECOVERY, Row, ground, table
from tests.e2e.traffic import KINDS, Asked, p99
from tests.store.troubles import TROUBLES


def usual(healthy: list[Asked]) -> str:
    """What each kind of request takes on a healthy store."""
    lines = ["| request | n | p50 ms | p99 ms |", "| --- | --- | --- | --- |"]
    for kind, body in KINDS.items():
        took = [1_000 * one.took for one in healthy if one.kind == kind]
        says = (body.__doc__ or "").partition(".")[0]
        lines.append(f"| {kind}: {says[:1].lower()}{says[1:]} | {len(took)} | {median(took):.0f} | {p99(took):.0f} |")
    return "\n".join(lines)


async def measured(names: list[str], seconds: float) -> list[Row]:
    """Measure these rows, and print."""
    with tempfile.TemporaryDirectory() as state:
        async with ground(Path(state)) as field:
            await field.during(1.0)
            healthy = await field.during(2 * seconds)
            print(f"On a healthy store:\n\n{usual(healthy)}\n")
            rows = [await field.row(name, healthy, seconds) for name in names]
    print(f"In trouble, milliseconds beyond the same figure there, of the kind that is worst off:\n\n{table(rows)}")
    return rows


def main() -> int:
    """Run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=5.0, help="how long each trouble lasts")
    options.add_argument("--only", default=",".join(TROUBLES), help="rows, separated by commas")
    given = options.parse_args()
    rows = asyncio.run(measured(given.only.split(","), given.seconds))
    good = all(row.in_bounds and row.success == 1.0 and row.recovered <= RECOVERY for row in rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
