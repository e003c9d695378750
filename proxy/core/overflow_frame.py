"""What a value from inside a 200 says of itself: that it is an error, or how the reply ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ERROR_TYPES", "fills_window", "finish_reasons", "has_error_marker", "sent"]

_FULL = 0.99  # of the window: an empty `length` above it is an overflow
_CONTENT_KEYS = frozenset({"choices", "output", "content", "candidates", "delta", "generations"})
ERROR_TYPES = frozenset({"error", "response.failed", "response.error"})


def has_error_marker(value: object, event: str | None = None) -> bool:
    """Whether a JSON value from inside a 200 (one frame, or the whole body) says that it is an error."""
    if isinstance(value, list):
        return bool(value) and has_error_marker(value[0])
    if event and (event in ERROR_TYPES or event.lower().endswith("exception")):
        return True
    if not isinstance(value, dict):
        return False
    base = value.get("base_resp")
    return bool(
        value.get("error")
        or value.get("error_message")
        or (isinstance(value.get("type"), str) and value["type"] in ERROR_TYPES)
        or (value.get("object") == "error" and "choices" not in value)
        or (isinstance(base, dict) and base.get("status_code") not in (0, None, "0"))
        or (not any(value.get(key) for key in _CONTENT_KEYS) and _is_bare_error(value)),
    )


_BARE_KEYS = ("errors", "err", "exception", "fault", "detail", "errormessage", "error_msg")
_STATUS_KEYS = ("code", "error_code", "statuscode", "status_code", "__type")


def _is_bare_error(value: dict[str, object]) -> bool:
    """Whether a value without any content has the shape of one of the many error envelopes."""
    lower = {str(key).lower(): child for key, child in list(value.items())[:64]}
    if any(lower.get(key) for key in _BARE_KEYS) or lower.get("success") is False:
        return True
    named = any(lower.get(key, 0) not in (0, "0", 200) for key in _STATUS_KEYS)
    return named and any(isinstance(lower.get(key), str) for key in ("message", "msg"))


_REASON_KEYS = ("finish_reason", "stop_reason", "reason", "stopReason", "finishReason")  # the last two: Bedrock, Gemini


def finish_reasons(value: object) -> Iterator[str]:
    """Yield the reasons a reply gives for its end, in any dialect."""
    if not isinstance(value, dict):
        return
    choices = value.get("choices")
    places = [
        value,
        value.get("delta"),
        value.get("incomplete_details"),
        *(choices[:8] if isinstance(choices, list) else ()),
    ]
    response = value.get("response")
    if isinstance(response, dict):
        places.append(response.get("incomplete_details"))
    for place in places:
        if isinstance(place, dict):
            yield from (reason for key in _REASON_KEYS if isinstance(reason := place.get(key), str))


def fills_window(usage: object, window: int | None) -> bool:
    """Whether a reply's usage says that nothing was generated because the prompt filled the window."""
    if not isinstance(usage, dict) or not window:
        return False
    output = usage.get("completion_tokens", usage.get("output_tokens"))
    return output == 0 and sent(usage) >= _FULL * window


def sent(usage: object) -> int:
    """Count the prompt tokens of a usage, cached ones included."""
    if not isinstance(usage, dict):
        return 0
    keys = ("prompt_tokens", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(count for key in keys if isinstance(count := usage.get(key), int) and not isinstance(count, bool))
