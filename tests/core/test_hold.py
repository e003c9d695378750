from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import overflow_evidence, skim
from proxy.core.hold import Hold, Release
from proxy.core.hold_form import Form
from proxy.core.overflow import Kind, Verdict
from proxy.core.skim import SMALL

TEXT = "prompt is too long: 210000 tokens > 200000 maximum"
SENTENCE = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 990, "completion_tokens": 0}}


def sse(*values: object, event: str = "") -> bytes:
    """Write values as frames."""
    head = f"event: {event}\n" if event else ""
    return "".join(
        f"{head}data: {value if isinstance(value, str) else json.dumps(value)}\n\n" for value in values
    ).encode()


def delta(finish: str | None = None, **parts: object) -> dict[str, Any]:
    """Build a chat chunk."""
    return {"choices": [{"index": 0, "delta": parts, "finish_reason": finish}]}


def hold(dialect: str = "chat", **options: Any) -> Hold:
    """Hold a stream."""
    return Hold(said=Form.EVENTS, dialect=dialect, **options)


def is_overflow(decision: object) -> bool:
    """Tell whether a decision is an overflow."""
    return isinstance(decision, Verdict) and decision.kind is Kind.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (sse(delta(content="Hi")), Release.CONTENT),
        (sse(delta(reasoning_content="Hm")), Release.CONTENT),
        (sse(delta(reasoning="Hm")), Release.CONTENT),
        (sse(delta(refusal="No")), Release.CONTENT),
        (sse(delta(audio={"id": "a"})), Release.CONTENT),
        (sse(delta(tool_calls=[{"id": "t"}])), Release.CONTENT),
        (sse(delta(function_call={"name": "f"})), Release.CONTENT),
        (sse({"choices": [{"text": "Hi"}]}), Release.CONTENT),
        (sse(delta(finish="stop")), Release.FINISH),
        (sse(delta(finish="length")), Release.FINISH),
        (sse("[DONE]"), Release.DONE),
        (sse({"kind": "surprise"}), Release.UNKNOWN_EVENT),
        (sse("no json"), Release.UNKNOWN_EVENT),
        (sse({"error": {"message": "Rate limit reached", "code": 429}}), Release.ERROR),
        (sse({"message": "Overloaded"}, event="error"), Release.ERROR),
        (b'error: {"code":500,"message":"slot unavailable"}\n\n', Release.ERROR),
    ],
)
def test_what_commits_a_chat(stream: bytes, reason: Release) -> None:
    """Content of any kind, an end, an error that is no overflow, the unknown."""
    assert hold().feed(sse(ROLE) + stream) is reason


