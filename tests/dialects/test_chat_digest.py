"""What of a message counts: one changed character in it does, another spelling does not."""

from __future__ import annotations

import base64
import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.chat_digest import facts
from tests.transcripts import Message, calls, digest, result, says, spelt, user

QUICK = settings(max_examples=80, deadline=None)
INNER = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=8)
#: Text whose ends are no white space: those are ignored.
SOLID = INNER.map(lambda text: f"a{text}z")
IDS = st.text("abc123_", min_size=1, max_size=6)
KEYS = st.text("abc_", min_size=1, max_size=4)
PLAIN = st.recursive(
    st.one_of(st.integers(), st.booleans(), SOLID, st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(KEYS, PLAIN, min_size=1, max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any kind with something in it; arguments still as values."""
    role = draw(st.sampled_from(["user", "assistant", "tool", "system"]))
    found: Message = {"role": role, "content": draw(SOLID)}
    if role == "tool":
        found["tool_call_id"] = draw(IDS)
    if role == "user" and draw(st.booleans()):
        found["name"] = draw(IDS)
    if role == "user" and draw(st.booleans()):
        picture = {"type": "image_url", "image_url": {"url": f"https://x/{draw(IDS)}", "detail": "low"}}
        found["content"] = [{"type": "text", "text": draw(SOLID)}, picture, {"type": "text", "text": draw(SOLID)}]
    if role == "assistant" and draw(st.booleans()):
        found["tool_calls"] = [
            {"id": draw(IDS), "type": "function", "function": {"name": draw(IDS), "arguments": draw(ARGUMENTS)}}
            for _ in range(draw(st.integers(1, 2)))
        ]
    if role == "assistant" and draw(st.booleans()):
        found["refusal"] = draw(SOLID)
    return found


#: Fields that clients add, drop or move.
MARKS: Message = {
    "cache_control": {"type": "ephemeral"},
    "id": "msg_1",
    "status": "completed",
    "annotations": [1],
    "logprobs": {"a": 1},
    "phase": "final",
    "reasoning_content": "hm",
    "reasoning": {"a": 1},
    "reasoning_details": [1],
    "thinking": "hm",
    "audio": None,
    "function_call": None,
    "tools": [],
}


def sent(message: Message, *, indent: int | None = None, reverse: bool = False) -> Message:
    """The message with its arguments written out, in one of the ways clients write them."""
    found = copy.deepcopy(message)
    for call in found.get("tool_calls", []):
        value = call["function"]["arguments"]
        ordered = dict(reversed(value.items())) if reverse else value
        call["function"]["arguments"] = json.dumps(ordered, indent=indent, ensure_ascii=reverse)
    return found


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values that are neither objects nor lists."""
    if isinstance(value, dict):
        return [place for key, inner in value.items() for place in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [place for key, inner in enumerate(value) for place in leaves(inner, (*path, key))]
    return [path]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at one place."""
    found = copy.deepcopy(value)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return found


@settings(max_examples=150, deadline=None)
@given(messages(), st.data())
def test_one_changed_character_anywhere_changes_the_digest(message: Message, data: st.DataObject) -> None:
    """Role, text, media, names, ids, arguments: each place, each character."""
    places = [path for path in leaves(message) if path[-1] != "type"]
    path = data.draw(st.sampled_from(places))
    old: Any = message
    for key in path:
        old = old[key]
    new: Any
    if isinstance(old, str):
        at = data.draw(st.integers(1, max(1, len(old) - 1)))
        new = data.draw(
            st.sampled_from([old[:at] + "q" + old[at:], old[:at] + " " + old[at:] + "q", old.upper() + "Q"])
        )
    else:
        new = [old] if isinstance(old, bool) else old + 1 if old + 1 != old else str(old)
    assert digest(sent(changed(message, path, new))) != digest(sent(message))


@settings(max_examples=150, deadline=None)
@given(messages(), st.data())
def test_another_spelling_of_the_same_message_has_the_same_digest(message: Message, data: st.DataObject) -> None:
    """All that real clients change from turn to turn, at once."""
    other = sent(message, indent=data.draw(st.none() | st.integers(0, 4)), reverse=data.draw(st.booleans()))
    other |= {key: MARKS[key] for key in data.draw(st.sets(st.sampled_from(sorted(MARKS))))}
    if isinstance(other["content"], str):
        text = data.draw(st.sampled_from(["", " ", "\n\n"])) + other["content"] + data.draw(st.sampled_from(["", "\n"]))
        if message["role"] == "assistant" and data.draw(st.booleans()):
            text = f"\n<think>so <b>\nand so</think>\n\n{text}"
        other["content"] = data.draw(st.sampled_from(list(spellings(text))))
    ordered = dict(data.draw(st.permutations(list(other.items()))))
    raw = json.dumps(ordered, indent=data.draw(st.none() | st.integers(0, 3)), ensure_ascii=data.draw(st.booleans()))
    found = facts(raw.encode())
    assert found is not None
    assert found.digest == digest(sent(message))


def spellings(text: str) -> list[Any]:
    """Text, a list of one part, and two adjacent parts, one of them marked for the cache."""
    half = len(text) // 2
    mark = {"cache_control": {"type": "ephemeral"}}
    return [
        text,
        [text],
        [{"type": "text", "text": text}],
        [{"type": "text", "text": text[:half], **mark}, {"type": "text", "text": text[half:], "annotations": []}],
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "input_text", "text": text}],
    ]


SAME: dict[str, tuple[Message, Message]] = {
    "null and absent and empty content beside calls": (calls("1"), calls("1") | {"content": ""}),
    "an empty list": (calls("1"), calls("1") | {"content": []}),
    "numbers written otherwise": (calls("1", arguments='{"a":1.0}'), calls("1", arguments='{"a": 1}')),
    "a call's index": (calls("1"), {**calls("1"), "tool_calls": [{"index": 0, **calls("1")["tool_calls"][0]}]}),
    "arguments as an object": (
        calls("1", arguments='{"a":1}'),
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "read", "arguments": {"a": 1}}}]},
    ),
}
OTHER: dict[str, tuple[Message, Message]] = {
    "inner white space": (user("a  b"), user("a b")),
    "case": (user("A"), user("a")),
    "a date": (user("on 2026-01-01"), user("on 2026-01-02")),
    "thinking a user wrote": (user("<think>x</think>y"), user("y")),
    "thinking in the middle": (says("a <think>x</think>y"), says("a y")),
    "thinking behind a picture": (
        says("") | {"content": [{"type": "file", "file": {"file_id": "f"}}, "<think>x</think>y"]},
        says("") | {"content": [{"type": "file", "file": {"file_id": "f"}}, "y"]},
    ),
    "thinking that does not end": (says("<think>x"), says("")),
    "ids inside arguments": (calls("1", arguments='{"id":"a"}'), calls("1", arguments='{"id":"b"}')),
    "reasoning inside arguments": (calls("1", arguments='{"reasoning":"a"}'), calls("1", arguments="{}")),
    "ids inside a result": (result("1", '{"id":1}'), result("1", '{"id":2}')),
    "null inside arguments": (calls("1", arguments='{"a":null}'), calls("1", arguments="{}")),
    "arguments with a key named twice": (calls("1", arguments='{"a":1,"a":2}'), calls("1", arguments='{"a":2}')),
    "arguments that are no JSON": (calls("1", arguments="{a"), calls("1", arguments="{a ")),
    "no arguments": (calls("1", arguments=""), calls("1", arguments="{}")),
    "a long number": (calls("1", arguments="1" * 40 + "1"), calls("1", arguments="1" * 40 + "2")),
    "a large exponent": (calls("1", arguments="1e999999"), calls("1", arguments="1e999998")),
    "an absurd exponent": (
        calls("1", arguments="1e9999999999999999999"),
        calls("1", arguments="1e9999999999999999998"),
    ),
    "a number and its look-alike": (calls("1", arguments="1.5"), calls("1", arguments='{"#":"15e-1"}')),
    "order of calls": (calls("1", "2"), calls("2", "1")),
    "two calls in one id": (calls("1", "2"), calls("12")),
    "a call and its text": (says("read"), calls("read")),
    "roles": (user("a"), says("a")),
    "text in two messages": (user("ab"), user("a")),
    "a call id that is a number": (
        {"role": "tool", "tool_call_id": 1, "content": "x"},
        {"role": "tool", "tool_call_id": 2, "content": "x"},
    ),
    "a custom tool's input": (
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "{ }"}}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "{}"}}]},
    ),
    "both a function and a custom tool": (
        {**calls("1"), "tool_calls": [{**calls("1")["tool_calls"][0], "custom": {"input": "a"}}]},
        {**calls("1"), "tool_calls": [{**calls("1")["tool_calls"][0], "custom": {"input": "b"}}]},
    ),
    "both arguments and input": (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": "{}", "input": "a"}}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": "{}", "input": "b"}}]},
    ),
    "a field of a call nobody has heard of": (
        {"role": "assistant", "tool_calls": [{**calls("1")["tool_calls"][0], "more": "a"}]},
        {"role": "assistant", "tool_calls": [{**calls("1")["tool_calls"][0], "more": "b"}]},
    ),
    "calls that are no list": (
        {"role": "assistant", "tool_calls": {"id": "1"}},
        {"role": "assistant", "tool_calls": {"id": "2"}},
    ),
    "a list of calls that are none": (
        {"role": "assistant", "tool_calls": ["a"]},
        {"role": "assistant", "tool_calls": ["b"]},
    ),
    "the old function call": (
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a":2}'}},
    ),
    "an old function call and a call of its name": (
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "tool_calls": [{"id": "f", "function": {"name": "f", "arguments": "{}"}}]},
    ),
    "a field of a message nobody has heard of": (user("a", more="a"), user("a", more="b")),
    "a field of a text part nobody has heard of": (
        user("") | {"content": [{"type": "text", "text": "a", "more": "a"}]},
        user("") | {"content": [{"type": "text", "text": "a", "more": "b"}]},
    ),
    "text before and behind a picture": (
        user("") | {"content": ["a", {"type": "file", "file": {"file_id": "f"}}]},
        user("") | {"content": [{"type": "file", "file": {"file_id": "f"}}, "a"]},
    ),
    "content that is a number": (user("") | {"content": 1}, user("") | {"content": 2}),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_clients_write_otherwise_does_not_count(one: Message, other: Message) -> None:
    """The two mean the same to a model."""
    assert digest(one) == digest(other)


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_what_a_model_could_tell_apart_counts(one: Message, other: Message) -> None:
    """The two must never get each other's surface."""
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    "content", ["", "  \n", None, [], [""], [{"type": "text", "text": " "}], [{"type": "thinking", "thinking": "x"}]]
)
def test_a_message_of_nothing_has_no_digest(content: object) -> None:
    """It belongs to the next significant one."""
    assert digest({"role": "assistant", "content": content, "reasoning_content": "x"}) == b""


def test_a_message_of_thinking_alone_is_nothing() -> None:
    """Reasoning goes with its unit, however it is written."""
    assert digest(says("<think>a</think>\n")) == b""


def picture(data: bytes, *, kind: str = "image/png") -> Message:
    """A user message with a picture inside."""
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@QUICK
@given(st.binary(min_size=1, max_size=64), st.binary(min_size=1, max_size=64))
def test_media_are_known_by_their_bytes(one: bytes, other: bytes) -> None:
    """Inline media differ where their bytes differ."""
    assert (digest(picture(one)) == digest(picture(other))) == (one == other)
    assert digest(picture(one)) != digest(picture(one, kind="image/jpeg"))


def test_a_data_url_that_is_not_base64_is_known_as_it_stands() -> None:
    """Nothing is guessed."""
    odd = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:x,{n}"}}]} for n in "*+"]
    assert digest(odd[0]) != digest(odd[1])


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"user","content":"a","content":"b"}',
        b'{"role":"user","content":"a","content":"a"}',
        b'{"role":"user","content":[' + b"[" * 400 + b"]" * 400 + b"]}",
        b'{"role":"user","content":NaN}',
        b'{"role":"user","content":"a","more":1e' + b"9" * 5_000 + b"}",
        b'{"role":"user","content":{"type":"x","y":' + b'{"a":' * 330 + b"1" + b"}" * 330 + b"}}",
    ],
    ids=["key twice", "key twice with one value", "deep", "NaN", "absurd exponent", "deep media"],
)
def test_what_cannot_be_read_exactly_is_opaque(raw: bytes) -> None:
    """It counts as it stands: any other byte is another message, the same bytes are the same."""
    found, again, spaced = facts(raw), facts(raw), facts(raw.replace(b":", b": ", 1))
    assert found is not None
    assert again is not None
    assert spaced is not None
    assert found.digest == again.digest
    assert found.significant
    if b"[[" not in raw and b'{"a"' not in raw:  # depth is read where the stack allows it
        assert found.digest != spaced.digest


