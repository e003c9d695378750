"""A bounded memory: what was asked for last is remembered, and no more than twice its size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.known import Known


def test_what_was_put_is_known() -> None:
    """A value comes back; another key is not known."""
    known: Known[str, int] = Known(2)
    known.put("a", 0)
    assert known.get("a") == 0
    assert known.get("b") is None


def test_what_is_asked_for_outlives_what_is_not() -> None:
    """A key that is asked for again and again stays, whatever else comes."""
    known: Known[int, int] = Known(3)
    known.put(-1, -1)
    for number in range(50):
        known.put(number, number)
        assert known.get(-1) == -1
    assert known.get(0) is None


def test_a_size_below_one_is_one() -> None:
    """The memory never divides by nothing: it holds at least the newest."""
    known: Known[int, int] = Known(0)
    known.put(1, 1)
    known.put(2, 2)
    assert known.get(2) == 2


@given(st.integers(1, 8), st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=120))
def test_it_holds_the_last_and_never_more_than_twice_its_size(size: int, steps: list[tuple[bool, int]]) -> None:
    """The `size` keys used last are known with their newest value; memory is bounded."""
    known: Known[int, int] = Known(size)
    used: list[int] = []
    for at, (writes, key) in enumerate(steps):
        if writes:
            known.put(key, at)
        if writes or known.get(key) is not None:
            used = [*(k for k in used if k != key), key]
        assert len(known) <= 2 * size
    assert all(known.get(key) is not None for key in used[-size:][::-1])
