"""What an upstream would reject, and that a plan along units never adds such a fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.replacement import replace
from proxy.core.surface import Carry, Keep, Put, raw_projection
from proxy.core.transcript import Transcript
from proxy.dialects.chat import CHAT
from proxy.dialects.form import Wire
from proxy.dialects.order import faults, loose, repeated
from tests.dialects.spellings import DIALECTS
from tests.transcripts import WORDS, Message, calls, conversations, item, result, says, spelt, system, user

LEGACY: list[Message] = [
    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "x"},
]
VALID: dict[str, list[Message]] = {
    "nothing": [],
    "talk": [user("a"), says("b"), user("c")],
    "two of one role": [user("a"), user("b"), says("c"), says("d")],
    "a call and its result": [user("a"), calls("1"), result("1"), says("b")],
    "parallel calls": [calls("1", "2"), result("2"), result("1"), user("a")],
    "an id used again": [calls("1"), result("1"), calls("1"), result("1")],
    "the old function calls": LEGACY,
    "system text between": [user("a"), system("b"), says("c")],
    "a call with an empty result": [calls("1"), result("1", "")],
}
FAULTS: dict[str, tuple[list[Message], str]] = {
    "a call never answered": ([calls("1"), user("a")], "call without its result: 1"),
    "the last call never answered": ([user("a"), calls("1")], "call without its result: 1"),
    "one of two": ([calls("1", "2"), result("1"), user("a")], "call without its result: 2"),
    "a result nobody asked for": ([user("a"), result("1")], "result without its call: 1"),
    "a result twice": ([calls("1"), result("1"), result("1")], "result without its call: 1"),
    "a result behind a message": ([calls("1"), user("a"), result("1")], "call without its result: 1"),
    "a result before its call": ([result("1"), calls("1"), result("1")], "result without its call: 1"),
    "a result of an earlier step": ([calls("1"), result("1"), calls("2"), result("1")], "result without its call: 1"),
    "an id twice in one step": (
        [calls("1", "1"), result("1"), result("1")],
        "call id used twice in one step: ['1', '1']",
    ),
    "an empty assistant": ([user("a"), says("")], "empty assistant message: "),
    "half of the old function calls": (LEGACY[1:], "result without its call: f"),
}


@pytest.mark.parametrize("messages", VALID.values(), ids=VALID)
def test_a_sound_order_has_no_problem(messages: list[Message]) -> None:
    """What providers accept is accepted."""
    assert list(faults([item(message) for message in messages])) == []


@pytest.mark.parametrize(("messages", "fault"), FAULTS.values(), ids=FAULTS)
def test_every_fault_is_named(messages: list[Message], fault: str) -> None:
    """And it is the client's own to send where the transcript has it too."""
    items = [item(message) for message in messages]
    assert next(faults(items)).startswith(fault)
    assert (CHAT.invalid(items) or "").startswith(fault)
    assert CHAT.invalid(items, items) is None


LOOSE: dict[str, tuple[list[Message], str | None]] = {
    "a result behind a message": ([calls("1"), user("a"), result("1")], None),
    "parallel calls": ([calls("1", "2"), user("a"), result("2"), result("1")], None),
    "an id used again": ([calls("1"), result("1"), calls("1"), result("1")], None),
    "a call never answered": ([calls("1"), user("a")], "call without its result: 1"),
    "a result before its call": ([result("1"), calls("1"), result("1")], "result without its call: 1"),
    "a result twice": ([calls("1"), result("1"), result("1")], "result without its call: 1"),
    "an id twice at once": ([calls("1"), calls("1"), result("1")], "call id used twice: 1"),
    "nothing before a user's": ([says(""), user("a")], "reasoning without what follows it: "),
    "nothing before an assistant's": ([says(""), says("a")], None),
}


@pytest.mark.parametrize(("messages", "fault"), LOOSE.values(), ids=LOOSE)
def test_where_results_may_come_later_calls_and_results_still_need_each_other(
    messages: list[Message], fault: str | None
) -> None:
    """And reasoning needs what it led to."""
    found = list(loose([item(message) for message in messages]))
    assert [one.startswith(fault or "") for one in found] == [True] * (fault is not None)


def test_a_name_is_repeated_once_more_than_the_first_time() -> None:
    """Nameless things are not the same thing."""
    assert list(repeated(["a", "", "b", "a", "", "a"], "twice")) == ["twice: a", "twice: a"]


def test_a_fault_the_client_has_once_is_ours_when_it_comes_twice() -> None:
    """Clients reuse ids: its one unanswered call does not excuse a second."""
    own = [item(message) for message in (calls("1"), result("1"), user("a"), calls("1"))]
    torn = [item(message) for message in (calls("1"), user("a"), calls("1"))]
    assert CHAT.invalid(torn, own) == "call without its result: 1"


def _transcript(dialect: Wire, items: list[Message]) -> Transcript:
    found = dialect.split(spelt({"model": "m", dialect.form.items: items}))
    assert found is not None
    return found


@pytest.mark.parametrize(("dialect", "spelling"), DIALECTS, ids=[dialect.name for dialect, _ in DIALECTS])
@settings(max_examples=150, deadline=None)
@given(conversation=conversations(odd=True), data=st.data())
def test_what_is_planned_along_units_is_valid(
    dialect: Wire,
    spelling: Callable[[list[Message]], list[Message]],
    conversation: list[Message],
    data: st.DataObject,
) -> None:
    """Over random tool graphs, whole units go or stay and results are pruned: no fault is added, in any dialect."""
    now = raw_projection(_transcript(dialect, spelling(conversation)))
    parts: list[Put | Keep] = [Put(dialect.user(data.draw(WORDS)))]
    ranges = units(now.items)
    last = data.draw(st.integers(0, len(ranges) - 1))
    for start, stop in ranges[: last + 1]:
        for at in range(start, stop) if data.draw(st.booleans()) else ():
            pruned = dialect.shrink(now.items[at].raw, lambda text: text[:1]) if data.draw(st.booleans()) else None
            parts.append(Put(pruned) if pruned is not None else Keep(at, at + 1))
    plan = replace(now, parts, ranges[last][1], dialect.item, carry=Carry(), summary="S4")
    if plan is not None:
        assert dialect.invalid(plan.projection.items, now.items) is None
        again = dialect.split(dialect.render(now.transcript, plan.projection.items))
        assert again is not None
        assert [one.raw for one in again.items] == [one.raw for one in plan.projection.items]


@pytest.mark.parametrize(("dialect", "spelling"), DIALECTS, ids=[dialect.name for dialect, _ in DIALECTS])
@settings(max_examples=100, deadline=None)
@given(conversation=conversations(), data=st.data())
def test_a_unit_torn_apart_is_a_fault(
    dialect: Wire,
    spelling: Callable[[list[Message]], list[Message]],
    conversation: list[Message],
    data: st.DataObject,
) -> None:
    """In a sound conversation, dropping a call but not its results, or a result but not its call, is found."""
    items = _transcript(dialect, spelling(conversation)).items
    assert list(dialect.faults(items)) == [fault for fault in dialect.faults(items) if "empty" in fault]
    paired = [at for at, one in enumerate(items) if one.facts.opens or one.facts.answers]
    if not paired:
        return
    gone = data.draw(st.sampled_from(paired))
    assert dialect.invalid([one for at, one in enumerate(items) if at != gone], items) is not None
