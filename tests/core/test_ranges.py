"""Units and cuts: nothing that belongs together is ever split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ranges import head_for_overflow, head_for_pressure, units
from proxy.core.transcript import Facts, Item


def item(role: str, *, opens: tuple[str, ...] = (), answers: tuple[str, ...] = (), significant: bool = True) -> Item:
    """An item of which only the facts matter here."""
    return Item(b"{}", b"", Facts(role=role, digest=b"d" if significant else b"", opens=opens, answers=answers))


USER, SAYS, NOTHING = item("user"), item("assistant"), item("assistant", significant=False)


def calls(*ids: str) -> Item:
    """An assistant item that calls tools."""
    return item("assistant", opens=ids)


def result(*ids: str) -> Item:
    """An item that answers calls."""
    return item("tool", answers=ids)


IDS = st.lists(st.sampled_from("abcd"), max_size=3).map(tuple)
ITEMS = st.lists(
    st.one_of(
        st.just(USER),
        st.just(SAYS),
        st.just(NOTHING),
        st.builds(lambda ids: calls(*ids), IDS),
        st.builds(lambda ids: result(*ids), IDS),
        st.builds(lambda a, b: item("user", opens=a, answers=b), IDS, IDS),
    ),
    max_size=24,
)

CASES = {
    "messages stand alone": ([USER, SAYS, USER], [1, 1, 1]),
    "a call and its result": ([USER, calls("a"), result("a"), SAYS], [1, 2, 1]),
    "parallel calls": ([calls("a", "b"), result("a"), result("b"), USER], [3, 1]),
    "results in another order": ([calls("a", "b"), result("b"), result("a"), USER], [3, 1]),
    "a message before a late result": ([calls("a"), USER, result("a"), USER], [3, 1]),
    "calls that overlap": ([calls("a"), calls("b"), result("a"), result("b"), USER], [4, 1]),
    "a call that is never answered": ([USER, calls("a"), USER, SAYS], [1, 3]),
    "one of two calls never answered": ([USER, calls("a", "b"), result("a"), USER], [1, 3]),
    "an orphaned result": ([USER, result("x"), SAYS], [1, 1, 1]),
    "an id used again": ([calls("a"), result("a"), calls("a"), result("a")], [2, 2]),
    "an id twice in one step": ([calls("a", "a"), result("a"), result("a"), USER], [3, 1]),
    "a second result far away": ([USER, calls("a"), result("a"), USER, result("a"), USER], [1, 4, 1]),
    "an id opened twice and answered once": ([calls("a"), calls("a"), result("a"), USER], [3, 1]),
    "an insignificant item": ([USER, NOTHING, calls("a"), result("a"), USER], [1, 3, 1]),
    "insignificant items at the end": ([USER, SAYS, NOTHING, NOTHING], [1, 3]),
    "nothing but insignificant items": ([NOTHING, NOTHING], [2]),
    "no items": ([], []),
}


@pytest.mark.parametrize("name", CASES)
def test_units_keep_together_what_belongs_together(name: str) -> None:
    """Each shape of tool step is one unit, each other message its own."""
    items, sizes = CASES[name]
    assert [stop - start for start, stop in units(items)] == sizes


@given(ITEMS)
def test_units_partition_the_items(items: list[Item]) -> None:
    """Every item lies in exactly one unit, in order."""
    parts = units(items)
    assert [at for start, stop in parts for at in range(start, stop)] == list(range(len(items)))
    assert all(start < stop for start, stop in parts)


@given(ITEMS)
def test_no_cut_splits_a_call_from_its_result(items: list[Item]) -> None:
    """Before a cut no call waits, and after it no result belongs to an earlier call."""
    for cut, _ in units(items)[1:]:
        head, tail = items[:cut], items[cut:]
        waiting: set[str] = set()
        for one in head:
            waiting |= set(one.facts.opens)
            waiting -= set(one.facts.answers)
        assert not waiting
        asked: set[str] = set()
        before = {call for one in head for call in one.facts.opens}
        for one in tail:
            asked |= set(one.facts.opens)
            assert not (set(one.facts.answers) - asked) & before


@given(ITEMS)
def test_no_cut_follows_an_insignificant_item(items: list[Item]) -> None:
    """An insignificant item goes with the next significant one, and the newest unit is never empty talk."""
    for cut, _ in units(items)[1:]:
        assert items[cut - 1].facts.significant
        assert any(one.facts.significant for one in items[cut:])


@given(ITEMS, st.integers(0, 400), st.integers(0, 24))
def test_the_head_under_pressure_is_legal_and_leaves_the_newest_unit(items: list[Item], tail: int, packed: int) -> None:
    """Whatever the budget, the cut is a unit's start, covers the stored surface, and something stays."""
    parts, tokens = units(items), [30] * len(items)
    cut = head_for_pressure(items, parts, tokens, tail=tail, packed=packed)
    if cut:
        assert cut in {start for start, _ in parts}
        assert packed < cut <= parts[-1][0]
        assert sum(tokens[cut:]) <= tail or cut == parts[-1][0]


def test_the_tail_is_the_longest_run_within_its_budget() -> None:
    """A unit that would not fit is left to the head."""
    items = [USER, calls("a"), result("a"), calls("b"), result("b"), calls("c"), result("c")]
    tokens = [10, 1, 100, 1, 50, 1, 9]
    assert head_for_pressure(items, units(items), tokens, tail=61, packed=0) == 3
    assert head_for_pressure(items, units(items), tokens, tail=60, packed=0) == 5
    assert head_for_pressure(items, units(items), tokens, tail=0, packed=0) == 5


def test_the_tail_starts_with_an_assistant_item_where_a_cut_gives_that() -> None:
    """An older user message at its start is left to the head."""
    items = [USER, SAYS, USER, SAYS, USER]
    assert head_for_pressure(items, units(items), [10] * 5, tail=30, packed=0) == 3


def test_the_newest_user_message_is_not_given_up_for_the_order_of_roles() -> None:
    """It stays raw; an acknowledgement stands before it instead."""
    items = [USER, SAYS, USER, calls("a"), result("a")]
    assert head_for_pressure(items, units(items), [10] * 5, tail=30, packed=0) == 2


def test_there_is_no_head_where_everything_is_one_unit() -> None:
    """A call without a result at the very start keeps all of it."""
    items = [calls("a"), USER, SAYS]
    assert head_for_pressure(items, units(items), [1] * 3, tail=0, packed=0) == 0
    assert head_for_overflow(units(items), packed=0) == 0


def test_a_head_reaches_past_an_earlier_summary() -> None:
    """Where only the newest unit stands after it there is nothing new to summarise."""
    items = [USER, calls("a"), result("a")]
    assert head_for_overflow(units(items), packed=1) == 0
    assert head_for_pressure(items, units(items), [1] * 3, tail=9, packed=1) == 0


def test_the_head_on_overflow_is_all_but_the_newest_unit() -> None:
    """Budgets do not count there."""
    items = [USER, SAYS, USER, calls("a"), result("a")]
    assert head_for_overflow(units(items), packed=0) == 3
    assert head_for_overflow((), packed=0) == 0
