"""What replies mean, and which are none of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError

from proxy.store import Commit, Learned, Record, replies

LOADED = [b"e", b"1", b"1\n", [b"p:op", b"1"], [b"name", b"value"], 5]


def test_a_load_becomes_a_record() -> None:
    """Epoch, generation, notes; without the first two the notes alone."""
    assert replies.record(replies.loaded(LOADED)) == Record(epoch="e", generation=1, notes=(("name", "value"),))
    assert replies.record(replies.loaded([None, None, None, [], [], -2])) == Record()


@pytest.mark.parametrize(
    "fields",
    [(None, b"1"), (b"", b"1"), (b"\xff", b"1"), (b"a b", b"1"), (b"e", None), (b"e", b"-1"), (b"e", b"9" * 16)],
)
def test_a_record_whose_name_or_number_makes_no_sense_is_absent(fields: tuple[bytes | None, bytes | None]) -> None:
    """Its notes are another key, and stay."""
    assert replies.record([*fields, *LOADED[2:]]) == Record(notes=(("name", "value"),))


@pytest.mark.parametrize(
    ("read", "reply"),
    [
        *((replies.loaded, reply) for reply in (None, b"OK", 5, [], LOADED[:5], [*LOADED, 1])),
        *(
            (replies.loaded, [*LOADED[:at], odd, *LOADED[at + 1 :]])
            for at, odd in enumerate((1, 2, 3, [b"x"], [1, 2], b"5"))
        ),
        *((replies.stored, reply) for reply in (None, b"OK", [], [b"e"], [b"e", 1], [b"e", b"x", b"y"])),
        *((replies.commit, reply) for reply in (None, b"OK", 1, [], b"\xff")),
        *((replies.taken, reply) for reply in (None, b"OK", [])),
        *((replies.scanned, reply) for reply in (None, [], [b"0"], [0, []], [b"0", b"x"], [b"0", [1]], [b"0", [], 1])),
        *((replies.learned, reply) for reply in ([1, None], [None, [b"x"]])),
    ],
)
def test_a_reply_of_another_shape_raises(read: Callable[[object], object], reply: object) -> None:
    """Whatever it is, it is not read as something."""
    with pytest.raises(ValueError, match=r"answered with|is not a valid Commit"):
        read(reply)


def test_answers_are_read() -> None:
    """A surface, a commit, a lease."""
    assert replies.stored([b"e", None]) == (b"e", None)
    assert replies.commit(b"moved") is Commit.MOVED
    assert (replies.taken(1), replies.taken(0)) == (True, False)


@pytest.mark.parametrize(
    ("raw", "limit", "calibration"),
    [
        (None, 0, 1.0),
        (b"8192", 8_192, 1.0),
        (b"1.5", 0, 1.5),
        (b"nan", 0, 1.0),
        (b"inf", 0, 1.0),
        (b"1e400", 0, 1.0),
        (b"-3", 0, 1.0),
        (b"9" * 400, 0, 1.0),
        (ResponseError("WRONGTYPE of another kind"), 0, 1.0),
    ],
)
def test_what_was_learned_is_a_number_that_can_be_meant(raw: object, limit: int, calibration: float) -> None:
    """Anything else was not learned."""
    assert replies.learned([raw, raw]) == Learned(limit=limit, calibration=calibration)


def test_an_error_among_what_was_learned_is_raised() -> None:
    """Only another type's is none."""
    with pytest.raises(ResponseError, match="NOPERM"):
        replies.learned([ResponseError("NOPERM"), None])
