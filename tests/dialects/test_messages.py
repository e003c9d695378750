"""The `messages` dialect: what its blocks mean, which bytes stay, and what a summary request keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.transcript import Facts, Transcript
from proxy.dialects import Call, Completion, Dialect, Result, Said, Usage
from proxy.dialects.messages import MESSAGES
from tests.dialects.test_chat_digest import JSON
from tests.transcripts import Message, spelt

THINKING = {"type": "thinking", "thinking": "hm", "signature": "S"}
CACHED = {"cache_control": {"type": "ephemeral"}}


def split(messages: object, **more: object) -> Transcript:
    """A split body of these messages."""
    found = MESSAGES.split(spelt({"model": "m", "max_tokens": 9, "messages": messages, **more}))
    assert found is not None
    return found


def facts(message: object) -> Facts:
    """What is known of a message."""
    found = MESSAGES.facts(spelt(message))
    assert found is not None
    return found


def text(words: str, **more: object) -> Message:
    """A text block."""
    return {"type": "text", "text": words, **more}


def call(named: str, **more: object) -> Message:
    """A call."""
    return {"type": "tool_use", "id": named, "name": "read", "input": {"path": "a.py", "n": 1}, **more}


def result(named: str, content: object = "done", **more: object) -> Message:
    """Its result."""
    return {"type": "tool_result", "tool_use_id": named, "content": content, **more}


def user(*blocks: Message) -> Message:
    """A user message."""
    return {"role": "user", "content": list(blocks)}


def says(*blocks: Message) -> Message:
    """An assistant message."""
    return {"role": "assistant", "content": list(blocks)}


def test_bodies_are_rendered_as_they_came() -> None:
    """Every byte; system text is no item."""
    raw = (
        b'{ "system": [{"type":"text","text":"s"}],"messages" :[{"role":"user","content":"a"},{"role": "assistant",'
        b'"content":[{"type":"text","text":"b"}]}], "model":"m" , "max_tokens":5}'
    )
    found = MESSAGES.split(raw)
    assert found is not None
    assert MESSAGES.render(found, found.items) == raw
    assert ([item.facts.role for item in found.items], found.envelope.leading) == (["user", "assistant"], ())
    assert (found.envelope.output, found.envelope.rest[0].raw) == (5, b'[{"type":"text","text":"s"}]')


@pytest.mark.parametrize(
    ("message", "role", "opens", "answers"),
    [
        (user(text("a")), "user", (), ()),
        ({"role": "user", "content": "a"}, "user", (), ()),
        (says(THINKING, call("1"), call("2")), "assistant", ("1", "2"), ()),
        (user(result("1"), result("2")), "tool", (), ("1", "2")),
        (user(result("1"), text("stop that")), "user", (), ("1",)),
        (
            says({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
            "assistant",
            (),
            (),
        ),
        (user(call("1")), "user", (), ()),
        (says(result("1")), "tool", (), ()),
    ],
)
def test_calls_and_results_are_read_for_units(
    message: Message, role: str, opens: tuple[str, ...], answers: tuple[str, ...]
) -> None:
    """Results alone are no word of a user's; the upstream's own tools stand in one whole message."""
    found = facts(message)
    assert (found.role, found.opens, found.answers) == (role, opens, answers)


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b"{}", b'{"role":7}', b'{"role":""}'])
def test_what_is_no_message_is_none(raw: bytes) -> None:
    """And a body with one is passed on as it came."""
    assert MESSAGES.facts(raw) is None


def test_a_step_is_one_unit() -> None:
    """Calls, all their results, and an assistant's messages in a row, which the upstream joins."""
    found = split(
        [user(text("a")), says(call("1"), call("2")), user(result("1"), result("2")), says(text("b")), says(text("c"))]
    )
    assert units(found.items) == ((0, 1), (1, 3), (3, 5))


def test_what_the_upstream_compacted_always_stays() -> None:
    """Its block stands in an assistant message."""
    assert facts(says({"type": "compaction", "content": "x"}, text("a"))).stays
    assert not facts(says(text("a"))).stays


