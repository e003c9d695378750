"""Fixtures for the chart: each test runs once with every Helm that there is."""

from __future__ import annotations

import pytest

from tests.chart.engine import PACKAGES, Helm, engines


@pytest.fixture(scope="session")
def helms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Helm]:
    """Every Helm of this machine, by version."""
    return dict(engines(tmp_path_factory.mktemp("helm")))


@pytest.fixture(scope="session", params=PACKAGES)
def helm(request: pytest.FixtureRequest, helms: dict[str, Helm]) -> Helm:
    """One of them."""
    if not helms:
        pytest.skip("the packages that bring helm are for x86-64 Linux, and there is none on the PATH")
    return helms.get(request.param) or next(iter(helms.values()))
