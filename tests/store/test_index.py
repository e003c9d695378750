"""Packing an index, and which surfaces a commit drops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.store import Entry
from proxy.store.index import CAP, check_operation, dropped, marked, pack, unpack
from tests.store.conftest import entry


def packed(*entries: Entry) -> bytes:
    """Return an index as lua/commit.lua writes it."""
    rows = [(e, pack(e)) for e in entries]
    return b"1\n" + b"".join(
        f"{e.generation} {e.covered} {e.operation} {len(body)}\n".encode() + body for e, body in rows
    )


def line(*bases: int) -> list[Entry]:
    """Entries of generation 1, 2, … with these bases."""
    return [replace(entry(f"op{n}", base=base), generation=n) for n, base in enumerate(bases, 1)]


def test_an_index_comes_back_as_it_was_packed() -> None:
    """Bytes that look like another entry's line do no harm inside one."""
    entries = (
        replace(entry("one"), generation=1, digest=b"\n2 2 x 2\n" * 4),
        replace(entry("two-_", covered=9, base=1), generation=2**40, model="modèle\n1 1 x 0\n"),
    )
    assert unpack(packed(*entries)) == entries


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"2\n",
        b"1",
        b"1\nx",
        b"1\n1 4 op 900\n",
        b"1\n1 4 op 3\nabc",
        b"1\n1 4 op " + b"9" * 30 + b"\nx",
        b"1\n" + b"9" * 5_000 + b" 4 op 1\nx",
        b"1\n1 4 " + b"o" * 65 + b" 1\nx",
    ],
)
def test_what_cannot_be_read_counts_as_absent(damage: bytes) -> None:
    """Another format, a cut, or noise: no entries and no error."""
    assert unpack(damage) == ()


def test_a_damaged_entry_does_not_hide_its_neighbours() -> None:
    """Only the one that cannot be read is absent."""
    first, second = line(0, 1)
    whole = packed(first) + b"9 4 bad 2\n\xc1\xc1" + packed(second)[2:]
    assert unpack(whole) == (first, second)


def test_what_is_behind_more_entries_than_there_can_be_is_not_read() -> None:
    """However long the index is, the work is bounded."""
    assert len(unpack(packed(*(replace(entry(f"op{n}"), generation=n) for n in range(CAP + 50))))) == CAP


def test_marks_show_in_the_entries_they_name() -> None:
    """Marks about others are ignored."""
    first, second = line(0, 1)
    marks = {b"p:op1": b"1", b"a:op1": b"77", b"r:op2": b"1", b"a:op9": b"5", b"t": b"3"}
    assert marked([first], {b"a:op1": b"9" * 5_000}) == (first,)
    assert marked([first, second], marks) == (
        replace(first, proven=True, applied=77),
        replace(second, retired=True),
    )


def test_a_commit_drops_what_lies_above_its_grandparent() -> None:
    """Parent and grandparent stay, for a client that goes back a step or two."""
    straight = line(0, 1, 2, 3)
    assert dropped(straight, 4) == ("op1", "op2")
    assert dropped(straight[:2], 2) == ()
    assert dropped(straight, 0) == ()


def test_a_branch_keeps_what_is_not_above_it() -> None:
    """Only ancestors of this line go."""
    forked = line(0, 1, 2, 3, 1, 0)
    assert dropped(forked, 4) == ("op1", "op2")
    assert dropped(forked, 6) == ()


def test_over_the_cap_retired_and_then_least_recently_applied_go() -> None:
    """The surface that the commit builds on never does."""
    full = [replace(entry(f"op{n}", at=n), generation=n) for n in range(1, CAP + 1)]
    assert dropped(full, 0) == ("op1",)
    assert dropped(full, 1) == ("op2",)
    full[0] = replace(full[0], applied=10_000)
    assert dropped(full, 0) == ("op2",)
    full[200] = replace(full[200], retired=True)
    assert dropped(full, 0) == ("op201",)
    assert dropped(full[:-1], 0) == ()


@pytest.mark.parametrize("operation", ["", "a b", "a\nb", "é", "x" * 65])
def test_an_operation_id_that_would_break_the_index_is_refused(operation: str) -> None:
    """It stands as one word in an entry's line."""
    with pytest.raises(ValueError, match="operation id"):
        check_operation(operation)


def test_an_ordinary_operation_id_passes() -> None:
    """Hex or a UUID."""
    assert check_operation("018f-ab_C") == "018f-ab_C"
