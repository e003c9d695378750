"""Split, don't parse: where the top-level values of a JSON object lie, and the elements of an array.

The fast way lets msgspec find raw fragments and walks over them, so that every byte of the body is
accounted for (a key named twice would not be). Bodies that msgspec refuses though they are JSON (a
lone surrogate escape) go the slow way through the standard library. What neither can read is None,
and so is what is not UTF-8: msgspec does not look into the strings it passes over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

__all__ = ["crowded", "elements", "fields", "marks"]

Span = tuple[int, int]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*+")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_COMMA = re.compile(rb"[ \t\r\n]*,")
_OPEN = re.compile(rb"[ \t\r\n]*\{")
_CLOSE = re.compile(rb"[ \t\r\n]*\}[ \t\r\n]*")
_SPACE = re.compile(r"[ \t\r\n]*")
#: What each value of a JSON text but the first has before it or begins with, and each key behind it.
_VALUES, _KEYS = (b",", b"[", b"{"), (b":",)
#: A body that names more keys, all that is in it counted, is not read: it takes seconds.
_MOST_KEYS = 200_000
#: So many bytes are counted at once.
_SLICE = 1 << 18
_BACKSLASHES = re.compile(rb"\\*[^\\]?", re.DOTALL)


def _refused(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


#: Finds where a value ends; numbers are not turned into values, so that none is too long.
_STRICT = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refused)


def fields(body: bytes) -> dict[str, Span] | None:
    """Top-level keys of an object with the span of each value; None if it is none or names a key twice."""
    if not _is_text(body) or _more(body, _KEYS, _MOST_KEYS):
        return None
    try:
        values = _OBJECT.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _slow_fields(body)
    try:
        return _walk(body, values)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def crowded(body: bytes, most: int) -> bool:
    """Whether a JSON text has more values than that: told quickly, without reading them."""
    return _more(body, _VALUES, most)


def marks(body: bytes) -> int:
    """No fewer than the values of a JSON text: the marks in its strings are counted, too."""
    return sum(map(body.count, _VALUES))


def _more(body: bytes, wanted: Iterable[bytes], most: int) -> bool:
    """Whether some marks stand more often outside strings."""
    if sum(map(body.count, wanted)) <= most:
        return False
    found = at = 0
    inside = False
    while at < len(body) and found <= most:
        end = at + _SLICE
        if body[end - 1 : end] == b"\\" and (escape := _BACKSLASHES.match(body, end - 1)):
            end = escape.end()  # no escape is cut in two
        parts = body[at:end].replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        bare = b"".join(parts[1 if inside else 0 :: 2])
        found += sum(map(bare.count, wanted))
        inside ^= len(parts) % 2 == 0
        at = end
    return found > most


def _is_text(body: bytes) -> bool:
    """Whether the bytes are UTF-8, as JSON must be."""
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def elements(array: bytes) -> list[bytes] | None:
    """The raw elements of a JSON array, None if it is none."""
    try:
        return [bytes(raw) for raw in _ARRAY.decode(array)]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _slow_elements(array)


def _walk(body: bytes, values: dict[str, msgspec.Raw]) -> dict[str, Span] | None:
    start = _OPEN.match(body)
    if start is None:
        return None
    at, found = start.end(), {}
    for index, (key, raw) in enumerate(values.items()):
        if index:
            comma = _COMMA.match(body, at)
            if comma is None:
                return None
            at = comma.end()
        name = _KEY.match(body, at)
        if name is None or msgspec.json.decode(name[1]) != key:
            return None
        value = bytes(raw)
        at = name.end()
        if not body.startswith(value, at):
            return None
        found[key] = (at, at + len(value))
        at += len(value)
    return found if _CLOSE.fullmatch(body, at) else None


def _slow_fields(body: bytes) -> dict[str, Span] | None:
    try:
        text = body.decode()
        found: dict[str, Span] = {}
        for key, start, stop in _pairs(text):
            if key in found:
                return None
            found[key] = (start, stop)
    except (ValueError, RecursionError):
        return None
    return dict(zip(found, _in_bytes(text, found.values()), strict=True))


def _pairs(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (key, start, stop) of a top-level object; ValueError where it is not one."""
    at = _expect(text, _skip(text, 0), "{")
    if text.startswith("}", _skip(text, at)):
        _expect_end(text, _skip(text, at) + 1)
        return
    while True:
        at = _skip(text, at)
        _expect(text, at, '"')
        key, at = _STRICT.raw_decode(text, at)
        start = _skip(text, _expect(text, _skip(text, at), ":"))
        _, stop = _STRICT.raw_decode(text, start)
        yield key, start, stop
        at = _skip(text, stop)
        if text.startswith("}", at):
            _expect_end(text, at + 1)
            return
        at = _expect(text, at, ",")


def _slow_elements(array: bytes) -> list[bytes] | None:
    try:
        text = array.decode()
        at = _expect(text, _skip(text, 0), "[")
        found: list[bytes] = []
        if text.startswith("]", _skip(text, at)):
            return found
        while True:
            start = _skip(text, at)
            _, stop = _STRICT.raw_decode(text, start)
            found.append(text[start:stop].encode())
            at = _skip(text, stop)
            if text.startswith("]", at):
                _expect_end(text, at + 1)
                return found
            at = _expect(text, at, ",")
    except (ValueError, RecursionError):
        return None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, token: str) -> int:
    if not text.startswith(token, at):
        raise ValueError(f"expected {token}")
    return at + 1


def _expect_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise ValueError("text after the end")


def _in_bytes(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of characters, in order, as spans of bytes."""
    at = done = 0
    for start, stop in spans:
        first = done + len(text[at:start].encode())
        at, done = stop, first + len(text[start:stop].encode())
        yield first, done
