"""The chat dialect: split and render over real traffic, what applies from turn to turn, summaries, replies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise, takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.identity import conversation
from proxy.core.replacement import replace
from proxy.core.surface import Carry, Put, matching, project, raw_projection
from proxy.core.transcript import Item, Transcript
from proxy.dialects import Call, Completion, Dialect, Result, Said, Usage
from proxy.dialects.chat import CHAT, Chat
from tests.dialects.test_chat_digest import SHAPES
from tests.transcripts import (
    Message,
    Recorded,
    Stored,
    body,
    calls,
    conversations,
    item,
    recorded,
    result,
    says,
    spelt,
    system,
    transcript,
    user,
)

RECORDED = recorded()


def written(value: object, **how: Any) -> bytes:
    """A value as this or that client writes it."""
    return json.dumps(value, **how).encode()


SPELLINGS: dict[str, Callable[[object], bytes]] = {
    "compact": spelt,
    "with spaces": written,
    "indented": lambda value: written(value, indent=2, ensure_ascii=False),
}


def split(value: Message) -> Transcript:
    """A recorded body, split."""
    found = CHAT.split(spelt(value))
    assert found is not None
    return found


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("one", RECORDED, ids=lambda one: one.label)
def test_recorded_bodies_are_rendered_as_they_came(one: Recorded, spelling: str) -> None:
    """The same JSON value; where the array was compact, the same bytes; every item is the client's own bytes."""
    raw = SPELLINGS[spelling](one.body)
    found = CHAT.split(raw)
    assert found is not None
    rendered = CHAT.render(found, found.items)
    assert json.loads(rendered) == one.body
    assert (rendered == raw) or spelling != "compact"
    assert [json.loads(part.raw) for part in (*found.envelope.leading, *found.items)] == one.body["messages"]
    assert all(part.raw in raw for part in (*found.envelope.leading, *found.items))
    assert raw[slice(*found.span)][:1] + raw[slice(*found.span)][-1:] == b"[]"
    assert found.envelope.model == one.body["model"]
    assert found.envelope.stream == bool(one.body.get("stream"))
    assert found.envelope.output == (one.body.get("max_completion_tokens") or one.body.get("max_tokens"))


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: one.label)
def test_recorded_bodies_are_the_same_transcript_however_they_are_written(one: Recorded) -> None:
    """White space and escapes change neither digests nor the conversation; every order is valid as sent."""
    found = [CHAT.split(write(one.body)) for write in SPELLINGS.values()]
    whole = [each for each in found if each is not None]
    assert len(whole) == len(SPELLINGS)
    assert len({each.digests for each in whole}) == 1
    assert len({named(each) for each in whole}) == 1
    assert all(CHAT.invalid(each.items) is None for each in whole)


def test_bytes_outside_the_array_stay() -> None:
    """Spaces, unknown fields, long numbers and their order are the client's."""
    raw = b' {"x" : 1.50e400,"messages":[ {"role":"user","content":"a"} ] , "model":"m" , "n":123456789012345678901} '
    found = CHAT.split(raw)
    assert found is not None
    assert CHAT.render(found, [item(user("b"))]) == raw.replace(
        b'[ {"role":"user","content":"a"} ]', b"[" + spelt(user("b")) + b"]"
    )


def named(found: Transcript, scope: str = "") -> str:
    """The conversation of a transcript."""
    return conversation(tenant="t", upstream="u", dialect="chat", scope=scope, transcript=found)


