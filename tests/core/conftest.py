"""The fixture of reported answers, shared by the tests of the overflow rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def refusals() -> list[dict[str, Any]]:
    """Every line of tests/data/overflow.jsonl."""
    path = Path(__file__).parents[1] / "data" / "overflow.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
