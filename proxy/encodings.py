"""Content codings: decode a copy for reading, bounded, and never touch what is forwarded.

Decoding is incremental and gives up as soon as the output passes its bound, so a bomb costs no more
memory than the bound.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import brotli  # type: ignore[import-untyped]  # it ships no types
import zstandard

from proxy.message import Headers, values

__all__ = ["Decoder", "TooLargeError", "UndecodableError", "codings", "decode", "decoder", "ratio_bound"]

#: A message may grow by this factor when decoded (or to `RATIO_FLOOR` bytes, whichever is more).
RATIO = 200
RATIO_FLOOR = 1 << 20
#: zstd has no bound on the output of one call: a block of 4 bytes may say 128 KiB.
ZSTD_STEP = 64
ZLIB_HEADER = 2
#: Encoded bytes that are decoded in one step: they may become a thousand times as many.
PART = 1 << 12
ZSTD_WINDOW = 1 << 23
#: Codings of one message that are undone. Each needs a window of its own, zstd up to 8 MiB: a long list is a bomb.
MOST_CODINGS = 4
ALIASES = {"x-gzip": "gzip"}


class UndecodableError(Exception):
    """The bytes are not what their coding says."""


class TooLargeError(Exception):
    """The decoded bytes pass the bound."""


class Step(Protocol):
    """One coding: raw bytes in, at most about `room` bytes out, `more` while output is pending."""

    def __call__(self, data: bytes, room: int) -> bytes:
        """Decode what is there; an output longer than `room` means that the bound is passed."""
        ...


class _Zlib:
    """gzip (several members too) and deflate (with or without the zlib header)."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inner = zlib.decompressobj(wbits)
        self._begin = b""

    def __call__(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        while data:
            if self._inner.eof:
                self._inner = zlib.decompressobj(self._wbits)
            out += self._decompress(data, room + 1 - len(out))
            if len(out) > room:
                return bytes(out)
            data = self._inner.unused_data or self._inner.unconsumed_tail
        return bytes(out)

    def _decompress(self, data: bytes, room: int) -> bytes:
        # "deflate" without its zlib header is found out at the second byte.
        replay = self._begin + data if len(self._begin) < ZLIB_HEADER else b""
        self._begin = replay[:ZLIB_HEADER] if replay else self._begin
        try:
            return self._inner.decompress(data, max(room, 1))
        except zlib.error:
            if not replay or self._wbits != zlib.MAX_WBITS:
                raise
        self._wbits = -zlib.MAX_WBITS
        self._inner = zlib.decompressobj(self._wbits)
        return self._inner.decompress(replay, max(room, 1))


class _Brotli:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def __call__(self, data: bytes, room: int) -> bytes:
        out = bytearray(self._inner.process(data, output_buffer_limit=room + 1))
        while len(out) <= room and not self._inner.can_accept_more_data():
            out += self._inner.process(b"", output_buffer_limit=room + 1 - len(out))
        return bytes(out)


class _Zstd:
    def __init__(self) -> None:
        self._make = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj
        self._inner = self._make()

    def __call__(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        for at in range(0, len(data), ZSTD_STEP):
            piece = data[at : at + ZSTD_STEP]
            while piece:
                if self._inner.eof:
                    self._inner = self._make()
                out += self._inner.decompress(piece)
                if len(out) > room:
                    return bytes(out)
                piece = self._inner.unused_data if self._inner.eof else b""
        return bytes(out)


STEPS: dict[str, Callable[[], Step]] = {
    "gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda: _Zlib(zlib.MAX_WBITS),
    "br": _Brotli,
    "zstd": _Zstd,
}


class Decoder:
    """An incremental decoder through all codings of a message, bounded to `limit` bytes in all.

    What came out so far is bounded by its ratio to what went in, too: one chunk of a bomb does not take it all.
    `feed` raises `UndecodableError` for bytes that break a coding and `TooLargeError` beyond a bound.
    """

    def __init__(self, steps: Iterable[Step], limit: int) -> None:
        self._steps = tuple(steps)
        self._limit = limit
        self._fed = self._given = 0

    def parts(self, data: bytes) -> Iterator[bytes]:
        """Cut the next bytes, still encoded, so that others may be served between two `feed`s."""
        size = PART if self._steps else max(1, len(data))
        return (data[at : at + size] for at in range(0, len(data), size))

    def feed(self, data: bytes) -> bytes:
        """Decode the next bytes; what comes out may be empty."""
        if not self._steps:
            return data
        self._fed += len(data)
        room = ratio_bound(self._fed, self._limit) - self._given
        for step in self._steps:
            try:
                data = step(data, room)
            except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as error:
                raise UndecodableError(str(error)) from error
            if len(data) > room:
                raise TooLargeError
        self._given += len(data)
        return data


def codings(headers: Headers) -> tuple[str, ...]:
    """Name the content codings of a message in the order they were applied, `identity` left out."""
    names = (part.strip().lower() for value in values(headers, "content-encoding") for part in value.split(","))
    return tuple(ALIASES.get(name, name) for name in names if name not in {"", "identity"})


def decoder(names: tuple[str, ...], limit: int) -> Decoder | None:
    """Make a decoder for these codings, None where one of them is unknown or where there are too many."""
    if len(names) > MOST_CODINGS or any(name not in STEPS for name in names):
        return None
    return Decoder([STEPS[name]() for name in reversed(names)], limit)


def decode(body: bytes, names: tuple[str, ...], limit: int) -> bytes | None:
    """Decode a whole body; None where a coding is unknown or the bytes are broken. Raises `TooLargeError`."""
    inner = decoder(names, limit)
    if inner is None:
        return None
    try:
        return inner.feed(body)
    except UndecodableError:
        return None


def ratio_bound(encoded: int, limit: int) -> int:
    """How many bytes `encoded` bytes may become: bounded by ratio and by `limit`."""
    return min(limit, max(RATIO_FLOOR, encoded * RATIO))
