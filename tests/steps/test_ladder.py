"""Where the ladder of summaries starts."""

from __future__ import annotations

from proxy.steps.ladder import Ladder


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Read the clock."""
        return self.now


def test_one_failure_is_forgiven() -> None:
    """A model that failed once is asked again."""
    ladder = Ladder(Clock())
    ladder.judged("u", "m", good=False)
    assert not ladder.starts_low("u", "m")


def test_two_failures_in_a_row_rest_the_model_for_an_hour() -> None:
    """The second failure starts the rest; it ends by itself; other models are not concerned."""
    clock = Clock()
    ladder = Ladder(clock)
    ladder.judged("u", "m", good=False)
    ladder.judged("u", "m", good=False)
    assert ladder.starts_low("u", "m")
    assert not ladder.starts_low("u", "other")
    clock.now = 3_601.0
    assert not ladder.starts_low("u", "m")


def test_a_success_between_failures_begins_the_count_anew() -> None:
    """Only failures in a row count."""
    ladder = Ladder(Clock())
    for good in (False, True, False):
        ladder.judged("u", "m", good=good)
    assert not ladder.starts_low("u", "m")
