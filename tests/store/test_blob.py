"""The stored form of a surface."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
import zstandard

from proxy.store.blob import decode, encode
from proxy.store.sealing import Seals

SEALS = Seals([b"a secret of sixteen"])
PLACE = ("carryon:1:{t.c}", "epoch", "operation", b"digest")
#: One surface in every format that a release has written.
STORED = Path(__file__).parent.parent / "data" / "stored.json"


@pytest.mark.parametrize("surface", [b"", b"x", b"text " * 50_000, os.urandom(10_000)])
def test_a_surface_comes_back_as_it_was(surface: bytes) -> None:
    """Whatever its bytes."""
    assert decode(encode(surface, SEALS, PLACE), SEALS, PLACE) == surface


def test_a_surface_is_compressed_and_says_nothing() -> None:
    """Text takes a fraction of its room, and is not read there."""
    blob = encode(b"some words of a summary " * 1000, SEALS, PLACE)
    assert len(blob) < 500
    assert b"words" not in blob
    assert blob != encode(b"some words of a summary " * 1000, SEALS, PLACE)


@pytest.mark.parametrize("blob", [b"", b"\x02", b"\x01" + zstandard.compress(b"x"), zstandard.compress(b"x"), b"\x03x"])
def test_what_is_of_another_format_is_absent(blob: bytes) -> None:
    """No error: a newer version may have written it, or somebody who has no key."""
    assert decode(blob, SEALS, PLACE) is None


def test_one_changed_or_missing_byte_makes_it_absent() -> None:
    """At every place."""
    blob = encode(os.urandom(50), SEALS, PLACE)
    for at in range(len(blob)):
        assert decode(blob[:at], SEALS, PLACE) is None
        assert decode(blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :], SEALS, PLACE) is None


@pytest.mark.parametrize("at", range(len(PLACE)))
def test_a_surface_opens_nowhere_else(at: int) -> None:
    """Another conversation, epoch, operation or digest: whoever copies it there gains nothing."""
    blob = encode(b"text", SEALS, PLACE)
    other = (*PLACE[:at], "other", *PLACE[at + 1 :])
    assert decode(blob, SEALS, other) is None


def test_a_frame_that_claims_to_be_huge_is_absent() -> None:
    """A few kilobytes must not become gigabytes."""
    huge = zstandard.ZstdCompressor().compressobj(size=1 << 40)
    frame = huge.compress(b"x" * 200_000) + huge.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert decode(b"\x02" + SEALS.seal(frame, PLACE), SEALS, PLACE) is None


@pytest.mark.parametrize("stored", json.loads(STORED.read_text()), ids=lambda one: f"format {one['format']}")
def test_what_was_stored_by_a_release_is_read(stored: dict[str, str]) -> None:
    """The fixture is never made anew: a new format gets a line of its own."""
    place = (*stored["place"][:3], base64.b64decode(stored["place"][3]))
    seals = Seals([stored["secret"].encode()])
    assert decode(base64.b64decode(stored["blob"]), seals, place) == stored["surface"].encode()