@pytest.mark.parametrize(
    "stream",
    [
        b": OPENROUTER PROCESSING\n\n",
        b"retry: 3000\n\n",
        b"event: ping\ndata: {}\n\n",
        sse("ping"),
        sse({"type": "ping"}),
        sse(ROLE),
        sse(delta(content="")),
        sse(delta(content=None, tool_calls=[], refusal=None)),
        sse(USAGE),
        sse({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        b"\xef\xbb\xbf",
        b'data: {"cho',
    ],
)
def test_what_does_not_commit_a_chat(stream: bytes) -> None:
    """Comments, pings, roles, empty deltas, usage, half a frame."""
    held = hold()
    assert held.feed(stream) is None
    assert held.decision is None


@pytest.mark.parametrize(
    "stream",
    [
        sse({"error": {"message": TEXT, "type": "invalid_request_error"}}),
        sse(
            ROLE,
            {
                "id": "x",
                "error": {"message": TEXT, "code": 400},
                "choices": [{"delta": {"content": ""}, "finish_reason": "error"}],
            },
        ),
        sse(
            {
                "choices": None,
                "error_type": "validation_error",
                "error_message": json.dumps({"error": {"message": TEXT}}),
            }
        ),
        sse({"message": TEXT, "object": "error", "code": 400}),
        sse({"error": {"message": TEXT}}, event="error"),
        sse([{"error": {"message": TEXT}}]),
        f'error: {{"message":"{TEXT}","code":500}}\n\n'.encode(),
        sse(ROLE, delta(content=SENTENCE), {"error": {"code": 500, "message": SENTENCE}}),
        sse(ROLE, delta(content=SENTENCE), delta(finish="stop")),
        sse(delta(finish="model_context_window_exceeded")),
        sse(ROLE, {"message": TEXT}),
        sse({"choices": None, "message": TEXT}),
        sse({"Response": {"Error": {"Code": "x", "Message": TEXT}}}),
        sse({"header": {"code": 10907, "message": "token数量超过上限"}}),
    ],
)
def test_overflows_inside_a_chat_stream(stream: bytes) -> None:
    """As OpenRouter, DeepInfra, LMDeploy, SGLang, Gemini, old llama.cpp, LocalAI and z.ai send them."""
    held = hold()
    decision = held.feed(b": comment\n\n" + stream)
    assert is_overflow(decision)
    assert held.verdict is decision


def test_an_overflow_reveals_its_numbers() -> None:
    """The exchange learns from them."""
    decision = hold().feed(sse(ROLE, delta(content=SENTENCE), "[DONE]"))
    assert isinstance(decision, Verdict)
    assert (decision.limit, decision.requested) == (8192, 9000)


def test_a_sentence_that_goes_on_is_content() -> None:
    """A model that quotes the error, and then explains it."""
    held = hold()
    assert held.feed(sse(delta(content=SENTENCE))) is None
    assert held.feed(sse(delta(content=" means that"))) is Release.CONTENT
    assert hold().feed(sse(delta(content=f"The error {SENTENCE}"))) is Release.CONTENT


def test_a_sentence_and_another_error_is_that_error() -> None:
    """The error frame has the last word."""
    held = hold()
    assert held.feed(sse(delta(content=SENTENCE), {"error": {"message": "rate limit", "code": 429}})) is Release.ERROR
    assert held.verdict is not None
    assert held.verdict.kind is Kind.RATE_LIMITED


def test_an_empty_length_waits_for_its_usage() -> None:
    """With no output and a full window it is an overflow, else a truncation; without a window it does not wait."""
    assert hold(window=1000).feed(sse(ROLE, delta(finish="length"))) is None
    assert is_overflow(hold(window=1000).feed(sse(ROLE, delta(finish="length"), USAGE)))
    assert is_overflow(hold(window=1000).feed(sse(delta(finish="length") | {"usage": USAGE["usage"]})))
    assert hold(window=2000).feed(sse(delta(finish="length"), USAGE)) is Release.FINISH
    assert hold(window=1000).feed(sse(delta(finish="length"), "[DONE]")) is Release.FINISH
    held = hold(window=1000)
    held.feed(sse(delta(finish="length")))
    assert held.end() is Release.FINISH
    assert hold().feed(sse(delta(finish="length"))) is Release.FINISH


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (sse({"type": "response.output_text.delta", "delta": "Hi"}), Release.CONTENT),
        (sse({"type": "response.reasoning_summary_text.delta", "delta": "Hm"}), Release.CONTENT),
        (sse({"type": "response.function_call_arguments.delta", "delta": "{"}), Release.CONTENT),
        (sse({"type": "response.output_text.delta", "delta": ""}), None),
        (sse({"type": "response.output_item.added", "item": {"type": "message"}}), None),
        (sse({"type": "response.content_part.added", "part": {"text": ""}}), None),
        (sse({"type": "response.completed", "response": {"status": "completed"}}), Release.FINISH),
        (
            sse({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}}),
            Release.FINISH,
        ),
        (sse({"type": "response.new_thing"}), Release.UNKNOWN_EVENT),
        (
            sse({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "x"}}}),
            Release.ERROR,
        ),
    ],
)
def test_what_commits_a_response(stream: bytes, reason: Release | None) -> None:
    """The Responses dialect is one row of the table."""
    held = hold("responses")
    assert held.feed(sse({"type": "response.created", "response": {"error": None, "instructions": TEXT}})) is None
    assert held.feed(sse("megabytes that are not even JSON", event="response.in_progress")) is None
    assert held.feed(stream) is reason


