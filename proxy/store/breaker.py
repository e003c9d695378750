"""When to leave a failing Redis alone, and how often to complain about it."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Breaker", "Interval"]

Clock = Callable[[], float]


class Breaker:
    """Skips Redis for `pause` seconds after `failures` failed calls in a row.

    After the pause one call is let through as a probe: its success closes the breaker, its failure
    starts another pause. Every `allows()` that said yes is followed by exactly one of `succeeded`,
    `failed` and `abandoned`.
    """

    def __init__(self, *, failures: int = 3, pause: float = 2.0, clock: Clock = time.monotonic) -> None:
        self._most = failures
        self._pause = pause
        self._clock = clock
        self._failed = 0
        self._until = 0.0
        self._probing = False
        self._missed = False

    @property
    def away(self) -> bool:
        """Whether Redis is being left alone, or was not there at the start and has not answered since."""
        return self._missed or self.open

    @property
    def open(self) -> bool:
        """Whether Redis is being left alone."""
        return self._failed >= self._most

    def allows(self) -> bool:
        """Whether a call may go to Redis now."""
        if not self.open:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """Note that Redis answered."""
        self._failed = 0
        self._probing = self._missed = False

    def missed(self) -> None:
        """Note that Redis did not answer at the start: the first request still tries it."""
        self._missed = True

    def failed(self) -> None:
        """Note that Redis did not answer."""
        self._failed += 1
        self._until = self._clock() + self._pause
        self._probing = False

    def abandoned(self) -> None:
        """Note that the caller went away before anything was known."""
        self._probing = False


class Interval:
    """True at most once per `seconds`: for warnings about one lasting condition."""

    def __init__(self, seconds: float, *, clock: Clock = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        """Whether it is time again; if so, the interval starts anew."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
