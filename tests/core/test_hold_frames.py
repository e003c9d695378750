"""What one frame means; whole streams are `test_hold`'s."""

from __future__ import annotations

import json

import pytest

from proxy.core import hold_frames
from proxy.core.hold_frames import DIALECTS, Reading, Signal, reading_of
from proxy.core.skim import SMALL
from proxy.core.sse import FrameParser


def read(dialect: str, data: str, event: str = "") -> Reading:
    """Read one frame as it comes off the wire."""
    head = f"event: {event}\n" if event else ""
    (frame,) = FrameParser().feed(f"{head}data: {data}\n\n".encode())
    return reading_of(frame, DIALECTS[dialect])


def test_text_and_usage_are_handed_on() -> None:
    """The text of a plain content delta may be an overflow sentence; a usage decides an empty `length`."""
    said = {"choices": [{"delta": {"content": "Hi"}}], "usage": {"prompt_tokens": 3}}
    assert read("chat", json.dumps(said)) == Reading(signal=Signal.CONTENT, text="Hi")
    asked = {"choices": [{"delta": {"content": "Hi", "tool_calls": [{"id": "t"}]}}]}
    assert read("chat", json.dumps(asked)) == Reading(signal=Signal.CONTENT)
    ended = {"choices": [{"delta": {}, "finish_reason": "length"}], "usage": {"prompt_tokens": 3}}
    assert read("chat", json.dumps(ended)) == Reading(signal=Signal.CUT_SHORT, usage={"prompt_tokens": 3})


def test_of_several_choices_the_one_that_says_most_decides() -> None:
    """Content beats an end, an end beats silence."""
    quiet, ends = {"delta": {"role": "assistant"}}, {"delta": {}, "finish_reason": "stop"}
    says = {"delta": {"content": "Hi"}}
    assert read("chat", json.dumps({"choices": [quiet, ends]})).signal is Signal.FINISH
    assert read("chat", json.dumps({"choices": [ends, says]})).signal is Signal.CONTENT


def test_of_very_many_choices_the_first_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of empty ones takes no longer than what anybody asks for."""
    looked: list[object] = []
    inner = hold_frames._read_choice
    monkeypatch.setattr(hold_frames, "_read_choice", lambda *given: looked.append(given) or inner(*given))
    assert read("chat", json.dumps({"choices": [{}] * 10_000})).signal is Signal.QUIET
    assert len(looked) == 128


@pytest.mark.parametrize(
    ("dialect", "value", "signal"),
    [
        ("chat", {"choices": [{}] * SMALL}, Signal.UNKNOWN),
        ("chat", {"choices": [{"index": 0, "delta": {"content": "x" * SMALL}}]}, Signal.UNKNOWN),
        ("chat", {"choices": [], "usage": {}, "echo": "x" * SMALL}, Signal.QUIET),
        ("chat", {"error": {"message": "no"}, "echo": "x" * SMALL}, Signal.ERROR),
        ("responses", {"type": "response.created", "response": {"input": "x" * SMALL}}, Signal.QUIET),
        ("responses", {"type": "response.completed", "response": {"output": [{}] * SMALL}}, Signal.FINISH),
        ("responses", {"type": "response.failed", "response": {"output": [{}] * SMALL}}, Signal.ERROR),
        ("responses", {"type": "response.output_text.delta", "delta": "x" * SMALL}, Signal.CONTENT),
        ("messages", {"type": "content_block_delta", "delta": {"text": "x" * SMALL}}, Signal.UNKNOWN),
        ("messages", {"type": "message_start", "message": {"echo": "x" * SMALL}}, Signal.QUIET),
        ("messages", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "x": "x" * SMALL}, Signal.FINISH),
    ],
)
def test_a_large_frame_is_told_by_what_decides(dialect: str, value: object, signal: Signal) -> None:
    """An error is one, content is released, what opens a reply is still quiet; the rest is not parsed."""
    assert read(dialect, json.dumps(value)).signal is signal


def test_what_echoes_the_request_is_not_parsed() -> None:
    """`response.created` may hold megabytes: its name is enough, even where its data is broken."""
    assert read("responses", "{broken", event="response.created").signal is Signal.QUIET
    assert read("responses", "{broken", event="response.other").signal is Signal.UNKNOWN


def test_a_message_that_nothing_marks_is_doubtful() -> None:
    """Whoever holds the stream asks whether it is an overflow; pings and content are not asked about."""
    assert read("chat", '{"message": "too long"}') == Reading(signal=Signal.UNKNOWN, doubtful=True)
    assert read("chat", '{"choices": null, "message": "too long"}') == Reading(signal=Signal.QUIET, doubtful=True)
    assert not read("chat", '{"message": "x", "choices": [{"delta": {"content": "Hi"}}]}').doubtful
    assert not read("chat", '{"type": "ping", "message": "still here"}').doubtful


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_knows_pings_errors_and_the_end(dialect: str) -> None:
    """What is the same on every wire is told before the dialect is asked."""
    assert read(dialect, "ping").signal is Signal.QUIET
    assert read(dialect, '{"error": {"message": "no"}}').signal is Signal.ERROR
    assert read(dialect, "[DONE]").signal is Signal.DONE
    assert read(dialect, '{"type": "surprise"}').signal is Signal.UNKNOWN