@pytest.mark.parametrize(
    "raw", [b"1", b"null", b"{}", b'{"role":1}', b'{"role":""}', b"\xff", b"[" * 9_999, b'{"role":"user"', b""]
)
def test_what_has_no_role_is_no_message(raw: bytes) -> None:
    """And nothing raises."""
    assert facts(raw) is None


def test_a_huge_message_is_digested_in_no_time() -> None:
    """Time grows with size: parts, unclosed thinking, long numbers."""
    started = time.perf_counter()
    digest({"role": "assistant", "content": [{"type": "text", "text": "<think>" * 3}] * 50_000})
    digest(says("<think>" + "a" * 2_000_000))
    digest(calls("1", arguments=json.dumps({"n": [10**17] * 50_000})))
    digest(calls("1", arguments="9" * 1_000_000))
    assert time.perf_counter() - started < 3


def test_calls_and_results_are_read_for_units() -> None:
    """Who opens and who answers, in order; a user's calls are none."""
    one = facts(spelt(calls("a", "b")))
    old = facts(spelt({"role": "assistant", "function_call": {"name": "f"}}))
    other = [facts(spelt(result("a"))), facts(spelt({"role": "function", "name": "f", "content": "x"}))]
    assert one is not None
    assert old is not None
    assert (one.opens, one.answers, old.opens) == (("a", "b"), (), ("f",))
    assert [found.answers for found in other if found] == [("a",), ("f",)]
    forged = facts(spelt(calls("a") | {"role": "user"}))
    assert forged is not None
    assert forged.opens == ()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "function", "custom", "arguments", "id", "name", "url"]), inner, max_size=4
        ),
    ),
    max_leaves=8,
)
SHAPES = st.dictionaries(st.sampled_from(["content", "tool_calls", "function_call", "tool_call_id", "name"]), JSON)


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.sampled_from(["user", "assistant", "tool"]))
def test_no_shape_of_a_message_raises(fields: Message, role: str) -> None:
    """Clients may send anything."""
    assert facts(json.dumps({**fields, "role": role}).encode()) is not None
