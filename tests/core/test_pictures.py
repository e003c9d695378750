"""Tokens of pictures: from their first bytes, whatever follows."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.pictures import dimensions, pixels_of, tiled, whole

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x06"
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)
LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480)
LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 639 | 479 << 14)
EXTENDED = b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x04ab\xff\xe1" + struct.pack(">H", 302) + bytes(300)
    + b"\xff\xff\xc4\x00\x03c\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03"
)  # fmt: skip


@pytest.mark.parametrize("data", [PNG, GIF, LOSSY, LOSSLESS, EXTENDED, JPEG], ids=["png", "gif", *"lxe", "jpeg"])
def test_width_and_height_stand_in_the_first_bytes(data: bytes) -> None:
    """In every format that models take; cut short, nothing is known and nothing raises."""
    assert dimensions(data) == (640, 480)
    encoded = base64.b64encode(data + bytes(1_000)).decode()
    assert pixels_of(encoded) == pixels_of(f"data:image/png;base64,{encoded}") == (640, 480)
    assert all(dimensions(data[:cut]) in (None, (640, 480)) for cut in range(len(data)))


@pytest.mark.parametrize(
    "text", ["", "data:image/png,abc", "data:", "https://example.com/a.png", "!!!!", "QUJD", "ü" * 8]
)
def test_what_is_no_picture_has_no_size(text: str) -> None:
    """A link, another encoding, rubbish."""
    assert pixels_of(text) is None


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", PNG[:16], GIF[:6], LOSSY[:16], LOSSLESS[:16], EXTENDED[:16], b"\xff\xd8"]),
)
def test_no_bytes_raise(data: bytes, start: bytes) -> None:
    """A client may send anything as a picture."""
    dimensions(start + data)
    pixels_of(base64.b64encode(start + data).decode())


@pytest.mark.parametrize(
    ("width", "height", "tiles", "area"),
    [
        (512, 512, 255, 350),
        (1_024, 1_024, 765, 1_399),
        (2_048, 4_096, 1_105, 1_640),
        (1, 1, 255, 1),
        (20_000, 10, 765, 2),
    ],
)
def test_tokens_follow_the_published_arithmetic(width: int, height: int, tiles: int, area: int) -> None:
    """OpenAI's own examples: 1,024 squared is 765 tokens, 2,048 by 4,096 is 1,105."""
    assert (tiled(width, height), whole(width, height)) == (tiles, area)
