"""A surface as it lies in Redis: a format byte and a Zstandard frame. Pure."""

from __future__ import annotations

import zstandard

__all__ = ["decode", "encode"]

_FORMAT = b"\x01"
#: No surface is larger than a request body may be; a frame that claims more is not ours.
_MOST = 256 * 1024 * 1024


def encode(surface: bytes) -> bytes:
    """Return the stored form of a surface."""
    return _FORMAT + zstandard.ZstdCompressor(level=3, write_checksum=True).compress(surface)


def decode(blob: bytes) -> bytes | None:
    """Return the surface, None where the format is unknown or the frame does not verify."""
    if not blob.startswith(_FORMAT):
        return None
    frame = blob[len(_FORMAT) :]
    try:
        size = zstandard.get_frame_parameters(frame).content_size
        if not 0 <= size <= _MOST:
            return None
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError:
        return None
