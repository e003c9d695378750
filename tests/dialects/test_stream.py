"""A reply read from its stream is the reply that was not streamed; a stream that has no good end is none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.compaction.summarise import accepted
from proxy.dialects import Completion, Usage
from proxy.dialects.form import Wire
from tests.dialects.spellings import DIALECTS
from tests.e2e.apis import APIS, Api, Json

PAIRS = [(next(one for one, _ in DIALECTS if one.name == api.name), api) for api in APIS]
IDS = [dialect.name for dialect, _ in PAIRS]
each = pytest.mark.parametrize(("dialect", "api"), PAIRS, ids=IDS)
SAID = "Première partie: \U0001f600 \u2028 done. " * 20


def frames(*events: Json, named: bool = True) -> list[bytes]:
    """Events on the wire; `named` by a line of their own, as Responses and Messages have it."""
    found = []
    for event in events:
        line = b"event: %s\n" % str(event["type"]).encode() if named and "type" in event else b""
        found.append(line + b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")
    return found


def spoken(api: Api, *texts: str) -> list[bytes]:
    """A good reply in many deltas, as each API streams it."""
    found: list[bytes] = []
    for frame in api.frames("%TEXT%", 40):
        at = next((line[6:] for line in frame.splitlines() if line.startswith(b"data: {")), b"{}")
        event = json.loads(at)
        delta = event.get("delta") or next(iter(event.get("choices", ())), {}).get("delta", {})
        if "%TEXT%" in (delta if isinstance(delta, str) else json.dumps(delta)):
            found += [frame.replace(b"%TEXT%", json.dumps(text, ensure_ascii=False)[1:-1].encode()) for text in texts]
        else:
            found.append(frame.replace(b"%TEXT%", json.dumps("".join(texts), ensure_ascii=False)[1:-1].encode()))
    return found


@each
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), min_size=1, max_size=5))
def test_a_streamed_reply_is_the_reply(dialect: Wire, api: Api, texts: list[str]) -> None:
    """Text, finish and model are those of the whole reply, however the text was cut."""
    streamed = dialect.answer(b"".join(spoken(api, *texts)))
    plain = dialect.answer(json.dumps(api.whole("".join(texts), 40)).encode())
    assert streamed is not None
    assert plain is not None
    named = {"model": plain.model, "usage": plain.usage}
    assert replace(streamed, **named) == plain  # type: ignore[arg-type]


@each
def test_line_ends_comments_and_a_missing_last_line_change_nothing(dialect: Wire, api: Api) -> None:
    """CRLF, CR, a BOM, heartbeats between, no blank line at the end."""
    plain = b"".join(spoken(api, SAID))
    beats = b": beat\n\n" + b"\n\n: beat\n\n".join(spoken(api, SAID)) + b"\n\n: beat"
    spelt = (plain.replace(b"\n", b"\r\n"), plain.replace(b"\n", b"\r"), b"\xef\xbb\xbf" + plain, beats, plain.rstrip())
    assert {dialect.answer(one) for one in spelt} == {dialect.answer(plain)}


@each
def test_a_stream_cut_anywhere_before_its_end_is_no_reply(dialect: Wire, api: Api) -> None:
    """After every frame and in the middle of each: nothing, and never another text than the whole."""
    parts = spoken(api, *(f"piece {number} " for number in range(5)))
    whole = dialect.answer(b"".join(parts))
    assert whole is not None
    raw = b"".join(parts)
    last = raw.rindex(
        b"data: {", 0, raw.rindex({"messages": b"stop_reason", "chat": b'"stop"'}.get(api.name, b"usage"))
    )
    for at in range(1, len(raw)):
        found = dialect.answer(raw[:at])
        assert found is None or (at > last and found == whole), at


ERRORS = {
    "chat": frames({"error": {"message": "overloaded", "code": 529}}),
    "responses": frames(
        {"type": "error", "code": "server_error", "message": "x"},
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}, "output": []}},
    ),
    "messages": frames({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
}


@each
def test_an_error_among_the_events_is_no_reply(dialect: Wire, api: Api) -> None:
    """Before the first text, after it, and even behind a good end."""
    parts = spoken(api, "a", "b", "c")
    for error in (*ERRORS[api.name], b"event: error\ndata: {}\n\n", b'data: {"choices": [{"delta"\n\n'):
        for at in range(len(parts) + 1):
            assert dialect.answer(b"".join([*parts[:at], error, *parts[at:]])) is None


def _chat(delta: Json, finish: str | None) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _response(*output: Json, status: str = "completed", **more: object) -> Json:
    return {"type": f"response.{status}", "response": {"status": status, "output": list(output), **more}}


def _block(kind: str, *deltas: Json, **more: object) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **more}}
    yield from ({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop", "index": 0}


BEGUN: Json = {"type": "message_start", "message": {"type": "message", "role": "assistant", "content": []}}
THOUGHT = {"type": "thinking_delta", "thinking": "hm " * 200}
SEALED = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm " * 200}]}
CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
LENGTH = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def _ended(reason: str) -> list[Json]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


#: What a summariser may also stream, with the finish it reads as.
OTHERS: dict[str, dict[str, tuple[list[Json], str]]] = {
    "chat": {
        "reasoning only": ([_chat({"reasoning_content": "hm " * 200}, None), _chat({}, "stop")], "stop"),
        "a call": (
            [_chat({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f"}}]}, None), _chat({}, "stop")],
            "tool",
        ),
        "an old call": ([_chat({"function_call": {"name": "f"}}, None), _chat({}, "stop")], "tool"),
        "cut by length": ([_chat({"content": SAID}, None), _chat({}, "length")], "length"),
        "nothing": ([_chat({}, "stop")], "stop"),
    },
    "responses": {
        "reasoning only": ([_response(SEALED)], "stop"),
        "a call": ([_response(CALL)], "tool"),
        "cut by length": ([_response(**LENGTH)], "length"),
        "nothing": ([_response()], "stop"),
    },
    "messages": {
        "reasoning only": ([BEGUN, *_block("thinking", THOUGHT, thinking=""), *_ended("end_turn")], "stop"),
        "a call": ([BEGUN, *_block("tool_use", id="1", name="f", input={}), *_ended("tool_use")], "tool"),
        "cut by length": (
            [BEGUN, *_block("text", {"type": "text_delta", "text": SAID}, text=""), *_ended("max_tokens")],
            "length",
        ),
        "nothing": ([BEGUN, *_ended("end_turn")], "stop"),
    },
}
CASES = [(dialect, api, name) for dialect, api in PAIRS for name in OTHERS[api.name]]


@pytest.mark.parametrize(("dialect", "api", "name"), CASES, ids=[f"{api.name}: {name}" for _, api, name in CASES])
def test_what_is_streamed_but_no_summary_is_not_accepted(dialect: Wire, api: Api, name: str) -> None:
    """Reasoning is no text, a call no answer, and half a text no summary."""
    events, finish = OTHERS[api.name][name]
    found = dialect.answer(b"".join(frames(*events)))
    assert found is not None
    assert found.finish == finish
    assert accepted(found, "Write a summary.", ()) is None


def test_who_answered_and_what_it_cost_are_read_wherever_a_stream_says_it() -> None:
    """Chat in a last chunk of its own, Responses in the last event, Messages in the first and the last."""
    chat, responses, messages = (dialect for dialect, _ in DIALECTS)
    usage = {"choices": [], "model": "n", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    events = [{**_chat({"content": [{"type": "text", "text": "a"}]}, None), "usage": None}, _chat({}, "stop"), usage]
    expected = Completion(text="a", finish="stop", model="n", usage=Usage(prompt=7, completion=2))
    assert chat.answer(b"".join(frames(*events)) + b"data: [DONE]\n\n") == expected
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    end = _response(model="n", usage={"input_tokens": 7, "output_tokens": 2})
    assert responses.answer(b"".join(frames({"type": "response.output_item.done", "item": said}, end))) == expected
    counted = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}
    begun = {**BEGUN, "message": {**BEGUN["message"], "model": "n", "usage": counted}}
    told = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    text = _block("text", {"type": "text_delta", "text": "a"}, text="")
    assert messages.answer(b"".join(frames(begun, *text, told))) == expected


def test_other_choices_than_the_first_are_not_read() -> None:
    """Whoever sends two asked for none of them."""
    chat = DIALECTS[0][0]
    second = {"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": "length"}]}
    found = chat.answer(b"".join(frames(second, _chat({"content": "a"}, "stop"), second)))
    assert found is not None
    assert (found.text, found.finish) == ("a", "stop")


@each
def test_a_stream_of_very_many_events_is_no_reply_and_costs_little(dialect: Wire, api: Api) -> None:
    """Two million of them in 16 MiB: reading stops early, since nobody else is served meanwhile."""
    began = time.process_time()
    assert dialect.answer(b"data:{}\n" * (1 << 20) + b"\n\n") is None
    assert dialect.answer(b"data:{}\n\n" * (1 << 20) + b"".join(spoken(api, "a"))) is None
    print(f"\n{api.name}: 2 x 8 MiB of empty events read in {time.process_time() - began:.2f} s")


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("stop"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_KEYS = "type index choices delta message content text finish_reason usage model response item output content_block"
_EVENTS = (
    "response.completed response.output_item.done message_start content_block_start content_block_delta message_delta x"
)
KEYS, NAMES = st.sampled_from(_KEYS.split()), st.sampled_from(_EVENTS.split())


@each
@settings(max_examples=100, deadline=None)
@given(events=st.lists(st.tuples(NAMES, st.dictionaries(KEYS, ODD)), max_size=4))
def test_no_shape_of_an_event_raises(dialect: Wire, api: Api, events: list[tuple[str, Json]]) -> None:
    """An upstream may stream anything: alone, and amid a good reply."""
    odd = [b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(event).encode()) for name, event in events]
    dialect.answer(b"".join(odd))
    dialect.answer(b"".join([*spoken(api, "a")[:2], *odd, *spoken(api, "a")[2:]]))