def common(one: Transcript, other: Transcript) -> int:
    """How many significant items the two begin with in common."""
    pairs = zip(one.digests, other.digests, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


#: Requests whose successor in the same capture repeats all their messages but the last `gone`:
#: capture, number, number of the next, how many at the end are other ones.
CONTINUED = [
    ("aider-0.86.2_chat_three_turns", 1, 2, 1),
    ("aider-0.86.2_chat_three_turns", 2, 3, 1),
    ("autogen-0.7.5_chat", 1, 2, 0),
    ("autogen-0.7.5_chat", 2, 3, 0),
    ("llm-0.36_continue", 1, 2, 0),
    ("openai-agents-0.24.0_chat_session", 1, 2, 0),
    ("openai-agents-0.24.0_chat_session", 2, 3, 0),
    ("openai-agents-0.24.0_chat_session", 3, 4, 0),
    ("opencode-1.18.33_chat_tool_and_continue", 2, 3, 0),
    ("opencode-1.18.33_chat_tool_and_continue", 3, 4, 0),
    ("pi-0.73.1_chat_tool_and_continue", 1, 2, 0),
    ("pi-0.73.1_chat_tool_and_continue", 2, 3, 0),
    ("pydantic-ai-2.68.0_chat", 1, 2, 0),
    ("pydantic-ai-2.68.0_chat", 2, 3, 0),
    ("pydantic-ai-2.68.0_chat", 3, 4, 0),
    ("qwen-code-0.15.10_chat_tool_continue_and_memory_subagent", 1, 2, 0),
    ("qwen-code-0.15.10_chat_tool_continue_and_memory_subagent", 2, 3, 0),
    ("qwen-code-0.15.10_chat_tool_continue_and_memory_subagent", 3, 4, 0),
    ("qwen-code-0.15.10_http400_overflow", 1, 2, 3),
]


def request(capture: str, number: int) -> Message:
    """One recorded body."""
    return next(one.body for one in RECORDED if (one.capture, one.number) == (capture, number))


@pytest.mark.parametrize(("capture", "number", "following", "gone"), CONTINUED)
def test_the_next_turn_of_a_real_client_begins_with_this_one(
    capture: str, number: int, following: int, gone: int
) -> None:
    """A surface made at one turn applies at the next, for every client recorded; so they are one conversation."""
    now, then = split(request(capture, number)), split(request(capture, following))
    assert common(now, then) == len(now.significant) - gone
    if len(now.significant) - gone >= 3:
        assert named(now) == named(then)
    if len(now.significant) - gone >= 1:
        plan = replace(
            raw_projection(now),
            [Put(spelt(user("s")))],
            now.end(len(now.significant) - gone),
            CHAT.item,
            carry=Carry(),
            summary="S4",
        )
        assert plan is not None
        assert project(then, plan.surface, CHAT.item, generation=1, operation="o") is not None


def test_titles_share_nothing_with_the_conversation_they_name() -> None:
    """Nor does anything else by accident; `pytest -s` prints what each request repeats of the one before."""
    print("\nsignificant items that the next request repeats")
    for one, other in pairwise(RECORDED):
        if one.capture == other.capture:
            now, then = split(one.body), split(other.body)
            counts = f"{common(now, then):>3} of {len(now.significant):>3}, then {len(then.significant):>3}"
            print(
                f"  {one.capture[:52]:52} {one.number}>{other.number}  {counts}  {'same' * (named(now) == named(then))}"
            )
    opencode = "opencode-1.18.33_chat_tool_and_continue"
    title, main = split(request(opencode, 1)), split(request(opencode, 2))
    assert common(title, main) == 0
    assert named(title, "session") != named(main, "session")


def test_two_aider_sessions_share_their_opening_and_never_a_surface() -> None:
    """The first seven messages are canned: one conversation, and each session's surface is its own."""
    first = request("aider-0.86.2_chat_three_turns", 3)
    mine, theirs = (
        split(first),
        split(first | {"messages": [*first["messages"][:7], user("other"), says("x"), user("y")]}),
    )
    assert named(mine) == named(theirs)
    assert common(mine, theirs) == 6
    plan = replace(raw_projection(mine), [Put(spelt(user("s")))], 8, CHAT.item, carry=Carry(), summary="S4")
    assert plan is not None

    entry = Stored(generation=1, digest=plan.digest, covered=plan.surface.covered)
    assert matching([entry], mine)
    assert not matching([entry], theirs)


def test_a_memory_sub_agent_shares_the_history_under_another_system_prompt() -> None:
    """System text is envelope: what was packed for the main conversation serves the sub-agent too."""
    capture = "qwen-code-0.15.10_chat_tool_continue_and_memory_subagent"
    main, memory = split(request(capture, 3)), split(request(capture, 4))
    assert main.envelope.leading != memory.envelope.leading
    assert named(main) == named(memory)
    assert common(main, memory) == len(main.significant)


NOT_SPLIT = {
    "no object": b"[]",
    "no messages": b'{"model":"m"}',
    "messages that are no list": b'{"model":"m","messages":{}}',
    "no model": b'{"messages":[]}',
    "a model that is no text": b'{"model":1,"messages":[]}',
    "an empty model": b'{"model":"","messages":[]}',
    "a model that cannot be printed": b'{"model":"m\\n","messages":[]}',
    "a model that cannot be spelt": b'{"model":"\\ud800","messages":[]}',
    "messages named twice": b'{"model":"m","messages":[],"messages":[]}',
    "a model named twice": b'{"model":"m","model":"n","messages":[]}',
    "a message that is none": b'{"model":"m","messages":[1]}',
    "a message without a role": b'{"model":"m","messages":[{"content":"a"}]}',
    "a message that is no UTF-8": b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
    "cut off": b'{"model":"m","messages":[',
    "nothing": b"",
}


@pytest.mark.parametrize("raw", NOT_SPLIT.values(), ids=NOT_SPLIT)
def test_what_cannot_be_split_is_left_alone(raw: bytes) -> None:
    """None: the body goes as it came."""
    assert CHAT.split(raw) is None


def test_a_million_items_cost_no_more_than_finding_that_they_are_no_conversation() -> None:
    """The event loop waits meanwhile: these took two to six seconds."""
    for one in (b"{}", b'{"role":"a"}'):
        many = b'{"model":"m","messages":[' + b",".join([one] * 300_000) + b"]}"
        began = time.process_time()
        assert Chat().split(many) is None
        assert time.process_time() - began < 0.5


def test_the_paths_model_stands_in() -> None:
    """Where the body names none."""
    found = CHAT.split(b'{"messages":[]}', model="deployed")
    assert found is not None
    assert found.envelope.model == "deployed"
    named_too = CHAT.split(body([]), model="deployed")
    assert named_too is not None
    assert named_too.envelope.model == "m"


def test_leading_system_text_is_envelope_and_later_system_text_is_not() -> None:
    """System and developer messages before the first other one."""
    found = transcript(system("a"), {"role": "developer", "content": "b"}, user("c"), system("d"))
    assert [part.facts.role for part in found.envelope.leading] == ["system", "developer"]
    assert [part.facts.role for part in found.items] == ["user", "system"]
    only = transcript(system("a"))
    assert (len(only.envelope.leading), only.items) == (1, ())


def test_the_envelope_holds_what_else_counts() -> None:
    """Tools and formats that the model reads, ids best first, marks of histories elsewhere."""
    more: Message = {
        "tools": [{"a": 1}],
        "response_format": {"type": "json_object"},
        "stream": True,
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "prompt_cache_key": "d",
        "session_id": "c",
        "conversation": {"id": "a"},
        "client_metadata": {"thread_id": "b"},
        "metadata": {"session_id": "e", "user_id": '{"session_id":"f"}'},
        "user": "never",
    }
    found = CHAT.split(body([], **more))
    assert found is not None
    assert [part.raw for part in found.envelope.rest] == [b'[{"a":1}]', b'{"type":"json_object"}']
    assert found.envelope.ids == ("a", "b", "c", "d", "e", "f")
    assert (found.envelope.stream, found.envelope.output) == (True, 7)
    assert not found.envelope.server_history
    assert not found.envelope.compacts


@pytest.mark.parametrize(
    ("field", "server_history", "compacts"),
    [
        ({"previous_response_id": "r"}, True, False),
        ({"previous_response_id": None}, False, False),
        ({"context_management": [1]}, False, True),
        ({"truncation": "auto"}, False, True),
        ({"truncation": "disabled"}, False, False),
    ],
)
def test_histories_that_lie_elsewhere_are_marked(field: Message, server_history: bool, compacts: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """Rules 4.7 and 4.8."""
    found = CHAT.split(body([], **field))
    assert found is not None
    assert (found.envelope.server_history, found.envelope.compacts) == (server_history, compacts)


@pytest.mark.parametrize("value", [None, -1, 0, True, "5", 1.5, [], {"a": 1}, 10**400])
def test_odd_settings_never_raise(value: object) -> None:
    """A setting that is not what it should be is as good as absent."""
    names = ("max_tokens", "stream", "metadata", "conversation", "client_metadata", "session_id", "prompt_cache_key")
    found = CHAT.split(body([user("a")], **dict.fromkeys(names, value)))
    assert found is not None
    assert found.envelope.output in (None, 10**400)
    assert found.envelope.stream is (value is True)


def test_items_are_remembered_by_their_bytes() -> None:
    """The same bytes are read once."""
    chat = Chat()
    one, other = chat.item(spelt(user("a"))), chat.item(spelt(user("a")))
    assert one is not None
    assert other is not None
    assert one.facts is other.facts
    assert chat.item(b"{}") is None


def test_a_message_as_a_reader_sees_it() -> None:
    """The same shape for every dialect."""
    assert CHAT.said(spelt(user("a"))) == Said(role="user", text="a")
    call = Call(id="1", name="read", arguments="{}")
    assert CHAT.said(spelt(calls("1", arguments="{}") | {"content": "b"})) == Said(
        role="assistant", text="b", calls=(call,)
    )
    assert CHAT.said(spelt(result("1", "Error: x"))).results == (Result(id="1", text="Error: x", error=True),)
    assert CHAT.said(b"?") == Said(role="", text="")


def test_tool_results_are_shrunk_and_nothing_else() -> None:
    """All fields stay but the text; None where nothing changes."""
    message = result("1", "long text") | {"name": "f"}
    assert CHAT.shrink(spelt(message), lambda text: text[:4]) == spelt(message | {"content": "long"})
    assert CHAT.shrink(spelt(message), lambda text: text) is None
    assert CHAT.shrink(spelt(user("long")), lambda _: "") is None
    assert CHAT.shrink(b"?", lambda _: "") is None
    parts = message | {"content": [{"type": "text", "text": "long"}, {"type": "image_url", "image_url": {"url": "u"}}]}
    shrunk = CHAT.shrink(spelt(parts), lambda _: "x")
    assert shrunk is not None
    assert json.loads(shrunk)["content"] == [{"type": "text", "text": "x"}, parts["content"][1]]
    assert CHAT.shrink(b'{"role":"tool","tool_call_id":"1","content":"a","x":1e999}', lambda _: "b") is None


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.sampled_from(["user", "assistant", "tool", "function", "x"]))
def test_no_shape_of_a_message_makes_the_dialect_raise(fields: Message, role: str) -> None:
    """Reading, weighing, shrinking and answering take whatever comes."""
    raw = json.dumps({**fields, "role": role}).encode()
    CHAT.said(raw)
    CHAT.weigh(raw)
    CHAT.shrink(raw, lambda text: text + "x")
    CHAT.answer(b'{"choices":[{"message":' + raw + b"}]}")
    found = CHAT.item(raw)
    assert found is None or CHAT.invalid([found], [found]) is None


@settings(max_examples=40, deadline=None)
@given(conversations(odd=True))
def test_a_projection_is_a_body_like_any_other(messages: list[Message]) -> None:
    """Split, rendered and split again it is the same transcript."""
    first = transcript(system("s"), *messages)
    second = CHAT.split(CHAT.render(first, first.items))
    assert second is not None
    assert second.items == first.items
    assert second.envelope == first.envelope


def test_rendered_messages_say_what_was_meant() -> None:
    """User and assistant text, whatever is in it."""
    for text in ("a", 'é"\n', "\ud800"):
        assert json.loads(CHAT.user(text)) == user(text)
        assert json.loads(CHAT.assistant(text)) == says(text)


def asked(more: Message, *, alone: bool = False, items: tuple[Item, ...] | None = None) -> tuple[bytes, Message]:
    """A summary request over a small conversation."""
    found = CHAT.split(body([system("s"), user("a"), calls("1"), result("1")], **more))
    assert found is not None
    raw = CHAT.summary_request(found, found.items if items is None else items, "sum up", max_tokens=9, alone=alone)
    return raw, json.loads(raw)


def test_a_summary_request_replays_the_live_prefix() -> None:
    """The client's own bytes, tools and thinking settings; everything that would spoil a summary is left out."""
    kept: Message = {
        "tools": [{"a": 1}],
        "reasoning_effort": "low",
        "prompt_cache_key": "k",
        "user": "u",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    dropped: Message = {
        "response_format": {},
        "stop": ["x"],
        "n": 2,
        "logit_bias": {},
        "prediction": {},
        "temperature": 1,
        "tool_choice": "required",
        "metadata": {},
    }
    raw, value = asked(kept | dropped | {"store": True, "max_completion_tokens": 4_000})
    live = body([system("s"), user("a"), calls("1"), result("1")])
    assert live[live.index(b"[") : -2] + b"," + spelt(user("sum up")) in raw
    assert {key: value.get(key) for key in kept} == kept
    assert not set(dropped) - {"tool_choice"} & set(value)
    assert (value["model"], value["tool_choice"], value["store"], value["max_completion_tokens"]) == (
        "m",
        "none",
        False,
        9,
    )
    assert "max_tokens" not in value


def test_a_summary_request_alone_holds_nothing_but_the_instruction() -> None:
    """No system text, no tools, no items."""
    _, value = asked({"tools": [{"a": 1}]}, alone=True)
    assert value == {"model": "m", "messages": [user("sum up")], "max_tokens": 9}


@pytest.mark.parametrize(
    ("model", "more", "name"),
    [
        ("m", {}, "max_tokens"),
        ("m", {"max_tokens": 1}, "max_tokens"),
        ("gpt-5-mini", {}, "max_completion_tokens"),
        ("o3", {}, "max_completion_tokens"),
        ("gpt-5-mini", {"max_tokens": 1}, "max_tokens"),
        ("m", {"max_completion_tokens": 1}, "max_completion_tokens"),
    ],
)
def test_the_limit_goes_by_the_clients_own_name(model: str, more: Message, name: str) -> None:
    """Newer models refuse `max_tokens`; a client that names one knows."""
    _, value = asked({"model": model} | more)
    assert {key for key in value if key.startswith("max_")} == {name}


def test_the_limit_of_a_summary_lies_above_a_thinking_budget() -> None:
    """Thinking counts against the limit: without room of its own it would leave none for the text."""
    _, value = asked({"max_tokens": 1, "thinking": {"type": "enabled", "budget_tokens": 1_024}})
    assert (value["max_tokens"], value["thinking"]["budget_tokens"]) == (9 + 1_024, 1_024)


def test_a_model_from_the_path_is_named_in_the_summary_request() -> None:
    """Deployments name their model in the URL; both then say the same."""
    found = CHAT.split(b'{"messages":[]}', model="deployed")
    assert found is not None
    assert json.loads(CHAT.summary_request(found, (), "x", max_tokens=1, alone=False))["model"] == "deployed"


def reply(message: Message, finish: str | None = "stop", **more: object) -> bytes:
    """A whole reply."""
    return spelt({"choices": [{"message": message, "finish_reason": finish}], **more})


def test_a_whole_reply_is_read() -> None:
    """Text without thinking, how it finished, who answered, what it cost."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    raw = reply(says("<think>hm</think>sum"), model="n", usage=usage)
    assert CHAT.answer(raw) == Completion(text="sum", finish="stop", model="n", usage=Usage(prompt=5, completion=2))
    assert CHAT.answer(reply({"content": "<think>hm</think>sum"})) == Completion(text="sum", finish="stop")
    finishes = [CHAT.answer(reply(says("x"), finish)) for finish in ("length", "tool_calls", "content_filter", None)]
    assert [found.finish for found in finishes if found] == ["length", "tool", "other", "other"]
    called = CHAT.answer(reply(calls("1")))
    assert called is not None
    assert called.finish == "tool"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"choices":[]}', b'{"choices":{}}', b'{"choices":[1]}', b'{"choices":[{}]}', b"\xff"]
)
def test_what_is_no_reply_is_none(raw: bytes) -> None:
    """Errors, pieces, anything."""
    assert CHAT.answer(raw) is None


USAGE = b'"usage":{"prompt_tokens":5,"completion_tokens":2}'
ENDS = {
    "a whole reply": (b'{"choices":[],' + USAGE + b"}", False, 5),
    "a reply cut at the front": (b'ent":"x"}}],' + USAGE + b"}", False, 5),
    "the word in what was said": (b"{" + USAGE + b',"content":"\\"usage\\": 1"}', False, 5),
    "no usage": (b'{"choices":[]}', False, None),
    "an empty one": (b'{"usage":null}', False, None),
    "cut in the middle": (b'{"usage":{"prompt_tok', False, None),
    "a stream": (b'data: {"choices":[]}\n\ndata: {"choices":[],' + USAGE + b"}\n\ndata: [DONE]\n\n", True, 5),
    "a stream whose last is empty": (b"data: {" + USAGE + b'}\n\ndata: {"usage":null}\n\n', True, 5),
    "a stream with usage in every chunk": (
        b'data: {"usage":{"prompt_tokens":1}}\n\ndata: {' + USAGE + b"}\n\n",
        True,
        5,
    ),
    "spaces": (b'{"usage" : \n {"prompt_tokens" : 5}}', False, 5),
    "nothing": (b"", True, None),
    "deep nesting": (b'"usage":' + b"[" * 99_999, False, None),
}


@pytest.mark.parametrize(("tail", "sse", "prompt"), ENDS.values(), ids=ENDS)
def test_usage_is_found_in_the_end_of_a_reply(tail: bytes, sse: bool, prompt: int | None) -> None:  # noqa: FBT001 - pytest passes it by name
    """From a copy of its last bytes."""
    found = CHAT.usage(tail, sse=sse)
    assert (found.prompt if found else None) == prompt


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(prompt=5, completion=2)),
        ({"prompt_tokens": 5}, Usage(prompt=5, completion=0)),
        ({"prompt_tokens": 0, "completion_tokens": 2}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": "5"}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_needs_prompt_tokens(value: object, found: Usage | None) -> None:
    """Zero teaches nothing."""
    assert CHAT.counted(value) == found


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, False),
        ({"x-codex-turn-metadata": '{"request_kind":"compaction"}'}, True),
        ({"x-codex-turn-metadata": '{"request_kind":"turn"}'}, False),
        ({"x-codex-turn-metadata": "?\udcff"}, False),
        ({"x-deepseek-harness-compact": "1"}, True),
        ({"x-deepseek-harness-compact": "0"}, False),
    ],
)
def test_a_clients_own_compaction_is_known_by_its_marks(headers: dict[str, str], own: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """Rule 4.8."""
    assert CHAT.own_compaction(headers, "chat/completions", transcript(user("a"))) == own


def test_chat_is_a_dialect() -> None:
    """It fulfils the Protocol; the type checker reads this line."""
    dialect: Dialect = CHAT
    assert dialect.name == "chat"
