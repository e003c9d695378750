"""Where the ladder of summaries starts for an upstream's model (rule 6.8): a summariser that failed twice rests."""

from __future__ import annotations

import time
from collections.abc import Callable

from proxy.core.known import Known

__all__ = ["Ladder"]

_FAILURES = 2
_REST = 3_600.0
_MODELS = 1_024


class Ladder:
    """Failures in a row by upstream and model, in this process; after two, no model is asked for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with no failure known."""
        self._clock = clock
        self._failures: Known[tuple[str, str], int] = Known(_MODELS)
        self._rests: Known[tuple[str, str], float] = Known(_MODELS)

    def starts_low(self, upstream: str, model: str) -> bool:
        """Whether the outline serves for now."""
        until = self._rests.get((upstream, model))
        return until is not None and self._clock() < until

    def judged(self, upstream: str, model: str, *, good: bool) -> None:
        """Note how a summary went: accepted, or timed out, refused, rejected. One whose client left is neither."""
        key = (upstream, model)
        failures = 0 if good else (self._failures.get(key) or 0) + 1
        self._failures.put(key, failures % _FAILURES)
        if failures >= _FAILURES:
            self._rests.put(key, self._clock() + _REST)
