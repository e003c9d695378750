"""Is the held beginning of a reply committing, an overflow, or neither yet? (SPEC 9.1).

A small state machine over frames: `feed` says None (keep holding), a `Release` (release what is held,
and why) or a `Verdict` (an overflow; nothing was released). A dialect is one row of `_DIALECTS`: its
quiet events, and a function from one frame's value to a `Signal`. Once it has decided it answers the
same for ever and reads nothing more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from proxy.core.overflow import Kind, Verdict, classify, is_overflow_sentence, means_overflow
from proxy.core.overflow_frame import fills_window, has_error_marker
from proxy.core.sse import FrameParser

if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Pattern

    from proxy.core.sse import Frame

__all__ = ["Hold", "Release"]


class Release(Enum):
    """Why the held bytes may go to the client."""

    CONTENT = "content"  # the first content, reasoning, refusal, audio or tool-call delta
    FINISH = "finish"  # a normal end
    DONE = "done"  # `[DONE]`
    UNKNOWN_EVENT = "unknown-event"  # better released than misread
    ERROR = "error"  # an error that is no overflow; `Hold.verdict` says which
    ENDED = "ended"  # the reply ended without any of these


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
    """What a dialect's reader found in one frame; `text` is a content delta that is plain text."""

    signal: Signal
    text: str = ""
    usage: dict[str, Any] | None = None


_COMMITS = {
    Signal.CONTENT: Release.CONTENT,
    Signal.FINISH: Release.FINISH,
    Signal.DONE: Release.DONE,
    Signal.UNKNOWN: Release.UNKNOWN_EVENT,
}


class Hold:
    """The decision about one upstream reply with a status below 400.

    `dialect` is `chat`, `responses` or `messages`; `window` in tokens, where it is known, lets an
    empty `length` finish with a full window count as an overflow. `verdict` is what the last error
    was, also where it is no overflow.
    """

    def __init__(
        self,
        *,
        sse: bool,
        dialect: str,
        overflow_patterns: tuple[Pattern[str], ...] = (),
        window: int | None = None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.decision: Verdict | Release | None = None
        self._sse = sse
        self._dialect = _DIALECTS[dialect]
        self._patterns = overflow_patterns
        self._window = window
        self._frames = FrameParser()
        self._body = bytearray()
        self._seen_data = False
        self._suspect: Verdict | None = None  # the first delta was, as a whole, an overflow sentence
        self._cut_short = False
        self._usage: dict[str, Any] = {}

    def feed(self, data: bytes) -> Verdict | Release | None:
        """Take decoded bytes of the reply; None means: keep holding."""
        if self.decision is not None:
            return self.decision
        if not self._sse:
            self._body += data
            return None
        for frame in self._frames.feed(data):
            if decision := self._frame(frame):
                return self._decide(decision)
        return None

    def end(self) -> Verdict | Release:
        """Decide now: the reply ended while it was held."""
        if self.decision is not None:
            return self.decision
        if not self._sse:
            return self._decide(self._whole(bytes(self._body)))
        rest = self._frames.rest
        if not self._seen_data and rest.lstrip()[:1] in (b"{", b"["):
            return self._decide(self._whole(rest))  # JSON under the content type of a stream
        for frame in self._frames.end():
            if decision := self._frame(frame):
                return self._decide(decision)
        return self._decide(self._suspect or (self._of_usage() if self._cut_short else Release.ENDED))

    def _decide(self, decision: Verdict | Release) -> Verdict | Release:
        self.decision = decision
        if isinstance(decision, Verdict):
            self.verdict = decision
        self._body.clear()
        return decision

    def _whole(self, body: bytes) -> Verdict | Release:
        verdict = classify(status=200, body=body, in_band=True, patterns=self._patterns, window=self._window)
        if verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED:
            return verdict
        if verdict.rule in ("finish", "no-error", "empty"):
            return Release.FINISH
        self.verdict = verdict
        return Release.ERROR

    def _frame(self, frame: Frame) -> Verdict | Release | None:
        if frame.data is None:
            return None
        self._seen_data = True
        reading = _read(frame, self._dialect)
        if reading.usage:
            self._usage |= reading.usage
        if reading.signal is Signal.ERROR:
            return self._error(frame)
        if reading.signal is Signal.OVERFLOW:
            return self._suspect or Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="finish:context")
        if self._cut_short:
            return self._after_cut(reading)
        if reading.signal is Signal.CUT_SHORT:
            return self._cut(reading)
        return self._ordinary(reading)

    def _ordinary(self, reading: Reading) -> Verdict | Release | None:
        if reading.signal is Signal.QUIET:
            return None
        if reading.signal is Signal.CONTENT and self._suspect is None and is_overflow_sentence(reading.text):
            self._suspect = classify(status=400, body=reading.text, patterns=self._patterns)
            return None  # an error, or the end, confirms it; more content refutes it
        if self._suspect is not None and reading.signal in (Signal.FINISH, Signal.DONE):
            return self._suspect
        return _COMMITS[reading.signal]

    def _error(self, frame: Frame) -> Verdict | Release:
        self.verdict = classify(
            status=200, body=frame.data, event=frame.event or None, in_band=True, patterns=self._patterns
        )
        return self.verdict if self.verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED else Release.ERROR

    def _cut(self, reading: Reading) -> Verdict | Release | None:
        if self._suspect is not None:
            return self._suspect
        if self._window is None:
            return Release.FINISH
        if reading.usage:
            return self._of_usage()
        self._cut_short = True
        return None

    def _after_cut(self, reading: Reading) -> Verdict | Release | None:
        if reading.usage or reading.signal in (Signal.DONE, Signal.FINISH):
            return self._of_usage()
        return None if reading.signal in (Signal.QUIET, Signal.CUT_SHORT) else _COMMITS[reading.signal]

    def _of_usage(self) -> Verdict | Release:
        if fills_window(self._usage, self._window):
            return Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="finish:length")
        return Release.FINISH


# --- dialects: one row each -----------------------------------------------------------------------

_QUIET = Reading(signal=Signal.QUIET)
_UNKNOWN = Reading(signal=Signal.UNKNOWN)
_FINISH = Reading(signal=Signal.FINISH)
_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one wire format tells: events that never commit, and what any other frame means by its name."""

    quiet: frozenset[str]
    read: Callable[[str, dict[str, Any]], Reading]


def _read(frame: Frame, dialect: Dialect) -> Reading:
    data = (frame.data or "").strip()
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
    return _QUIET if name in dialect.quiet else dialect.read(name, value)


def _load(data: str) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
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
_RANK = (Signal.CONTENT, Signal.UNKNOWN, Signal.OVERFLOW, Signal.FINISH, Signal.CUT_SHORT, Signal.QUIET)


def _read_chat(_: str, value: dict[str, Any]) -> Reading:
    choices = value.get("choices")
    usage = _usage(value)
    if not choices:  # a usage chunk, or Azure's prompt filter results
        return Reading(signal=Signal.QUIET, usage=usage) if "choices" in value or usage else _UNKNOWN
    if not isinstance(choices, list):
        return _UNKNOWN
    readings = [_read_choice(choice, usage) for choice in choices]
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


_DIALECTS = {
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
