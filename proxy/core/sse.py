"""Server-sent events: bytes in, frames with data out. What is relayed are the bytes as they came, never these.

Frames do not depend on how the bytes were cut: CRLF, LF and CR end a line, and a CR at the very end
waits for the byte that tells whether it was half of a CRLF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Frame", "FrameParser", "text_of"]

_END = rb"(?:\r\n|\n|\r(?=[^\n]))"
_BLANK_LINE = re.compile(_END + _END)
#: Frames of nothing, or of nothing but comments: an upstream that is busy sends them for minutes.
_NOTHING = re.compile(rb"(?:(?::[^\r\n]*+" + _END + rb")*+" + _END + rb")++")
_OVERLAP = 3  # a blank line is at most four bytes long
#: Lines of one frame that are read: JSON that is spread over more is no event of anybody's.
_MOST_LINES = 4_096
#: A frame that is not UTF-8 is read so far: to replace what is none takes its time for each byte.
_MOST_REPLACED = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event that has data; `event` is empty where none is named.

    llama.cpp's legacy field `error:` reads as event `error`.
    """

    data: str
    event: str = ""


class FrameParser:
    """Cuts a stream into frames, incrementally. Frames without data say nothing and are left out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._begun = False

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that are now complete, none where more is needed."""
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        scan = max(0, self._scanned - _OVERLAP)
        # What was scanned before is not scanned again: a comment may be megabytes long.
        while end := (start == scan and _NOTHING.match(self._buffer, start)) or _BLANK_LINE.search(self._buffer, scan):
            if end.re is _BLANK_LINE:
                frames += self._frame(self._buffer[start : end.end()])
            start = scan = end.end()
            self._begun = True
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        return frames

    def end(self) -> list[Frame]:
        """Return what is left as a last frame: some upstreams close without the final blank line."""
        if not self._buffer:
            return []
        found = self._frame(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        return found

    def _frame(self, raw: bytearray) -> list[Frame]:
        text = text_of(raw)
        return _read(text if self._begun else text.removeprefix("\ufeff"))


def text_of(raw: bytes | bytearray) -> str:
    """The text of some bytes, with marks for those that are none; then only its beginning where it is long."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw[:_MOST_REPLACED].decode("utf-8", "replace")


def _read(text: str) -> list[Frame]:
    data: list[str] = []
    error: list[str] = []
    event = ""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n", _MOST_LINES)[:_MOST_LINES]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "error" and value:
            error.append(value)
    if error and not data:
        data, event = error, event or "error"
    return [Frame(event=event, data="\n".join(data))] if data else []
