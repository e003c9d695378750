"""A house on the real store, and a turn of somebody new, for the rooms of a request."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.house import House
from proxy.steps.turn import Turn
from tests.houses import closed, furnished, turned
from tests.phrases import LONG
from tests.store.servers import Server


@pytest.fixture
def compactor() -> Any:
    """The house's compactor: the built-in one, where a module names no other."""
    return None


@pytest.fixture
async def house(valkey: Server, compactor: Any) -> AsyncIterator[House]:
    """A house on the real store."""
    made = furnished(valkey.url, compactor=compactor)
    yield made
    await closed(made)


@pytest.fixture
def turn(house: House) -> Turn:
    """A turn of somebody new, to an upstream that nobody learned of."""
    return turned(house, LONG, credential=f"Bearer {secrets.token_hex(8)}")
