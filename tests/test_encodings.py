"""Content codings: any split, any coding, never beyond the bound."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from proxy.encodings import TooLargeError, UndecodableError, codings, decode, decoder, ratio_bound

TEXT = b'{"messages": [{"role": "user", "content": "caf\xc3\xa9 \xff"}]}' * 50


def raw_deflate(data: bytes) -> bytes:
    """Deflate without the zlib header, as some clients send it."""
    inner = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return inner.compress(data) + inner.flush()


CODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("br", brotli.compress),
    ("zstd", zstandard.compress),
]


@pytest.mark.parametrize(("name", "encode"), CODERS)
@pytest.mark.parametrize("step", [1, 2, 7, 4096])
def test_a_body_decodes_over_any_split(name: str, encode: Callable[[bytes], bytes], step: int) -> None:
    """The decoder needs no particular chunking."""
    raw = encode(TEXT)
    inner = decoder((name,), 1 << 20)
    assert inner is not None
    assert b"".join(inner.feed(raw[at : at + step]) for at in range(0, len(raw), step)) == TEXT


@pytest.mark.parametrize(("name", "encode"), CODERS)
def test_a_bomb_is_given_up_at_its_bound(name: str, encode: Callable[[bytes], bytes]) -> None:
    """Fifty megabytes of zeros cost no more than a few of memory."""
    raw = encode(bytes(50 << 20))
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        decode(raw, (name,), 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20


def test_codings_stack_and_members_join() -> None:
    """Several codings are undone last first; several gzip members are one body."""
    assert decode(brotli.compress(gzip.compress(TEXT)), ("gzip", "br"), 1 << 20) == TEXT
    assert decode(gzip.compress(b"a") + gzip.compress(b"b"), ("gzip",), 10) == b"ab"
    assert decode(TEXT, (), 1) == TEXT


def test_unknown_codings_and_broken_bytes_decode_to_nothing() -> None:
    """Both mean: hands off, forward as it came."""
    assert decode(TEXT, ("compress",), 1 << 20) is None
    assert decoder(("gzip", "exi"), 1) is None
    assert decode(b"not gzip", ("gzip",), 1 << 20) is None
    inner = decoder(("br",), 1 << 20)
    assert inner is not None
    with pytest.raises(UndecodableError):
        inner.feed(b"\xff" * 64)


def test_a_long_list_of_codings_is_undone_by_nobody() -> None:
    """Each would need a window of its own before the first byte comes out."""
    raw = TEXT
    for _ in range(5):
        raw = gzip.compress(raw)
    assert decode(raw, ("gzip",) * 5, 1 << 20) is None
    assert decode(gzip.decompress(raw), ("gzip",) * 4, 1 << 20) == TEXT
    assert decoder(("zstd",) * 1_000, 1 << 20) is None


def test_codings_are_read_from_all_header_lines() -> None:
    """Case, commas, repeats, `identity` and the old names of gzip are understood."""
    headers = (("Content-Encoding", "X-GZIP, identity"), ("content-encoding", "br"))
    assert codings(headers) == ("gzip", "br")
    assert codings(()) == ()


def test_the_ratio_is_bounded_below_and_above() -> None:
    """Small bodies may grow to a megabyte, large ones to the configured bound."""
    assert ratio_bound(10, 64 << 20) == 1 << 20
    assert ratio_bound(100_000, 64 << 20) == 20_000_000
    assert ratio_bound(10 << 20, 64 << 20) == 64 << 20
