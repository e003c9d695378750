"""What no upstream takes is never sent: flaws of items are found, and what only a client may send is not added."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.replacement import replace
from proxy.core.surface import Carry, Keep, Put, raw_projection
from proxy.core.transcript import Item, Transcript
from proxy.dialects.flaws import beyond
from proxy.dialects.form import Wire
from tests.clients.validity import problem
from tests.dialects.spellings import DIALECTS
from tests.dialects.test_chat_digest import JSON
from tests.transcripts import WORDS, Message, conversations, spelt

CHAT, RESPONSES, MESSAGES = (dialect for dialect, _ in DIALECTS)
MARK = {"cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def items(dialect: Wire, *values: Message) -> list[Item]:
    """Items of a dialect."""
    found = [dialect.item(spelt(value)) for value in values]
    assert None not in found
    return [one for one in found if one is not None]


def _call(**more: object) -> Message:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, **more}


def _calls(*calls: object) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def _says(role: str, *parts: object, kind: str = "message") -> Message:
    return {"type": kind, "role": role, "content": list(parts)}


def _turn(role: str, *blocks: object) -> Message:
    return {"role": role, "content": list(blocks)}


TEXT, USE = {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "OTHER"}
FC = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
SOUND: dict[Wire, list[Message]] = {
    CHAT: [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [TEXT, {"type": "image_url", "image_url": {"url": "data:,"}}]},
        _calls(_call(), {"id": "2", "type": "custom", "custom": {"name": "f", "input": "x"}}),
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
    ],
    RESPONSES: [
        _says("user", {"type": "input_text", "text": "a"}),
        {"role": "user", "content": "a"},
        _says("assistant", {"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}),
        FC,
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "a"}]},
        {"type": "custom_tool_call", "call_id": "2", "name": "f", "input": "x"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "S"},
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "something_new", "x": [1]},
    ],
    MESSAGES: [
        _turn("user", TEXT, IMAGE),
        {"role": "user", "content": "a"},
        _turn("assistant", THOUGHT, TEXT, USE),
        _turn("user", RESULT, {**RESULT, "tool_use_id": "2", "content": [TEXT, IMAGE]}, TEXT),
        _turn("user", {**RESULT, "content": []}),
        _turn("assistant", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
    ],
}
FLAWED: dict[Wire, list[tuple[Message, str]]] = {
    CHAT: [
        ({"role": "critic", "content": "a"}, "a role that nobody knows"),
        ({"role": "user"}, "content of no known form"),
        ({"role": "tool", "tool_call_id": "1", "content": None}, "content of no known form"),
        ({"role": "user", "content": []}, "an empty list"),
        ({"role": "user", "content": ["a"]}, "content without a type"),
        ({"role": "user", "content": [{"text": "a"}]}, "content without a type"),
        ({"role": "tool", "content": "a"}, "no tool_call_id"),
        ({"role": "assistant", "content": "a", "tool_calls": []}, "an empty list"),
        ({"role": "assistant", "content": "a", "tool_calls": {}}, "a list of calls that is none"),
        (_calls(7), "a call that is none"),
        (_calls(_call(id="")), "no id"),
        (_calls(_call(function=None)), "a call of nothing"),
        (_calls(_call(function={"arguments": "{}"})), "no name"),
        (_calls(_call(function={"name": "f", "arguments": {}})), "arguments that is no text"),
    ],
    RESPONSES: [
        (_says("critic", {"type": "input_text", "text": "a"}), "a role that nobody knows"),
        (_says("user"), "an empty list"),
        ({"role": "user", "content": None}, "content of no known form"),
        (_says("user", {"type": "output_text", "text": "a"}), "content of another role"),
        (_says("assistant", {"type": "input_text", "text": "a"}), "content of another role"),
        ({**FC, "call_id": None}, "no call_id"),
        ({**FC, "name": ""}, "no name"),
        ({**FC, "arguments": {}}, "arguments that is no text"),
        ({"type": "function_call_output", "call_id": "1"}, "content of no known form"),
        ({"type": "function_call_output", "output": "x"}, "no call_id"),
        ({"type": "custom_tool_call", "call_id": "1", "name": "f"}, "input that is no text"),
    ],
    MESSAGES: [
        (_turn("critic", TEXT), "a role that nobody knows"),
        (_turn("user"), "an empty list"),
        ({"role": "user"}, "content of no known form"),
        ({"role": "user", "content": " \n"}, "an empty text"),
        (_turn("user", {**TEXT, "text": ""}), "an empty text"),
        (_turn("assistant", THOUGHT, {**TEXT, "text": "\n"}), "an empty text"),
        (_turn("user", {"type": "text"}), "an empty text"),
        (_turn("user", "a"), "content without a type"),
        (_turn("user", TEXT, RESULT), "a result behind other content"),
        (_turn("user", {**RESULT, "content": [{**TEXT, "text": ""}]}), "an empty text"),
        (_turn("user", {**RESULT, "content": {}}), "content of no known form"),
        (_turn("user", {**RESULT, "tool_use_id": 7}), "no tool_use_id"),
        (_turn("assistant", RESULT), "a call or a result of the wrong role"),
        (_turn("user", USE), "a call or a result of the wrong role"),
        (_turn("assistant", {**USE, "id": None}), "no id"),
        (_turn("assistant", {**USE, "input": "{}"}), "a call whose input is no object"),
    ],
}
_SOUND = [(dialect, value) for dialect, values in SOUND.items() for value in values]
_FLAWED = [(dialect, value, word) for dialect, values in FLAWED.items() for value, word in values]


def _of(dialect: Wire, value: Message) -> list[str]:
    return list(dialect.form.flaws(value))


@pytest.mark.parametrize(("dialect", "value"), _SOUND, ids=lambda one: getattr(one, "name", ""))
def test_what_clients_really_send_has_no_flaw(dialect: Wire, value: Message) -> None:
    """Kinds that nobody has heard of are the upstream's to judge."""
    assert _of(dialect, value) == []


