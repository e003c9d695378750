"""The stored form of a surface."""

from __future__ import annotations

import os

import pytest
import zstandard

from proxy.store.blob import decode, encode


@pytest.mark.parametrize("surface", [b"", b"x", b"text " * 50_000, os.urandom(10_000)])
def test_a_surface_comes_back_as_it_was(surface: bytes) -> None:
    """Whatever its bytes."""
    assert decode(encode(surface)) == surface


def test_a_surface_is_compressed() -> None:
    """Text takes a fraction of its room."""
    assert len(encode(b"some words of a summary " * 1000)) < 500


@pytest.mark.parametrize("blob", [b"", b"\x01", b"\x02" + zstandard.compress(b"x"), zstandard.compress(b"x")])
def test_what_is_of_another_format_is_absent(blob: bytes) -> None:
    """No error: a newer version may have written it."""
    assert decode(blob) is None


def test_one_changed_or_missing_byte_makes_it_absent() -> None:
    """The frame carries a checksum."""
    blob = encode(os.urandom(200))
    assert decode(blob[:-1]) is None
    assert decode(blob[:100] + bytes([blob[100] ^ 1]) + blob[101:]) is None


def test_a_frame_that_claims_to_be_huge_is_absent() -> None:
    """A few kilobytes must not become gigabytes."""
    huge = zstandard.ZstdCompressor().compressobj(size=1 << 40)
    assert decode(b"\x01" + huge.compress(b"x" * 200_000) + huge.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)) is None
