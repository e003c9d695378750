from __future__ import annotations

import pytest

from proxy.core.overflow_frame import fills_window, finish_reasons, has_error_marker, may_be_error

TEXT = "prompt is too long: 210000 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("value", "event"),
    [
        ({"error": {"message": TEXT}}, None),
        ({"error": TEXT}, None),
        ([{"error": {"message": TEXT}}], None),
        ({"errors": [{"message": TEXT}], "success": False}, None),
        ({"type": "error", "message": TEXT}, None),
        ({"type": "response.failed", "response": {}}, None),
        ({"message": TEXT}, "error"),
        ({"message": TEXT}, "validationException"),
        ({"choices": None, "error_type": "x", "error_message": TEXT}, None),
        ({"object": "error", "message": TEXT}, None),
        ({"base_resp": {"status_code": 2013, "status_msg": TEXT}}, None),
        ({"code": "InvalidParameter", "message": TEXT}, None),
        ({"detail": TEXT}, None),
        ({"success": False, "msg": TEXT}, None),
        ({"ok": False, "reason": TEXT}, None),
        ({"choices": None, "error_type": "x", "message": TEXT}, None),
        ({"Error": {"Message": TEXT}}, None),
        ({"error": {"message": TEXT}, "choices": [{"delta": {"content": ""}}]}, None),
    ],
)
def test_errors_inside_a_200_are_marked(value: object, event: str | None) -> None:
    """Every envelope that servers are known to put into a stream or a 200."""
    assert has_error_marker(value, event)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "error",
        [],
        {},
        {"choices": [{"delta": {"content": TEXT}}]},
        {"choices": [], "usage": {}},
        {"type": "message_start", "message": {}},
        {"type": "response.created", "response": {"error": None}},
        {"error": None, "choices": []},
        {"base_resp": {"status_code": 0}},
        {"code": 0, "message": "Success", "choices": []},
        {"code": "200", "message": "Success"},
        {"error_type": None, "message": "Success"},
        {"object": "chat.completion", "choices": [{"message": {"content": TEXT}}]},
        {"type": "ping"},
    ],
)
def test_what_is_no_error_is_not_marked(value: object) -> None:
    """Content, pings, empty error fields, success codes."""
    assert not has_error_marker(value)


@pytest.mark.parametrize(
    ("value", "event", "may"),
    [
        ({"message": TEXT}, None, True),
        ({"Message": TEXT}, "message", True),
        ({"message": TEXT, "type": "invalid_request"}, None, True),
        ({"Response": {"Error": {"Code": "x", "Message": TEXT}}}, None, True),
        ({"header": {"code": 10907, "message": TEXT}}, None, True),
        ({"header": {"code": 0, "message": "Success"}, "payload": {"choices": {"text": [TEXT]}}}, None, False),
        ({"message": TEXT, "choices": [{"delta": {}}]}, None, False),
        ({"message": TEXT, "type": "status"}, None, False),
        ({"message": TEXT}, "notice", False),
        ({"message": {"content": TEXT}}, None, False),
        ({"status": "queued"}, None, False),
        ({}, None, False),
        ([], None, False),
        (TEXT, None, False),
    ],
)
def test_what_nothing_marks_may_be_an_error(value: object, event: str | None, may: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """No content, no name of something else, and a message: bare, or in an envelope nobody knows."""
    assert may_be_error(value, event) is may


def test_finish_reasons_of_every_dialect_are_seen() -> None:
    """Where chat, messages and responses say how they ended."""
    assert list(finish_reasons({"choices": [{"finish_reason": "length"}, {"finish_reason": None}]})) == ["length"]
    assert list(finish_reasons({"delta": {"stop_reason": "max_tokens"}})) == ["max_tokens"]
    assert list(finish_reasons({"response": {"incomplete_details": {"reason": "max_output_tokens"}}})) == [
        "max_output_tokens"
    ]
    assert list(finish_reasons({"choices": 3, "delta": [], "response": "x"})) == []


@pytest.mark.parametrize(
    ("usage", "window", "full"),
    [
        ({"prompt_tokens": 990, "completion_tokens": 0}, 1000, True),
        ({"prompt_tokens": 989, "completion_tokens": 0}, 1000, False),
        ({"prompt_tokens": 990, "completion_tokens": 1}, 1000, False),
        ({"input_tokens": 10, "cache_read_input_tokens": 985, "output_tokens": 0}, 1000, True),
        ({"prompt_tokens": 990}, 1000, False),
        ({"prompt_tokens": 990, "completion_tokens": 0}, None, False),
        ({"prompt_tokens": "990", "completion_tokens": 0}, 1000, False),
        (None, 1000, False),
    ],
)
def test_a_full_window_without_output(usage: object, window: int | None, full: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """At least 99 % of the window, and not a token of output."""
    assert fills_window(usage, window) is full
