"""Server-sent events: bytes in, frames out, raw bytes kept.

Frames do not depend on how the bytes were cut: CRLF, LF and CR end a line, and a CR at the very end
waits for the byte that tells whether it was half of a CRLF. `b"".join(frame.raw)` is what came in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Frame", "FrameParser"]

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n]))(?:\r\n|\n|\r(?=[^\n]))")
_LINE_END = re.compile(r"\r\n|\n|\r")
_OVERLAP = 3  # a blank line is at most four bytes long


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event with the bytes it came in, its end included.

    `data` is None where the frame has no data field (comments, a bare `event:` or `retry:`).
    `event` is empty where none is named. llama.cpp's legacy field `error:` reads as event `error`.
    """

    raw: bytes
    event: str = ""
    data: str | None = None
    retry: int | None = None


class FrameParser:
    """Cuts a stream into frames, incrementally."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._begun = False

    @property
    def rest(self) -> bytes:
        """The bytes that do not make a frame yet."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that are now complete, none where more is needed."""
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        scan = max(0, self._scanned - _OVERLAP)
        while end := _BLANK_LINE.search(self._buffer, scan):
            frames.append(self._frame(bytes(self._buffer[start : end.end()])))
            start = scan = end.end()
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        return frames

    def end(self) -> list[Frame]:
        """Return what is left as a last frame: some upstreams close without the final blank line."""
        if not self._buffer:
            return []
        raw = bytes(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        return [self._frame(raw)]

    def _frame(self, raw: bytes) -> Frame:
        text = raw.decode("utf-8", "replace")
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        return _read(raw, text)


def _read(raw: bytes, text: str) -> Frame:
    data: list[str] = []
    error: list[str] = []
    event, retry = "", None
    for line in _LINE_END.split(text):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "retry" and value.isascii() and value.isdecimal():
            retry = int(value[:9])
        elif name == "error" and value:
            error.append(value)
    if error and not data:
        data, event = error, event or "error"
    return Frame(raw=raw, event=event, data="\n".join(data) if data else None, retry=retry)
