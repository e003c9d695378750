"""What upstreams taught: held in the process, shared through the ledger, waited for by nobody."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
import redis

from proxy.learning import Keys, Learning, keys
from proxy.store import Learned
from proxy.store.redis import RedisLedger
from tests.store.servers import SEALS


class Beside:
    """Runs what is spawned when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[None, None, object]] = []

    def __call__(self, work: Coroutine[None, None, object]) -> None:
        """Take it."""
        self.waiting.append(work)

    async def run(self) -> int:
        """Run all that waits; how many there were."""
        taken, self.waiting = self.waiting, []
        await asyncio.gather(*taken)
        return len(taken)


class Clock:
    """Time that stands still."""

    now = 1_000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
async def ledger(valkey: Any) -> AsyncIterator[RedisLedger]:
    """A real ledger."""
    found = RedisLedger(valkey.url, seals=SEALS, timeout=5.0, durability="memory")
    yield found
    await found.close()


@pytest.fixture
async def away() -> AsyncIterator[RedisLedger]:
    """A ledger whose store is not there."""
    found = RedisLedger("unix:///nonexistent/socket", seals=SEALS, timeout=0.5, durability="memory")
    yield found
    await found.close()


@pytest.fixture
async def beside() -> AsyncIterator[Beside]:
    """Work beside requests; what was not run is closed."""
    found = Beside()
    yield found
    for work in found.waiting:
        work.close()


@pytest.fixture
def key() -> Keys:
    """Keys of a model nobody knows."""
    return keys(tenant=secrets.token_hex(8), upstream=secrets.token_hex(8), model="m", betas="")


def test_limits_are_a_tenants_own_and_calibration_is_shared() -> None:
    """Rule 8.5."""
    one = keys(tenant="t", upstream="u", model="m", betas="b")
    for changes in ({"upstream": "v"}, {"model": "n"}):
        other = keys(**{"tenant": "t", "upstream": "u", "model": "m", "betas": "b"} | changes)
        assert other.limit != one.limit
        assert other.calibration != one.calibration
    for changes in ({"tenant": "s"}, {"betas": ""}):
        other = keys(**{"tenant": "t", "upstream": "u", "model": "m", "betas": "b"} | changes)
        assert other.limit != one.limit
        assert other.calibration == one.calibration


async def test_at_first_nothing_is_known_and_the_ledger_is_asked(
    ledger: RedisLedger, beside: Beside, key: Keys
) -> None:
    """The request does not wait; the next one knows."""
    await ledger.learn_limit(key.limit, 5_000)
    await ledger.learn_calibration(key.calibration, 1.5)
    learning = Learning(ledger, beside)
    assert learning.known(key) == Learned()
    assert await beside.run() == 1
    known = learning.known(key)
    assert known.limit == 5_000
    assert known.calibration == pytest.approx(1.5)
    assert beside.waiting == []


async def test_the_ledger_is_asked_again_now_and_then(ledger: RedisLedger, beside: Beside, key: Keys) -> None:
    """What another replica learnt arrives within a minute."""
    clock = Clock()
    learning = Learning(ledger, beside, clock)
    learning.known(key)
    await beside.run()
    await ledger.learn_limit(key.limit, 5_000)
    assert learning.known(key).limit == 0
    assert await beside.run() == 0
    clock.now += 61
    learning.known(key)
    await beside.run()
    assert learning.known(key).limit == 5_000


async def test_a_refusals_limit_is_known_to_all(ledger: RedisLedger, beside: Beside, key: Keys) -> None:
    """Here and in other processes."""
    learning = Learning(ledger, beside)
    learning.limit(key, 8_192)
    await beside.run()
    assert learning.known(key).limit == 8_192
    assert (await ledger.learned(key.limit, key.calibration)).limit == 8_192


async def test_a_limit_far_lower_needs_a_second_sighting(ledger: RedisLedger, beside: Beside, key: Keys) -> None:
    """What the ledger believes counts, not what one refusal said."""
    learning = Learning(ledger, beside)
    for tokens, believed in ((100_000, 100_000), (10_000, 100_000), (10_000, 10_000)):
        learning.limit(key, tokens)
        await beside.run()
        assert learning.known(key).limit == believed


async def test_so_does_one_far_below_the_known_window(ledger: RedisLedger, beside: Beside, key: Keys) -> None:
    """Also where nothing was learned before (rule 8.5)."""
    learning = Learning(ledger, beside)
    for believed in (0, 1_500):
        learning.limit(key, 1_500, window=128_000)
        await beside.run()
        assert learning.known(key).limit == believed


async def test_no_model_has_a_window_of_a_few_tokens(ledger: RedisLedger, beside: Beside, key: Keys) -> None:
    """A smaller number in a refusal is something else."""
    learning = Learning(ledger, beside)
    learning.limit(key, 1_023)
    assert beside.waiting == []
    learning.limit(key, 1_024)
    await beside.run()
    assert learning.known(key).limit == 1_024


async def test_a_limit_that_expired_in_the_ledger_is_forgotten_here(
    ledger: RedisLedger, beside: Beside, key: Keys, valkey: Any
) -> None:
    """A wrong lesson does not outlive its time in one process."""
    learning = Learning(ledger, beside)
    learning.limit(key, 8_192)
    await beside.run()
    assert learning.known(key).limit == 8_192
    with redis.Redis(unix_socket_path=str(valkey.socket)) as client:
        assert client.delete(*client.keys(f"*{key.limit}*")) == 1
    await learning.refresh(key)
    assert learning.known(key).limit == 0


async def test_usage_moves_the_calibration_step_by_step(ledger: RedisLedger, beside: Beside, key: Keys) -> None:
    """The first observation counts whole, later ones in part; absurd ones not at all."""
    learning = Learning(ledger, beside)
    learning.known(key)
    await beside.run()
    observed = Learning(ledger, beside)
    observed.calibration(key, 2.0)
    assert observed._calibrations.get(key.calibration) == 2.0
    observed.calibration(key, 1.0)
    assert observed._calibrations.get(key.calibration) == pytest.approx(1.7)
    for absurd in (0.49, 4.01, 0.0, float("nan"), float("inf")):
        observed.calibration(key, absurd)
    assert observed._calibrations.get(key.calibration) == pytest.approx(1.7)
    assert await beside.run() == 2
    assert (await ledger.learned(key.limit, key.calibration)).calibration > 1.0


async def test_while_the_store_is_away_what_is_held_here_serves(away: RedisLedger, beside: Beside, key: Keys) -> None:
    """Nothing raises, nothing is asked in a loop."""
    learning = Learning(away, beside)
    learning.calibration(key, 2.0)
    learning.limit(key, 8_192)
    assert learning.known(key) == Learned(limit=0, calibration=2.0)
    assert await beside.run() == 3
    assert learning.known(key) == Learned(limit=0, calibration=2.0)
    assert beside.waiting == []