@pytest.mark.parametrize(
    "value",
    [
        {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "no"}}},
        {
            "type": "response.failed",
            "response": {"error": {"code": "invalid_prompt", "message": TEXT}, "instructions": "per minute"},
        },
        {"type": "error", "error": {"code": "context_length_exceeded"}},
        {"type": "error", "message": TEXT},
        {
            "type": "response.incomplete",
            "response": {"incomplete_details": {"reason": "model_context_window_exceeded"}},
        },
    ],
)
def test_overflows_inside_a_response_stream(value: object) -> None:
    """Flat and nested shapes; the echoed request is not read."""
    assert is_overflow(hold("responses").feed(sse({"type": "response.created"}, value)))


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (sse({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}), None),
        (sse({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}), None),
        (sse({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}), Release.CONTENT),
        (sse({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm"}}), Release.CONTENT),
        (
            sse({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}),
            Release.CONTENT,
        ),
        (sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), Release.FINISH),
        (sse({"type": "message_stop"}), Release.FINISH),
        (sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), Release.ERROR),
    ],
)
def test_what_commits_a_message(stream: bytes, reason: Release | None) -> None:
    """The Messages dialect is one row of the table."""
    held = hold("messages")
    assert (
        held.feed(sse({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}, {"type": "ping"})) is None
    )
    assert held.feed(stream) is reason


def test_overflows_inside_a_message_stream() -> None:
    """An error event, a stop reason of its own, an empty `max_tokens` in a full window."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 990, "output_tokens": 1}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 0}}
    own = {
        "type": "message_delta",
        "delta": {"stop_reason": "model_context_window_exceeded"},
        "usage": {"output_tokens": 0},
    }
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": TEXT}}
    assert is_overflow(hold("messages").feed(sse(start, error)))
    assert is_overflow(hold("messages").feed(sse(start, own)))
    assert is_overflow(hold("messages", window=1000).feed(sse(start, stop)))
    assert hold("messages", window=2000).feed(sse(start, stop)) is Release.FINISH


def test_once_decided_nothing_is_parsed_any_more() -> None:
    """The first decision stands, whatever follows."""
    held = hold()
    assert held.feed(sse(delta(content="Hi"))) is Release.CONTENT
    assert held.feed(sse({"error": {"message": TEXT}})) is Release.CONTENT
    assert held.end() is Release.CONTENT
    assert held.verdict is None


def test_a_stream_that_ends_undecided_is_released() -> None:
    """With or without a last blank line; an unfinished error frame is still read."""
    assert hold().end() is Release.ENDED
    held = hold()
    assert held.feed(sse({"error": {"message": TEXT}}).rstrip(b"\n")) is None
    assert is_overflow(held.end())


def test_json_under_the_content_type_of_a_stream_is_read_whole() -> None:
    """Some servers answer an error without frames."""
    held = hold()
    assert held.feed(json.dumps({"error": {"message": TEXT}}, indent=1).encode()) is None
    assert is_overflow(held.end())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": TEXT}}, "overflow"),
        ({"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}, "overflow"),
        ({"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}, Release.FINISH),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": USAGE["usage"]}, "overflow"),
        ({"stop_reason": "model_context_window_exceeded", "content": []}, "overflow"),
        ({"error": {"message": "rate limit", "code": 429}}, Release.ERROR),
        ({}, Release.FINISH),
        ("not json", Release.FINISH),
    ],
)
def test_a_body_without_frames_is_held_whole(body: object, expected: object) -> None:
    """JSON with status 200 may hold an error, or end with a reason of its own."""
    held = Hold(said=Form.JSON, dialect="chat", window=1000)
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    assert held.feed(raw[:7]) is None
    assert held.feed(raw[7:]) is None
    decision = held.end()
    assert is_overflow(decision) if expected == "overflow" else decision is expected


@pytest.mark.parametrize("said", [None, Form.EVENTS, Form.JSON])
@pytest.mark.parametrize("cut", [1, 3, 1 << 20])
def test_a_content_type_is_no_more_than_a_hint(said: Form | None, cut: int) -> None:
    """JSON called a stream, a stream called JSON, either called nothing: the first bytes tell."""
    for stream in (sse(ROLE, {"error": {"message": TEXT}}), b"\n " + json.dumps({"error": {"message": TEXT}}).encode()):
        held = Hold(said=said, dialect="chat")
        for start in range(0, len(stream), cut):
            held.feed(stream[start : start + cut])
        assert is_overflow(held.end())


@pytest.mark.parametrize(
    ("body", "overflow"),
    [
        ({"choices": [{"message": {"content": "x" * SMALL}, "finish_reason": "stop"}]}, False),
        ({"choices": [{}] * SMALL}, False),
        ({"error": {"message": TEXT}, "echo": [{}] * SMALL}, True),
        ({"content": [{"text": "x" * SMALL}], "stop_reason": "model_context_window_exceeded"}, True),
    ],
    ids=["content", "many choices", "an error with an echo", "a reason"],
)
def test_a_large_body_is_told_by_what_decides(body: object, *, overflow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real reply may be megabytes: only its top-level marks are read, never all of its values."""
    held, parsed = hold(), list[int]()
    monkeypatch.setattr(overflow_evidence, "_DECODER", None)
    inner = skim._parsed
    monkeypatch.setattr(skim, "_parsed", lambda text: parsed.append(len(text)) or inner(text))
    text = json.dumps(body).encode()
    for at in range(0, len(text), 1 << 16):
        assert held.feed(text[at : at + (1 << 16)]) is None
    decision = held.end()
    assert is_overflow(decision) if overflow else decision is Release.FINISH
    assert sum(parsed) < SMALL


