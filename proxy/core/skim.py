"""A large JSON text, read for what it says of itself: that it is an error, how it ended, what it used.

Parsing megabytes of values takes seconds. Where a text is small it is parsed whole; of a large one only
the fields that decide are, and what is large among them is `MUCH`. The rest is passed over in one step.
"""

from __future__ import annotations

import json

import msgspec

__all__ = ["MUCH", "SMALL", "legible", "skim"]

#: Texts up to this many characters are parsed whole, and so much of a large one in all: some milliseconds.
SMALL = 1 << 18
#: Stands for a value that is there, and too large to be read.
MUCH = "…"

_Raw = msgspec.Raw | msgspec.UnsetType
#: What decides, the errors first: they are read before the budget is spent. `delta` and `message` may hold the reply.
_FIELDS = (
    *("error", "error_message", "type", "code", "status", "status_code", "base_resp", "param", "msg", "loc"),
    *("errors", "detail", "err", "exception", "fault", "error_code", "error_type", "error_msg", "success", "ok"),
    *("finish_reason", "stop_reason", "reason", "incomplete_details", "usage", "object", "response", "id", "text"),
    *("choices", "output", "content", "candidates", "generations", "delta", "message", "prompt_filter_results"),
)
#: Large objects and lists of one that are looked into, and how deep.
_ENTERED = frozenset({"error", "errors", "detail", "response", "choices"})
_DEPTH = 4
#: So much of the beginning and of the end of a large text that is no JSON is read.
_EDGE = 1 << 14

_OBJECT = msgspec.json.Decoder(msgspec.defstruct("Skimmed", [(name, _Raw, msgspec.UNSET) for name in _FIELDS]))
_ONE = msgspec.json.Decoder(tuple[msgspec.Raw])


def skim(text: str) -> object:
    """The JSON value of a text, None where it is none or cannot be read; of a large one only what decides."""
    if len(text) <= SMALL:
        return _parsed(text)
    return _Skim().value(text.encode("utf-8", "replace").strip(), 0)


def legible(text: str) -> object:
    """What of a text is to be classified: all of it, or of a large one what decides, or its beginning and its end."""
    if len(text) <= SMALL:
        return text
    value = skim(text)
    return f"{text[:_EDGE]} … {text[-_EDGE:]}" if value is None else value


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class _Skim:
    """One reading, with what is left of its budget."""

    def __init__(self) -> None:
        self._left = SMALL

    def value(self, raw: bytes, depth: int) -> object:
        """A value that may be entered."""
        try:
            if raw.startswith(b"{"):
                return self._object(raw, depth)
            if raw.startswith(b"["):
                return [self.value(bytes(_ONE.decode(raw)[0]), depth)]
        except msgspec.ValidationError:
            return [MUCH]  # more than one
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        return _parsed(raw)

    def _object(self, raw: bytes, depth: int) -> dict[str, object]:
        found = _OBJECT.decode(raw)
        values = ((name, getattr(found, name)) for name in _FIELDS)
        return {name: self._field(name, bytes(raw), depth + 1) for name, raw in values if raw is not msgspec.UNSET}

    def _field(self, name: str, raw: bytes, depth: int) -> object:
        if len(raw) <= self._left:
            self._left -= len(raw)
            return _parsed(raw)
        if raw.startswith(b'"'):
            return _parsed(raw)  # one text, however long, is read at once
        return self.value(raw, depth) if name in _ENTERED and depth < _DEPTH else MUCH