@pytest.mark.parametrize(("dialect", "value", "word"), _FLAWED, ids=lambda one: getattr(one, "name", ""))
def test_a_flaw_is_found_wherever_the_item_stands(dialect: Wire, value: Message, word: str) -> None:
    """It is a fault of a replacement that adds one, and the client's own to send where the client has as many."""
    assert word in _of(dialect, value)
    talk = items(dialect, json.loads(dialect.user("a")), json.loads(dialect.assistant("b")))
    (own,) = items(dialect, value)
    assert dialect.invalid([talk[0], own, talk[1]], talk) is not None
    assert dialect.invalid([talk[0], own, talk[1]], [own, *talk]) in (None, "the first message is the assistant's")
    # As many flaws in another item: a result that was shortened has the flaws that it had.
    (other,) = items(dialect, {**value, "beside": 1})
    assert not (dialect.invalid([talk[0], other, talk[1]], [talk[0], own, talk[1]]) or "").startswith(word)
    assert dialect.invalid([talk[0], own, other, talk[1]], [talk[0], own, talk[1]]) is not None


@pytest.mark.parametrize(
    ("dialect", "marked"),
    [
        (CHAT, {"role": "user", "content": [{**TEXT, **MARK}]}),
        (RESPONSES, _says("user", {"type": "input_text", "text": "a", **MARK})),
        (MESSAGES, _turn("user", {**TEXT, **MARK})),
        (MESSAGES, _turn("user", {**RESULT, **MARK})),
        (MESSAGES, _turn("user", {**RESULT, "content": [{**TEXT, **MARK}]})),
        (MESSAGES, {**_turn("user", TEXT), **MARK}),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_replacement_adds_no_cache_mark(dialect: Wire, marked: Message) -> None:
    """Upstreams take four. How many there are is the client's affair, whether more than that or less; none is added."""
    answer = items(dialect, _turn("assistant", USE)) if RESULT["tool_use_id"] in json.dumps(marked) else []
    first, (own,), (more,) = (
        items(dialect, json.loads(dialect.user("x"))),
        items(dialect, marked),
        items(dialect, {**marked, "beside": 1}),
    )
    given = [*first, *answer, own]
    assert dialect.invalid(given, given) is None
    assert dialect.invalid([*first, *answer, more], given) is None
    assert dialect.invalid([*first, *answer, own, more], [*first, *answer, own]) is not None
    plain = items(dialect, json.loads(json.dumps(marked).replace('"cache_control": {', '"cache_else": {')))
    assert dialect.invalid([*first, *answer, own], [*first, *answer, *plain]) == "a cache mark"


def test_a_client_with_too_many_marks_keeps_its_own() -> None:
    """Six of its messages may stay; a shortened result brings none of its marks along."""
    first, *given = items(
        MESSAGES, _turn("user", TEXT), *(_turn("user", {**TEXT, "text": str(n), **MARK}) for n in range(6))
    )
    assert MESSAGES.invalid([first, *given[1:]], given) is None
    pruned = MESSAGES.shrink(spelt(_turn("user", {**RESULT, "content": [{**TEXT, **MARK}], **MARK})), str.upper)
    assert pruned is not None
    assert b"cache_control" not in pruned


def test_marks_inside_what_tools_were_given_or_brought_back_are_no_marks() -> None:
    """`cache_control` is a name like any other there."""
    value = _turn("assistant", {**USE, "input": {"content": "x", **MARK}})
    assert list(MESSAGES.form.sealed(value)) == []
    assert list(MESSAGES.form.sealed(_turn("user", {**TEXT, "cache_control": None}))) == []


SEALED = [
    (MESSAGES, _turn("assistant", THOUGHT, TEXT), "thinking"),
    (MESSAGES, _turn("assistant", {"type": "redacted_thinking", "data": "S"}, TEXT), "data"),
    (MESSAGES, _turn("assistant", {"type": "compaction", "content": "c"}, TEXT), "content"),
    (RESPONSES, {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "S"}, "encrypted_content"),
    (RESPONSES, {"type": "compaction", "id": "c", "encrypted_content": "S"}, "encrypted_content"),
]


@pytest.mark.parametrize(("dialect", "value", "field"), SEALED, ids=lambda one: getattr(one, "name", ""))
def test_what_the_upstream_sealed_goes_back_as_it_came_or_not_at_all(dialect: Wire, value: Message, field: str) -> None:
    """One changed character, or a block that the client never sent, is a fault; another spelling of it is none."""
    first, last = (json.loads(made("x")) for made in (dialect.user, dialect.assistant))
    given = items(dialect, first, value, last)
    spelt_otherwise = dialect.item(json.dumps(value, indent=1).encode())
    assert spelt_otherwise is not None
    changed: Any = copy.deepcopy(value)
    place = changed if field in changed and dialect is RESPONSES else changed["content"][0]
    place[field] += "x"
    assert dialect.invalid([given[0], given[2]], given) is None
    assert dialect.invalid([given[0], spelt_otherwise, given[2]], given) is None
    if "id" in changed:
        changed["id"] += "x"
    for added in (items(dialect, changed), [given[1], *items(dialect, changed)]):
        assert "only the upstream makes" in (dialect.invalid([given[0], *added, given[2]], given) or "")
    assert "only the upstream makes" in (dialect.invalid(given, [given[0], given[2]]) or "")


def test_an_item_is_not_parted_from_its_reasoning() -> None:
    """An upstream knows by the id that they came together; one that came alone, or has no id, may stand alone."""
    first = json.loads(RESPONSES.user("x"))
    thought = {"type": "reasoning", "id": "r", "summary": []}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    given = items(RESPONSES, first, thought, {**FC, "id": "fc"}, output)
    assert RESPONSES.invalid(given, given) is None
    assert "without its reasoning" in (RESPONSES.invalid([given[0], *given[2:]], given) or "")
    assert RESPONSES.invalid(items(RESPONSES, first, FC, output), given) is None
    said = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "a"}]}
    between = {"type": "compaction", "id": "c", "encrypted_content": "S"}
    given = items(RESPONSES, first, thought, said, between, {**said, "id": "n"})
    assert RESPONSES.invalid([given[0], *given[3:]], given) is None
    alone = items(RESPONSES, first, {**FC, "id": "fc"}, output)
    assert RESPONSES.invalid(alone, alone) is None


