"""Reading one message: texts for a reader, weight for the meter, and nothing raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from proxy.dialects import chat_items as items
from tests.dialects.test_chat_digest import messages, sent
from tests.dialects.test_parts import PICTURE
from tests.transcripts import Message, calls, result, says, spelt, user


def test_a_reader_sees_text_without_reasoning() -> None:
    """Texts by line, media as markers, the refusal; thinking only where an assistant wrote it."""
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, PICTURE, "b"]
    assert items.visible_text({"role": "user", "content": parts}) == "a\n[image_url]\nb"
    assert items.visible_text(says("<think>hm</think>a")) == "a"
    assert items.visible_text(user("<think>hm</think>a")) == "<think>hm</think>a"
    assert items.visible_text({"role": "assistant", "content": None, "refusal": "no"}) == "no"
    assert items.visible_text({}) == ""


def test_calls_are_read_in_order() -> None:
    """Functions, custom tools, the old form; a call without anything is a call without a name."""
    message = {
        "tool_calls": [
            *calls("1", arguments="{}")["tool_calls"],
            {"id": "2", "custom": {"name": "f", "input": "text"}},
            {"function": {"arguments": {"b": 1, "a": 2}}},
            7,
        ],
        "function_call": {"name": "g", "arguments": "{}"},
    }
    found = [(call.id, call.name, call.arguments) for call in items.calls(message)]
    assert found == [("1", "read", "{}"), ("2", "f", "text"), ("", "", '{"a":2,"b":1}'), ("g", "g", "{}")]
    assert items.calls({"tool_calls": "x", "function_call": []}) == ()


def weight(message: object) -> tuple[tuple[str, ...], int]:
    """Texts and fixed tokens."""
    found = items.weigh(spelt(message))
    return found.texts, found.fixed


def test_what_a_model_reads_is_weighed() -> None:
    """Text, names and arguments of calls, reasoning, refusals; each message and call costs a little more."""
    assert weight(user("a")) == (("a",), 4)
    assert weight(result("1", "out")) == (("out",), 4)
    assert weight(calls("1", "2", arguments="{}")) == (("read", "{}", "read", "{}"), 20)
    assert weight(says("a", reasoning_content="hm", refusal="no")) == (("a", "hm", "no"), 4)
    assert weight({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}) == (("no",), 4)
    assert weight({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}) == (("hm",), 4)
    assert weight({"role": "assistant", "tool_calls": [{"custom": {"name": "f", "input": "text"}}]}) == (
        ("f", "text"),
        12,
    )


@pytest.mark.parametrize(
    ("part", "fixed"),
    [
        (PICTURE, 1_105),
        ({"type": "image_url", "image_url": {"url": PICTURE["image_url"], "detail": "low"}}, 85),
        ({"type": "input_audio", "input_audio": {"data": "x" * 400_000, "format": "wav"}}, 1_500),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + "x" * 400_000}}, 1_500),
        ({"type": "video_url", "video_url": {"url": "https://example.com"}}, 1_500),
    ],
)
def test_media_are_never_counted_as_text(part: Message, fixed: int) -> None:
    """400 kB of base64 weigh what the thing weighs."""
    assert weight({"role": "user", "content": [part]}) == ((), 4 + fixed)


def test_text_that_is_spelled_oddly_is_weighed_as_it_stands() -> None:
    """It is no picture, and a token of it is at least a byte."""
    odd = {"type": "text", "text": {"value": float("inf")}}
    assert weight({"role": "user", "content": [odd]}) == ((json.dumps(odd),), 4)


def test_what_is_no_message_is_weighed_as_it_stands() -> None:
    """Tool definitions, say; bytes that are no UTF-8 as well."""
    assert items.weigh(b'[{"type":"function"}]').texts == ('[{"type":"function"}]',)
    assert items.weigh(b"\xff").texts == ("\ufffd",)


@settings(max_examples=50, deadline=None)
@given(messages())
def test_every_text_is_in_the_weight(message: Message) -> None:
    """A message that says more weighs more."""
    found = items.weigh(json.dumps(sent(message)).encode())
    content = message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
    assert content in found.texts
    assert len(found.texts) >= 1 + 2 * len(message.get("tool_calls", []))
