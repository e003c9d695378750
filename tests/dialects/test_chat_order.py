"""What an upstream would reject, and that a plan along units never adds such a fault."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.replacement import replace
from proxy.core.surface import Carry, Keep, Put, raw_projection
from proxy.dialects.chat import CHAT
from proxy.dialects.chat_order import first_problem
from tests.transcripts import WORDS, Message, calls, conversations, item, result, says, spelt, system, transcript, user

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
    assert first_problem([item(message) for message in messages], []) is None


@pytest.mark.parametrize(("messages", "fault"), FAULTS.values(), ids=FAULTS)
def test_every_fault_is_named(messages: list[Message], fault: str) -> None:
    """And it is the client's own to send where the transcript has it too."""
    items = [item(message) for message in messages]
    assert (first_problem(items, []) or "").startswith(fault)
    assert first_problem(items, items) is None


def test_a_fault_the_client_has_once_is_ours_when_it_comes_twice() -> None:
    """Clients reuse ids: its one unanswered call does not excuse a second."""
    own = [item(message) for message in (calls("1"), result("1"), user("a"), calls("1"))]
    torn = [item(message) for message in (calls("1"), user("a"), calls("1"))]
    assert first_problem(torn, own) == "call without its result: 1"


@settings(max_examples=150, deadline=None)
@given(conversations(odd=True), st.data())
def test_what_is_planned_along_units_is_valid(messages: list[Message], data: st.DataObject) -> None:
    """Over random tool graphs, whole units go or stay and results are pruned: no fault is added."""
    now = raw_projection(transcript(*messages))
    parts: list[Put | Keep] = [Put(spelt(user(data.draw(WORDS))))]
    ranges = units(now.items)
    last = data.draw(st.integers(0, len(ranges) - 1))
    for start, stop in ranges[: last + 1]:
        for at in range(start, stop) if data.draw(st.booleans()) else ():
            pruned = CHAT.shrink(now.items[at].raw, lambda text: text[:1]) if data.draw(st.booleans()) else None
            parts.append(Put(pruned) if pruned is not None else Keep(at, at + 1))
    plan = replace(now, parts, ranges[last][1], CHAT.item, carry=Carry(), summary="S4")
    if plan is not None:
        assert CHAT.invalid(plan.projection.items, now.items) is None


@settings(max_examples=100, deadline=None)
@given(conversations(), st.data())
def test_a_unit_torn_apart_is_a_fault(messages: list[Message], data: st.DataObject) -> None:
    """In a sound conversation, dropping a call but not its results, or a result but not its call, is found."""
    items = transcript(*messages).items
    paired = [at for at, one in enumerate(items) if one.facts.opens or one.facts.answers]
    if not paired:
        return
    gone = data.draw(st.sampled_from(paired))
    assert first_problem([one for at, one in enumerate(items) if at != gone], items) is not None