SAME: list[tuple[Any, Any]] = [
    (user(text("a")), {"role": "user", "content": "a"}),
    (user(text("a")), user(text(" a\n", **CACHED))),
    (user(text("a"), text("b")), user(text("ab"))),
    (says(THINKING, text("a")), says(text("a"))),
    (says({"type": "redacted_thinking", "data": "x"}, call("1")), says(call("1"))),
    (says(call("1")), says(call("1", input={"n": 1, "path": "a.py"}, **CACHED))),
    (user(result("1", "a")), user(result("1", [text("a", **CACHED)], **CACHED))),
]
OTHER: list[tuple[Any, Any]] = [
    (user(text("a")), user(text("b"))),
    (user(text("a")), says(text("a"))),
    (says(call("1")), says(call("2"))),
    (says(call("1")), says(call("1", name="write"))),
    (says(call("1")), says(call("1", input={"path": "b.py", "n": 1}))),
    (says(call("1")), says(call("1", input={"path": "a.py", "n": 1.5}))),
    (says(call("1")), says(call("1", caller={"type": "direct"}))),
    (user(result("1", "a")), user(result("1", "b"))),
    (user(result("1", "a")), user(result("2", "a"))),
    (user(result("1", "a")), user(result("1", "a", is_error=True))),
    (user(result("1", "a"), text("b")), user(text("b"), result("1", "a"))),
    (
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YQ=="}}),
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Yg=="}}),
    ),
    (
        says({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "a"}]}),
        says({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "b"}]}),
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_clients_write_otherwise_does_not_count(one: Message, other: Message) -> None:
    """Moved cache marks, thinking, order of keys, text against blocks."""
    assert facts(one).digest == facts(other).digest != b""


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_a_model_could_tell_apart_counts(one: Message, other: Message) -> None:
    """Role, text, ids, names, inputs, results, order, media, the upstream's own results."""
    assert facts(one).digest != facts(other).digest


def test_a_message_of_nothing_has_no_digest() -> None:
    """Thinking alone is nothing."""
    for content in ("", [], [THINKING], [text("  ")], None):
        assert facts({"role": "assistant", "content": content}).digest == b""


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        (user(text("a"), text("b")), Said(role="user", text="a\nb")),
        (
            says(THINKING, text("a"), call("1")),
            Said(role="assistant", text="a", calls=(Call(id="1", name="read", arguments='{"n":1,"path":"a.py"}'),)),
        ),
        (
            user(result("1", "Error: no"), result("2", [text("a"), {"type": "image", "source": {}}], is_error=True)),
            Said(
                role="tool",
                text="",
                results=(Result(id="1", text="Error: no", error=True), Result(id="2", text="a\n[image]", error=True)),
            ),
        ),
        (
            user(result("1", "a"), text("go on")),
            Said(role="user", text="go on", results=(Result(id="1", text="a"),)),
        ),
    ],
)
def test_a_message_as_a_reader_sees_it(message: Message, seen: Said) -> None:
    """The same for every dialect."""
    assert MESSAGES.said(spelt(message)) == seen


def test_what_a_model_reads_is_weighed() -> None:
    """Texts, thinking, calls, results, media, and what only the upstream can read."""
    sealed = {"type": "redacted_thinking", "data": "x" * 60}
    searched = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "a"}]}
    picture = {"type": "image", "source": {"type": "base64", "data": "x" * 9_000}}
    weights = [
        MESSAGES.weigh(spelt(one))
        for one in (
            {"role": "user", "content": "a"},
            says(THINKING, text("a"), call("1")),
            user(result("1", [text("b"), picture])),
            says(sealed),
            says(searched),
        )
    ]
    assert [(one.texts, one.fixed) for one in weights] == [
        (("a",), 4),
        (("hm", "a", "read", '{"n":1,"path":"a.py"}'), 12),
        (("b",), 1_109),
        ((), 14),
        (('[{"title":"a"}]',), 4),
    ]
    assert MESSAGES.weigh(b'[{"name":"f"}]').texts == ('[{"name":"f"}]',)


def test_results_are_shrunk_and_nothing_else() -> None:
    """Text beside them, ids and marks stay."""
    message = user(result("1", "long", is_error=True), result("2", [text("long")]), text("long"))
    shrunk = MESSAGES.shrink(spelt(message), lambda _: "s")
    assert shrunk is not None
    assert json.loads(shrunk) == user(result("1", "s", is_error=True), result("2", [text("s")]), text("long"))
    for other in (user(text("long")), says(call("1")), {"role": "user", "content": "long"}, user(result("1", None))):
        assert MESSAGES.shrink(spelt(other), lambda _: "s") is None


def test_a_shortened_result_keeps_no_cache_mark() -> None:
    """Clients move theirs and an upstream takes four: a stored one would be one too many some day."""
    marked = user(result("1", [text("long", **CACHED)], **CACHED), result("2", "long"))
    shrunk = MESSAGES.shrink(spelt(marked), lambda _: "s")
    assert shrunk is not None
    assert b"cache_control" not in shrunk


def test_what_upstreams_reject_is_a_fault() -> None:
    """A first word of the assistant's, calls and results without each other, results too late."""

    def fault(*messages: Message) -> str | None:
        return MESSAGES.invalid(split(list(messages)).items)

    ask, step = user(text("a")), says(call("1"), call("2"))
    assert fault(ask, step, user(result("2"), result("1"))) is None
    assert fault(ask, step, user(result("2")), user(result("1"))) is None
    assert fault(ask, ask, says(text("b")), says(text("c"))) is None
    assert fault(says(text("b")), ask) == "the first message is the assistant's"
    assert fault(ask, step, user(result("1"))) == "call without its result: 2"
    assert fault(ask, step, ask, user(result("1"), result("2"))) == "call without its result: 1"
    assert fault(ask, user(result("1"))) == "result without its call: 1"
    assert (fault(ask, says(THINKING)) or "").startswith("empty assistant message")


