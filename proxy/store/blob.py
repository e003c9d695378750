"""A surface as it lies in Redis: a format byte, and a sealed Zstandard frame. Pure but for the seal's nonce."""

from __future__ import annotations

from collections.abc import Sequence

import zstandard

from proxy.store.sealing import Seals

__all__ = ["decode", "encode"]

#: Format 1 was not sealed, and in no release: reading it would let whoever writes in Redis plant text (decision 0014).
_FORMAT = b"\x02"
#: No surface is larger than a request body may be; a frame that claims more is not ours.
_MOST = 256 * 1024 * 1024


def encode(surface: bytes, seals: Seals, bound: Sequence[str | bytes]) -> bytes:
    """Return the stored form of a surface, bound to the place where it lies."""
    return _FORMAT + seals.seal(zstandard.ZstdCompressor(level=3).compress(surface), bound)


def decode(blob: bytes, seals: Seals, bound: Sequence[str | bytes]) -> bytes | None:
    """Return the surface, None where the format is unknown, the seal does not open or belongs to another place."""
    if not blob.startswith(_FORMAT):
        return None
    frame = seals.open(blob[len(_FORMAT) :], bound)
    if frame is None:
        return None
    try:
        size = zstandard.get_frame_parameters(frame).content_size
        if not 0 <= size <= _MOST:
            return None
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError:
        return None
