"""When Redis is left alone."""

from __future__ import annotations

from proxy.store.breaker import Breaker, Interval


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def opened(clock: Clock) -> Breaker:
    """Return a breaker after three failures."""
    breaker = Breaker(failures=3, pause=2.0, clock=clock)
    for _ in range(3):
        assert breaker.allows()
        breaker.failed()
    return breaker


def test_failures_in_a_row_open_it() -> None:
    """A success between them starts the count anew."""
    breaker = Breaker(failures=3, clock=Clock())
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        outcome()
    assert breaker.allows()
    breaker.failed()
    assert not breaker.allows()


def test_a_start_that_was_not_answered_is_known_until_the_first_answer() -> None:
    """It is told as degraded, and the first request is let through all the same."""
    breaker = Breaker(failures=3, clock=Clock())
    assert not breaker.away
    breaker.missed()
    assert breaker.away
    assert breaker.allows()
    breaker.succeeded()
    assert not breaker.away


def test_after_the_pause_one_probe_goes() -> None:
    """Others wait for its outcome."""
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.9
    assert not breaker.allows()
    clock.now = 2.0
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert [breaker.allows() for _ in range(3)] == [True, True, True]


def test_a_failed_probe_starts_another_pause() -> None:
    """One failure is enough then."""
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2.0
    assert breaker.allows()
    breaker.failed()
    clock.now = 3.9
    assert not breaker.allows()
    clock.now = 4.0
    assert breaker.allows()


def test_an_abandoned_probe_leaves_room_for_the_next() -> None:
    """A client that went away proves nothing."""
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2.0
    assert breaker.allows()
    breaker.abandoned()
    assert breaker.allows()


def test_a_warning_is_due_once_per_interval() -> None:
    """And again after it."""
    clock = Clock()
    interval = Interval(30.0, clock=clock)
    assert [interval.due(), interval.due()] == [True, False]
    clock.now = 30.0
    assert interval.due()
