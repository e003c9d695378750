"""What a value from inside a 200 says of itself: that it is an error, or how the reply ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proxy.core.counts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ERROR_TYPES", "fills_window", "finish_reasons", "has_error_marker", "may_be_error", "sent"]

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


_BARE_KEYS = ("error", "errors", "err", "exception", "fault", "detail", "errormessage", "error_msg")
_STATUS_KEYS = ("code", "error_code", "error_type", "errortype", "statuscode", "status_code", "__type")
_MESSAGE_KEYS = ("message", "msg")
_MOST_KEYS = 64


def _lowered(value: dict[str, object]) -> dict[str, object]:
    return {str(key).lower(): child for key, child in list(value.items())[:_MOST_KEYS]}


def _is_bare_error(value: dict[str, object]) -> bool:
    """Whether a value without any content has the shape of one of the many error envelopes."""
    lower = _lowered(value)
    if any(lower.get(key) for key in _BARE_KEYS) or False in (lower.get("success"), lower.get("ok")):
        return True
    named = any(lower.get(key, 0) not in (0, "0", 200, "200", None) for key in _STATUS_KEYS)
    return named and any(isinstance(lower.get(key), str) for key in _MESSAGE_KEYS)


_FAILED = re.compile("error|exception|fail|fault|invalid")


def may_be_error(value: object, event: str | None = None) -> bool:
    """Whether a value without an error marker may be an error all the same: no content, no other name, and a message.

    Servers wrap errors in envelopes of their own (`{"Response": {"Error": …}}`, `{"header": {"code": …}}`), or send no
    more than a message. Whoever asks must believe such a value less than one that is marked.
    """
    if not isinstance(value, dict):
        return False
    lower = _lowered(value)
    names = [name for name in (lower.get("type"), event) if isinstance(name, str) and name not in ("", "message")]
    if any(not _FAILED.search(name.lower()) for name in names):
        return False
    inner = [_lowered(child) for child in lower.values() if isinstance(child, dict)]
    if any(place.get(key) for place in (lower, *inner) for key in _CONTENT_KEYS):
        return False
    if any(isinstance(lower.get(key), str) for key in _MESSAGE_KEYS):
        return True
    return any(_is_bare_error(place) for place in inner)


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
    return sum(count_of(usage.get(key)) or 0 for key in keys)
