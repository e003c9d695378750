from __future__ import annotations

import pytest

from proxy.core.overflow_strength import Strength, demanded


@pytest.mark.parametrize(
    ("status", "strength"),
    [
        (400, Strength.GRAMMAR),
        (413, Strength.GRAMMAR),
        (422, Strength.GRAMMAR),
        (401, Strength.FORBIDDEN),
        (403, Strength.FORBIDDEN),
        (404, Strength.STRONG),
        (429, Strength.STRONG),
        (500, Strength.STRONG),
        (408, Strength.NOTHING_COUNTS),
        (504, Strength.NOTHING_COUNTS),
    ],
)
def test_a_status_demands_a_strength(status: int, strength: Strength) -> None:
    """A status that fits an overflow asks little of the wording; one that means something else asks much."""
    assert demanded(status, 0, in_band=False) is strength


def test_inside_a_200_a_named_status_counts_where_it_means_something_else() -> None:
    """A throttle or a time-out stays one; any other error inside a 200 may be an overflow by grammar."""
    assert demanded(200, 429, in_band=True) is Strength.STRONG
    assert demanded(200, 408, in_band=True) is Strength.NOTHING_COUNTS
    assert demanded(200, 401, in_band=True) is Strength.GRAMMAR
    assert demanded(200, 0, in_band=True) is Strength.GRAMMAR


def test_what_may_be_no_error_at_all_needs_a_known_wording() -> None:
    """A message that nothing marks as an error: a gateway may say there what it likes."""
    assert demanded(200, 0, in_band=True, doubted=True) is Strength.WEAK
    assert demanded(200, 429, in_band=True, doubted=True) is Strength.STRONG
    assert demanded(400, 0, in_band=False) is Strength.GRAMMAR