@pytest.mark.parametrize(
    ("asked", "compacts"),
    [
        (None, False),
        ({"edits": [{"type": "clear_thinking_20251015"}]}, False),
        ({"edits": [{"type": "clear_tool_uses_20250919"}]}, True),
        ({"edits": [{"type": "clear_thinking_20251015"}, {"type": "compact_20260112"}]}, True),
        ({"edits": []}, True),
        ({}, True),
        ([], True),
    ],
)
def test_a_body_that_asks_the_upstream_to_compact_is_marked(asked: object, *, compacts: bool) -> None:
    """Rule 4.8; dropping old thinking is none."""
    assert split([user(text("a"))], context_management=asked).envelope.compacts == compacts


def test_the_id_of_a_session_is_found_in_the_metadata() -> None:
    """Where Claude Code puts it: JSON inside `user_id`."""
    found = split([user(text("a"))], metadata={"user_id": '{"session_id":"s-1"}'})
    assert found.envelope.ids == ("s-1",)


def test_a_summary_request_replays_the_live_prefix() -> None:
    """System text, tools and thinking stay; the limit lies above the thinking budget; nothing is called."""
    kept: Message = {
        "system": [text("s", **CACHED)],
        "tools": [{"name": "f"}],
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "metadata": {"user_id": "u"},
        "stream": True,
    }
    dropped: Message = {"temperature": 1, "stop_sequences": ["x"], "context_management": {}}
    items = [user(text("a", **CACHED)), says(THINKING, call("1")), user(result("1"))]
    found = split(items, tool_choice={"type": "any"}, **kept, **dropped)
    value = json.loads(MESSAGES.summary_request(found, found.items, "sum up", max_tokens=9))
    assert value == {
        "model": "m",
        **kept,
        "messages": [*items, user(text("sum up"))],
        "tool_choice": {"type": "none"},
        "max_tokens": 9 + 1_024,
    }


def reply(*blocks: Message, reason: str | None = "end_turn", **more: object) -> bytes:
    """A whole reply."""
    return spelt({"type": "message", "stop_reason": reason, "model": "n", **says(*blocks), **more})


def test_a_whole_reply_is_read() -> None:
    """Text without thinking, how it finished, who answered, and all of the prompt, cached or not."""
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4}
    assert MESSAGES.answer(reply(THINKING, text("sum"), usage=usage)) == Completion(
        text="sum", finish="stop", model="n", usage=Usage(prompt=6, completion=4)
    )
    reasons = ("stop_sequence", "max_tokens", "tool_use", "refusal", "model_context_window_exceeded", None)
    finishes = [MESSAGES.answer(reply(text("x"), reason=reason)) for reason in reasons]
    assert [found.finish for found in finishes if found] == ["stop", "length", "tool", "other", "other", "other"]
    called = MESSAGES.answer(reply(call("1")))
    assert called is not None
    assert called.finish == "tool"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"role":"user","content":[]}', b'{"role":"assistant","content":"x"}', b"\xff"]
)
def test_what_is_no_reply_is_none(raw: bytes) -> None:
    """Errors, pieces, anything."""
    assert MESSAGES.answer(raw) is None


def test_usage_is_found_in_the_end_of_a_reply() -> None:
    """The last frame that tells the prompt; one that tells only the output teaches nothing."""
    start = b'data: {"message":{"usage":{"input_tokens":5,"output_tokens":1}}}\n\n'
    end = b'data: {"usage":{"output_tokens":7}}\n\n'
    whole = b'data: {"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":7}}\n\n'
    assert MESSAGES.usage(start + end, sse=True) == Usage(prompt=5, completion=1)
    assert MESSAGES.usage(start + whole, sse=True) == Usage(prompt=9, completion=7)
    assert MESSAGES.usage(end, sse=True) is None


SHAPES = st.dictionaries(
    st.sampled_from(["type", "text", "id", "tool_use_id", "name", "input", "content", "data", "thinking", "source"]),
    JSON | st.sampled_from(["text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image"]),
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(JSON, st.lists(SHAPES, max_size=3)), st.sampled_from(["user", "assistant", "system"]))
def test_no_shape_of_a_message_raises(content: object, role: str) -> None:
    """Clients may send anything."""
    raw = json.dumps({"role": role, "content": content}).encode()
    assert MESSAGES.facts(raw) is not None
    MESSAGES.said(raw)
    MESSAGES.weigh(raw)
    MESSAGES.shrink(raw, str.upper)
    MESSAGES.answer(raw)
    MESSAGES.split(b'{"model":"m","messages":[' + raw + b"]}")


def test_messages_is_a_dialect() -> None:
    """It fulfils the Protocol; the type checker reads this line."""
    dialect: Dialect = MESSAGES
    assert dialect.name == "messages"