@pytest.mark.parametrize(
    ("dialect", "values", "fault"),
    [
        (RESPONSES, [{"type": "something", "id": "i"}], "item id used twice: i"),
        (MESSAGES, [_turn("assistant", USE), _turn("user", RESULT)], "call id used twice: 1"),
    ],
    ids=["responses", "messages"],
)
def test_an_id_stands_once(dialect: Wire, values: list[Message], fault: str) -> None:
    """Once more than the client sent it is a fault."""
    first, *once = items(dialect, json.loads(dialect.user("x")), *values)
    assert dialect.invalid([first, *once], [first, *once]) is None
    assert dialect.invalid([first, *once, *once], [first, *once]) == fault
    assert dialect.invalid([first, *once, *once], [first, *once, *once]) is None


def test_items_beyond_others_are_told_by_how_often_they_stand() -> None:
    """As a multiset, in order."""
    a, b, c = items(CHAT, *({"role": "user", "content": text} for text in "abc"))
    assert beyond([a, b, a, c], [a, c]) == [b, a]
    assert beyond([a], [a, a]) == []


@pytest.mark.parametrize("dialect", SOUND, ids=lambda dialect: dialect.name)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_shape_of_an_item_raises(dialect: Wire, data: st.DataObject) -> None:
    """Sound and flawed items with values of any kind in them."""
    value: Any = copy.deepcopy(data.draw(st.sampled_from([*SOUND[dialect], *(one for one, _ in FLAWED[dialect])])))
    place = value
    while isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()) or not isinstance(place[key], (dict, list)):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    found = dialect.item(json.dumps(value).encode())
    if found is not None:
        dialect.invalid([found])
        assert dialect.invalid([found], [found]) is None