def test_white_space_without_end_has_no_form() -> None:
    """It is not looked at from its start for ever: after a while it is what its content type says, or nothing."""
    held = Hold(said=None, dialect="chat")
    fed = 0
    while held.feed(b" " * 4_096) is None:
        fed += 4_096
    assert fed <= 1 << 16
    assert held.decision is Release.UNKNOWN_FORM


def test_what_has_no_form_is_released_at_once() -> None:
    """A page, a picture: there is nothing in it that could decide."""
    assert Hold(said=None, dialect="chat").feed(b"<html>" + TEXT.encode()) is Release.UNKNOWN_FORM
    assert Hold(said=None, dialect="chat").end() is Release.ENDED


def test_an_unmarked_message_that_is_no_overflow_is_an_unknown_event() -> None:
    """It proves and retires nothing: nobody says that it is an error."""
    held = hold()
    assert held.feed(sse({"message": "the model is being loaded"})) is Release.UNKNOWN_EVENT
    assert held.verdict is None


def test_a_users_pattern_is_known_inside_a_stream() -> None:
    """`overflow_patterns` of the upstream apply to error frames."""
    stream = sse({"error": {"message": "E77", "code": 500}})
    assert hold().feed(stream) is Release.ERROR
    assert is_overflow(hold(overflow_patterns=(re.compile("E77"),)).feed(stream))


PARTS = st.lists(
    st.sampled_from(
        [
            b": c\r\n\r\n",
            b"retry: 1\n\n",
            sse(ROLE),
            sse(USAGE),
            sse(delta(content="")),
            sse(delta(content="上下文")),
            sse(delta(content=SENTENCE)),
            sse(delta(finish="length")),
            sse(delta(finish="stop")),
            sse("[DONE]"),
            sse({"error": {"message": TEXT}}).replace(b"\n", b"\r\n"),
            sse({"error": {"message": "no"}}).replace(b"\n", b"\r"),
            b"data: {",
        ],
    ),
    max_size=6,
)


@given(PARTS, st.lists(st.integers(0, 900), max_size=10))
def test_the_decision_does_not_depend_on_the_cuts(parts: list[bytes], cuts: list[int]) -> None:
    """Any split of the same bytes ends in the same decision."""
    stream = b"".join(parts)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    whole, cut = hold(window=1000), hold(window=1000)
    whole.feed(stream)
    for start, end in itertools.pairwise(edges):
        cut.feed(stream[start:end])
    assert cut.decision == whole.decision
    assert cut.end() == whole.end()
