"""What one frame of a held stream means: content, an end, an error, or nothing yet; one row for each dialect.

A dialect is its quiet events, and a function from one frame's value to a `Reading`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from proxy.core.overflow import means_overflow
from proxy.core.overflow_frame import has_error_marker, may_be_error
from proxy.core.skim import skim

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.sse import Frame

__all__ = ["DIALECTS", "Dialect", "Reading", "Signal", "reading_of"]


class Signal(Enum):
    """What one frame means for the hold."""

    QUIET = "quiet"
    CONTENT = "content"
    FINISH = "finish"
    CUT_SHORT = "cut-short"  # finish `length` with no output so far: its usage decides
    OVERFLOW = "overflow"  # a finish reason that only an overflow has
    ERROR = "error"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a dialect's reader found in one frame; `text` is a content delta that is plain text.

    `doubtful`: nothing marks it as an error, and it may be one.
    """

    signal: Signal
    text: str = ""
    usage: dict[str, Any] | None = None
    doubtful: bool = False


_QUIET = Reading(signal=Signal.QUIET)
_UNKNOWN = Reading(signal=Signal.UNKNOWN)
_FINISH = Reading(signal=Signal.FINISH)
_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one wire format tells: events that never commit, and what any other frame means by its name."""

    quiet: frozenset[str]
    read: Callable[[str, dict[str, Any]], Reading]


def reading_of(frame: Frame, dialect: Dialect) -> Reading:
    """Say what one frame means for the hold."""
    data = frame.data.strip()
    if data == "[DONE]":
        return Reading(signal=Signal.DONE)
    if frame.event in dialect.quiet or data in ("", *_PINGS):
        return _QUIET  # not parsed: `response.created` may echo megabytes of request
    value = _load(data)
    if has_error_marker(value, frame.event):
        return Reading(signal=Signal.ERROR)
    if value is None:
        return _UNKNOWN
    named = value.get("type")
    name = named if isinstance(named, str) else frame.event
    reading = _QUIET if name in dialect.quiet else dialect.read(name, value)
    return replace(reading, doubtful=True) if may_be_error(value, frame.event) else reading


def _load(data: str) -> dict[str, Any] | None:
    value = skim(data)
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else None


def _usage(*places: object) -> dict[str, Any] | None:
    """Return the first usage among some objects that may hold one."""
    found = (place.get("usage") for place in places if isinstance(place, dict))
    return next((usage for usage in found if isinstance(usage, dict)), None)


def _of_reason(reason: object, cut_short: str, usage: dict[str, Any] | None) -> Reading:
    if means_overflow(reason):
        return Reading(signal=Signal.OVERFLOW, usage=usage)
    if reason == cut_short:
        return Reading(signal=Signal.CUT_SHORT, usage=usage)
    return Reading(signal=Signal.FINISH if reason else Signal.QUIET, usage=usage)


_BARE_DELTA = frozenset({"role", "name", "index", "object", "type", "provider_specific_fields", "tool_call_id"})
#: Choices of one chunk that are read: who asks for as many gets each in a chunk of its own.
_MOST_CHOICES = 128
_RANK = (Signal.CONTENT, Signal.UNKNOWN, Signal.OVERFLOW, Signal.FINISH, Signal.CUT_SHORT, Signal.QUIET)


def _read_chat(_: str, value: dict[str, Any]) -> Reading:
    choices = value.get("choices")
    usage = _usage(value)
    if not choices:  # a usage chunk, or Azure's prompt filter results
        return Reading(signal=Signal.QUIET, usage=usage) if "choices" in value or usage else _UNKNOWN
    if not isinstance(choices, list):
        return _UNKNOWN
    readings = [_read_choice(choice, usage) for choice in choices[:_MOST_CHOICES]]
    return min(readings, key=lambda reading: _RANK.index(reading.signal))


def _read_choice(choice: object, usage: dict[str, Any] | None) -> Reading:
    if not isinstance(choice, dict):
        return _UNKNOWN
    delta = choice.get("delta") or choice.get("message") or {}
    if not isinstance(delta, dict):
        return _UNKNOWN
    filled = {key for key, part in delta.items() if key not in _BARE_DELTA and part}
    if filled or choice.get("text"):
        text = delta.get("content") if filled == {"content"} else None
        return Reading(signal=Signal.CONTENT, text=text if isinstance(text, str) else "")
    return _of_reason(choice.get("finish_reason"), "length", usage)


def _read_responses(name: str, value: dict[str, Any]) -> Reading:
    if name.endswith(".delta"):
        delta = value.get("delta")
        text = delta if isinstance(delta, str) and name == "response.output_text.delta" else ""
        return Reading(signal=Signal.CONTENT, text=text) if delta else _QUIET
    response = value.get("response")
    if name == "response.incomplete" and isinstance(response, dict):
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else "unknown"
        return _of_reason(reason or "unknown", "max_output_tokens", _usage(response))
    return _FINISH if name == "response.completed" else _UNKNOWN


def _read_messages(name: str, value: dict[str, Any]) -> Reading:
    delta = value.get("delta")
    if name == "message_start":
        return Reading(signal=Signal.QUIET, usage=_usage(value.get("message")))
    if name == "content_block_delta" and isinstance(delta, dict):
        text = delta.get("text")
        filled = any(part for key, part in delta.items() if key != "type")
        return Reading(signal=Signal.CONTENT, text=text if isinstance(text, str) else "") if filled else _QUIET
    if name == "message_delta" and isinstance(delta, dict):
        return _of_reason(delta.get("stop_reason"), "max_tokens", _usage(value))
    return _FINISH if name == "message_stop" else _UNKNOWN


DIALECTS = {
    "chat": Dialect(quiet=_PINGS, read=_read_chat),
    "responses": Dialect(
        quiet=_PINGS
        | {
            "response.created",
            "response.queued",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_summary_part.added",
        },
        read=_read_responses,
    ),
    "messages": Dialect(quiet=_PINGS | {"content_block_start", "content_block_stop"}, read=_read_messages),
}
