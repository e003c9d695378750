"""How many tokens a picture takes, from its width and height; those stand in its first bytes. Pure.

Sources: OpenAI's and Anthropic's published arithmetic for images (2026): OpenAI scales to 2,048 by 2,048, then the
shorter side to 768, and counts tiles of 512; Anthropic scales the longer side to 1,568 and divides the area by 750.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct

__all__ = ["dimensions", "pixels_of", "tiled", "whole"]

#: Characters of base64 that are decoded: a JPEG's frame header may stand after a large preview.
_MOST = 1 << 17
_TILE, _PER_TILE, _BASE = 512, 170, 85
_LONGEST, _SHORTER = 2_048, 768
_EDGE, _AREA = 1_568, 750
#: Bytes of an extended WebP's header, sizes included.
_EXTENDED = 30
#: JPEG markers that begin a frame; the rest of the range are tables.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def tiled(width: int, height: int) -> int:
    """Tokens by OpenAI's tiles."""
    scale = min(1.0, _LONGEST / max(width, height))
    width_, height_ = width * scale, height * scale
    scale = min(1.0, _SHORTER / min(width_, height_))
    tiles = math.ceil(width_ * scale / _TILE) * math.ceil(height_ * scale / _TILE)
    return _BASE + _PER_TILE * tiles


def whole(width: int, height: int) -> int:
    """Tokens by Anthropic's area."""
    scale = min(1.0, _EDGE / max(width, height))
    return math.ceil(width * scale * height * scale / _AREA)


def pixels_of(encoded: str) -> tuple[int, int] | None:
    """Width and height of a picture in base64, or in a `data:` URL; None where they cannot be told."""
    if encoded.startswith("data:"):
        head, _, encoded = encoded.partition(",")
        if not head.endswith(";base64"):
            return None
    start = encoded[:_MOST]
    try:
        found = dimensions(base64.b64decode(start[: len(start) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None
    return found if found and min(found) > 0 else None


def dimensions(data: bytes) -> tuple[int, int] | None:
    """Width and height from the first bytes of a PNG, GIF, WebP or JPEG; None for anything else."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _unpacked(">II", data, 16)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return _unpacked("<HH", data, 6)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        return _jpeg(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError):
        return None


def _unpacked(form: str, data: bytes, at: int) -> tuple[int, int]:
    width, height = struct.unpack_from(form, data, at)
    return int(width), int(height)


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = _unpacked("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= _EXTENDED:
        return (int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1)
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = _unpacked(">HH", data, at + 5)
            return width, height
        if marker == 0xFF:  # padding
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + max(2, length)
    return None