# -- over whole conversations -----------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn, dialect: Wire, spelling: Callable[[list[Message]], list[Message]]) -> list[Message]:
    """A sound history with images and cache marks in it, as agents of that API write it; empty messages left out."""
    talk = [one for one in draw(conversations()) if one.get("content") or one.get("tool_calls")]
    found: list[Any] = copy.deepcopy(spelling(talk))
    for at, value in enumerate(found):
        content = value.get("content")
        if isinstance(content, str):
            value["content"] = content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or dialect is RESPONSES:
            if "arguments" in value or "call_id" in value:
                value["id"] = f"item_{at}"
            continue
        if value["role"] == "user" and draw(st.integers(0, 4)) == 0:
            content.append({"type": "image_url", "image_url": {"url": "data:,"}} if dialect is CHAT else IMAGE)
        if draw(st.integers(0, 2)) == 0:
            content[-1] |= MARK
    return found


def _transcript(dialect: Wire, values: Sequence[Message]) -> Transcript:
    found = dialect.split(spelt({"model": "m", "max_tokens": 9, dialect.form.items: values}))
    assert found is not None
    return found


def _shortened(text: str) -> str:
    return f"[{text[:1]}]"


def _planned(dialect: Wire, whole: Transcript, data: st.DataObject) -> tuple[Item, ...] | None:
    """A replacement along units: a summary first, then units that go, stay, or have their results shortened."""
    now = raw_projection(whole)
    ranges = units(now.items)
    parts: list[Put | Keep] = [Put(dialect.user(data.draw(WORDS) or "x"))]
    if not ranges or len(ranges) < 2:
        return None
    last = data.draw(st.integers(0, len(ranges) - 2))
    for start, stop in ranges[: last + 1]:
        for at in range(start, stop) if data.draw(st.booleans()) else ():
            pruned = dialect.shrink(now.items[at].raw, _shortened) if data.draw(st.booleans()) else None
            parts.append(Put(pruned) if pruned is not None else Keep(at, at + 1))
    plan = replace(now, parts, ranges[last][1], dialect.item, carry=Carry(), summary="S4")
    return plan.projection.items if plan else None


@pytest.mark.parametrize(("dialect", "spelling"), DIALECTS, ids=[dialect.name for dialect, _ in DIALECTS])
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_what_is_replaced_along_units_is_valid_by_each_api_s_documentation(
    dialect: Wire, spelling: Callable[[list[Message]], list[Message]], data: st.DataObject
) -> None:
    """Carryon's validator finds nothing, and neither does one that knows nothing of Carryon; no mark is added."""
    whole = _transcript(dialect, data.draw(histories(dialect, spelling)))
    assert dialect.invalid(whole.items) in (None, "the first message is the assistant's")
    shown = _planned(dialect, whole, data)
    if shown is None:
        return
    assert dialect.invalid(shown, whole.items) is None
    sent = dialect.render(whole, shown)
    if problem(dialect.name, json.loads(whole.body)) is None:
        assert problem(dialect.name, json.loads(sent)) is None
    assert sent.count(b'"cache_control"') <= whole.body.count(b'"cache_control"')


@pytest.mark.parametrize(("dialect", "spelling"), DIALECTS, ids=[dialect.name for dialect, _ in DIALECTS])
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_flaw_anywhere_in_a_replacement_is_found(
    dialect: Wire, spelling: Callable[[list[Message]], list[Message]], data: st.DataObject
) -> None:
    """One flawed item more among many sound ones, and one mark or sealed block more."""
    whole = _transcript(dialect, data.draw(histories(dialect, spelling)))
    shown = list(_planned(dialect, whole, data) or whole.items)
    bad = [value for value, _ in FLAWED[dialect]] + [value for one, value, _ in SEALED if one is dialect]
    (added,) = items(dialect, data.draw(st.sampled_from(bad)))
    shown.insert(data.draw(st.integers(0, len(shown))), added)
    assert dialect.invalid(shown, whole.items) is not None
