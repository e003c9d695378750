"""Every trouble a Redis can be in, while traffic flows: no error of ours, hardly a delay, soon over (rule 5.9, I10)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.matrix import RECOVERY, Ground, Row, ground, table
from tests.e2e.traffic import Asked
from tests.store.troubles import TROUBLES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SECONDS = 1.5
WARN_EVERY = 30.0
#: Rows in which the store still reads and takes no write, and those in which it works.
NO_WRITES, WORKS = {"full", "read-only"}, {"NOSCRIPT"}


async def test_no_trouble_of_the_store_is_the_clients_trouble(tmp_path: Path) -> None:
    """Success is the upstream's, little is added, packed conversations go on, no retry without proof, one warning."""
    async with ground(tmp_path) as field:
        began = time.monotonic()
        await field.during(0.5)  # the first requests of a kind are slower than the rest
        healthy = await field.during(2 * SECONDS)
        rows = [await _row(field, name, healthy) for name in TROUBLES]
        lasted = time.monotonic() - began
        warnings = [line for line in field.carryon.log.splitlines() if '"level": "warning"' in line]
    print(f"\n{table(rows)}\nwarnings: {len(warnings)} in {lasted:.0f} s")
    assert all("the store failed" in line for line in warnings)
    assert 1 <= len(warnings) <= 1 + lasted / WARN_EVERY
    for row in rows:
        _holds(row)


async def _row(field: Ground, name: str, healthy: list[Asked]) -> Row:
    """Measure a row; once more where the machine was too busy for figures."""
    row = await field.row(name, healthy, SECONDS)
    return row if row.in_bounds else await field.row(name, healthy, SECONDS)


def _holds(row: Row) -> None:
    bad = [one for one in row.asked if not one.well]
    assert not bad, (row.name, bad[:3])
    assert row.in_bounds, row.cells
    assert row.recovered <= RECOVERY, row.cells
    by = {kind: {one.action for one in row.asked if one.kind == kind} for kind in ("packed", "overflow", "fresh")}
    assert by["packed"] == {"projected"}, row.name
    if row.name in WORKS:
        assert by["overflow"] == {"overflow-retry"}
        return
    assert by["overflow"] == {"overflow-refused"}, row.name
    assert {one.refused for one in row.asked if one.kind == "overflow"} == {"redis"}, row.name
    assert by["fresh"] == {"pass"}, row.name
