"""What upstreams taught: limits from refusals, the meter's calibration from usage (rule 8.5).

A copy is held in the process and refreshed now and then, so that no request waits for it; the
ledger shares it between replicas. A store that is away costs nothing but the sharing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass

from proxy.core.identity import framed
from proxy.core.known import Known
from proxy.core.meter import CALIBRATION_RANGE
from proxy.store import Learned, Ledger, StoreError

__all__ = ["Keys", "Learning", "keys"]

_REFRESH = 60.0
_HELD = 4_096
_LEAST_LIMIT = 1_024
#: How much one observation moves the calibration held here; the ledger smooths in its own way.
_WEIGHT = 0.3
#: An observation this close to what is held is nothing new: the ledger is not told.
_NEWS = 0.02


@dataclass(frozen=True, slots=True)
class Keys:
    """Where limit and calibration of one caller's model are stored (hex digests)."""

    limit: str
    calibration: str


def keys(*, tenant: str, upstream: str, model: str, betas: str) -> Keys:
    """The identities of rule 8.5: limits are a tenant's own, calibration is shared.

    `upstream` is its name and address: what one server taught says nothing of another that takes its place.
    """
    return Keys(
        limit=framed(("limit", tenant, upstream, model, betas)).hex()[:32],
        calibration=framed(("calibration", upstream, model)).hex()[:32],
    )


class Learning:
    """Limits and calibrations as this process knows them."""

    def __init__(
        self,
        ledger: Ledger,
        spawn: Callable[[Coroutine[None, None, object]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`spawn` runs a coroutine beside the request."""
        self._ledger, self._spawn, self._clock = ledger, spawn, clock
        self._limits: Known[str, int] = Known(_HELD)
        self._calibrations: Known[str, float] = Known(_HELD)
        self._asked: Known[Keys, float] = Known(_HELD)

    def known(self, key: Keys) -> Learned:
        """What is held now; a refresh is started when it is old."""
        asked = self._asked.get(key)
        if asked is None or self._clock() - asked > _REFRESH:
            self._asked.put(key, self._clock())
            self._spawn(self.refresh(key))
        return Learned(
            limit=self._limits.get(key.limit) or 0, calibration=self._calibrations.get(key.calibration) or 1.0
        )

    async def refresh(self, key: Keys) -> Learned:
        """Load what the ledger holds; what this process knows stays where the store is away."""
        try:
            found = await self._ledger.learned(key.limit, key.calibration)
        except StoreError:
            return self.known(key)
        self._limits.put(key.limit, found.limit)  # 0 as well: what expired there is forgotten here
        if found.calibration != Learned().calibration:  # else nothing was observed yet, and the first one counts whole
            self._calibrations.put(key.calibration, found.calibration)
        return found

    def limit(self, key: Keys, tokens: int, window: int = 0) -> None:
        """A refusal revealed a limit of a model whose window was known as `window` tokens, 0 for unknown."""
        if tokens >= _LEAST_LIMIT:
            self._spawn(self._store_limit(key, tokens, window))

    def calibration(self, key: Keys, ratio: float) -> None:
        """The upstream counted `ratio` times what the meter estimated."""
        low, high = CALIBRATION_RANGE
        if not low <= ratio <= high:
            return
        held = self._calibrations.get(key.calibration)
        self._calibrations.put(key.calibration, ratio if held is None else held + _WEIGHT * (ratio - held))
        if held is None or abs(ratio / held - 1.0) > _NEWS:
            self._spawn(self._store_calibration(key, ratio))

    async def _store_limit(self, key: Keys, tokens: int, window: int) -> None:
        # The ledger decides whether a limit this low is believed yet: what it holds afterwards counts.
        with suppress(StoreError):  # the ledger's breaker has warned; the next refusal teaches again
            await self._ledger.learn_limit(key.limit, tokens, window)
            await self.refresh(key)

    async def _store_calibration(self, key: Keys, ratio: float) -> None:
        with suppress(StoreError):  # held here all the same
            await self._ledger.learn_calibration(key.calibration, ratio)
