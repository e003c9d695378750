from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.sse import Frame, FrameParser


def parse(*pieces: bytes) -> list[Frame]:
    """Parse pieces to the end."""
    parser = FrameParser()
    frames = [frame for piece in pieces for frame in parser.feed(piece)]
    return frames + parser.end()


def told(frames: list[Frame]) -> list[tuple[str, str]]:
    """Reduce frames to events and data."""
    return [(frame.event, frame.data) for frame in frames]


def test_a_frame_ends_at_its_blank_line() -> None:
    """Nothing is returned before, and what follows waits for its own."""
    parser = FrameParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\ndata: b") == [Frame(data="a")]
    assert parser.end() == [Frame(data="b")]
    assert parser.end() == []


def test_every_line_end_is_one() -> None:
    """CRLF, LF and CR, mixed."""
    assert told(parse(b"data: a\r\n\r\ndata: b\n\ndata: c\r\rdata: d\r\n\ndata: e\n\r\n")) == [
        ("", letter) for letter in "abcde"
    ]


def test_a_crlf_cut_in_two_is_one_line_end() -> None:
    """The frame waits for the byte after a CR, so that it never depends on the cut."""
    parser = FrameParser()
    assert parser.feed(b"data: a\r\n\r") == []
    assert parser.feed(b"\ndata: b\r\n\r\n") == [Frame(data="a"), Frame(data="b")]


def test_a_character_cut_in_two_arrives_whole() -> None:
    """UTF-8 is decoded only when the frame is complete."""
    raw = "data: 上下文\n\n".encode()
    assert told(parse(*(bytes([byte]) for byte in raw))) == [("", "上下文")]


def test_fields_are_read_as_the_standard_says() -> None:
    """Comments, multi-line data, one space off, event, unknown fields, a field without colon."""
    frames = parse(b"\xef\xbb\xbf: hello\nevent: x\ndata:  a\ndata:b\ndata\nretry: 250\nretry: no\nid: 7\nfoo: bar\n\n")
    assert frames == [Frame(event="x", data=" a\nb\n")]


def test_what_has_no_data_is_no_frame() -> None:
    """OpenRouter's `: PROCESSING`, a bare event or a time to reconnect: relayed, and nothing to decide on."""
    assert parse(b": OPENROUTER PROCESSING\n\n:\r\n: a\r\r: b\ndata: c\n\nevent: e\n\nretry: 3\n\n: d") == [
        Frame(data="c")
    ]


def test_the_legacy_field_error_is_an_error_event() -> None:
    """Older llama.cpp builds send `error: {...}` instead of `data:`."""
    assert told(parse(b'error: {"code":500}\n\n')) == [("error", '{"code":500}')]


def test_only_the_first_byte_order_mark_is_dropped() -> None:
    """A later one is content of the stream."""
    assert told(parse(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n")) == [("", "a")]


LINES = st.sampled_from(
    [
        b"data: a",
        b"data:",
        b"data: \xe4\xb8\x8a",
        b": c",
        b"event: e",
        b"retry: 3",
        b"error: x",
        b"\xef\xbb\xbf",
        b"\xff",
        b"",
        b"",
    ],
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=14).map(
    lambda pairs: b"".join(itertools.chain.from_iterable(pairs)),
)


@given(STREAMS | st.binary(max_size=40), st.lists(st.integers(0, 120), max_size=12))
def test_frames_do_not_depend_on_the_cuts(stream: bytes, cuts: list[int]) -> None:
    """Any split gives the frames of the whole."""
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    frames = parse(*(stream[start:end] for start, end in itertools.pairwise(edges)))
    assert frames == parse(stream)


def test_many_small_pieces_of_a_large_frame_are_cheap() -> None:
    """A frame of a megabyte in small pieces is not scanned again from its start each time."""
    parser = FrameParser()
    assert parser.feed(b"data: ") == []
    for _ in range(20_000):
        assert parser.feed(b"x" * 50) == []
    assert len(parser.feed(b"\n\n")) == 1


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\r", b":\n\n", b": a\r\n\r\n"], ids=repr)
def test_what_says_nothing_is_passed_over_in_one_step(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines and comments, however many, make no frame that is looked at."""
    looked: list[bytes] = []
    monkeypatch.setattr(FrameParser, "_frame", lambda _, raw: looked.append(bytes(raw)) or [])
    parser = FrameParser()
    parser.feed(line * 100_000)
    parser.feed(line * 100_000 + b"data: a\n\n")
    assert len(looked) <= 2
    assert looked[-1].endswith(b"data: a\n\n")


def test_of_a_frame_of_very_many_lines_the_first_are_read() -> None:
    """No event is spread over so many: what there is of it is no JSON, and so is released."""
    (frame,) = parse(b"data: a\n" * 100_000 + b"\n")
    assert frame.data.count("a") == 4_096


def test_of_a_large_frame_that_is_no_utf8_the_beginning_is_read() -> None:
    """To replace each byte that is none takes its time."""
    (frame,) = parse(b"data: " + b"\xff" * (1 << 20) + b"\n\n")
    assert len(frame.data) < 1 << 18
    assert set(frame.data) == {"\ufffd"}


def test_a_large_comment_in_small_pieces_is_cheap() -> None:
    """It is not scanned again from its start either; comments between two frames are passed over in one step."""
    parser = FrameParser()
    for _ in range(20_000):
        assert parser.feed(b":" + b"x" * 50) == []
    assert parser.feed(b"\n\n" + b": ping\n\n" * 100_000 + b"data: a\n\n") == [Frame(data="a")]
