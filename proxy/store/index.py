r"""How a record's index is packed, and which surfaces a commit drops. Pure.

The index is `1\n` (the format) and then, per surface, `<generation> <covered> <operation> <size>\n` and
`size` bytes of MessagePack with the rest. The line is text because `lua/commit.lua` reads and writes it:
the script, not the caller, gives a surface its generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from proxy.store import Entry

__all__ = ["CAP", "check_operation", "dropped", "marked", "pack", "unpack"]

#: How many surfaces a conversation keeps at most (rule 4.5).
CAP = 256

_FORMAT = b"1\n"
#: As `lua/commit.lua` reads it; a number with more digits was written by nobody.
_HEAD = re.compile(rb"([0-9]{1,15}) ([0-9]{1,15}) (\S{1,64}) ([0-9]{1,9})\n")
_SECONDS_DIGITS = 15
_OPERATION = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Body(msgspec.Struct, array_like=True, frozen=True):
    """What the script need not read of an entry."""

    digest: bytes
    base: int
    model: str
    window: int
    before: int
    after: int
    at: int
    summarised: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


def check_operation(operation: str) -> str:
    """Return the operation id if it is one word that fits the index; raise ValueError otherwise."""
    if not _OPERATION.fullmatch(operation):
        message = "an operation id is 1 to 64 letters, digits, '-' or '_'"
        raise ValueError(message)
    return operation


def pack(entry: Entry) -> bytes:
    """Return the bytes that `lua/commit.lua` stores behind an entry's line."""
    return _encoder.encode(
        _Body(
            digest=entry.digest,
            base=entry.base,
            model=entry.model,
            window=entry.window,
            before=entry.before,
            after=entry.after,
            at=entry.at,
            summarised=entry.summarised,
        )
    )


def unpack(packed: bytes) -> tuple[Entry, ...]:
    """Return the entries of an index, oldest first; what is of an unknown format or damaged counts as absent.

    An index that was written has no more entries than `CAP`: what is behind them is damage.
    """
    if not packed.startswith(_FORMAT):
        return ()
    entries: list[Entry] = []
    at = len(_FORMAT)
    for _ in range(CAP):
        head = _HEAD.match(packed, at)
        if head is None or (at := head.end() + int(head[4])) > len(packed):
            break
        try:
            body = _decoder.decode(packed[head.end() : at])
        except msgspec.MsgspecError:
            continue
        entries.append(_entry(head, body))
    return tuple(entries)


def _entry(head: re.Match[bytes], body: _Body) -> Entry:
    return Entry(
        generation=int(head[1]),
        covered=int(head[2]),
        operation=head[3].decode("ascii", "replace"),
        digest=body.digest,
        base=body.base,
        model=body.model,
        window=body.window,
        before=body.before,
        after=body.after,
        at=body.at,
        summarised=body.summarised,
    )


def marked(entries: Sequence[Entry], marks: Mapping[bytes, bytes]) -> tuple[Entry, ...]:
    """Return the entries with what the marks (`p:`, `r:`, `a:` and an operation id) say of them."""
    if not marks:
        return tuple(entries)
    return tuple(_with_marks(entry, marks) for entry in entries)


def _with_marks(entry: Entry, marks: Mapping[bytes, bytes]) -> Entry:
    name = entry.operation.encode()
    proven, retired, applied = b"p:" + name in marks, b"r:" + name in marks, marks.get(b"a:" + name)
    if not (proven or retired or applied):
        return entry
    return replace(entry, proven=proven, retired=retired, applied=_seconds(applied or b""))


def _seconds(raw: bytes) -> int:
    return int(raw) if raw.isdigit() and len(raw) <= _SECONDS_DIGITS else 0


def dropped(entries: Sequence[Entry], base: int) -> tuple[str, ...]:
    """Return the operation ids that a commit built on generation `base` drops (rule 4.5).

    First its grandparent's ancestors; then, while the new surface would be one too many, retired ones and
    the least recently applied. The surface it is built on stays: it serves while the new one is unproven.
    """
    by_generation = {entry.generation: entry for entry in entries}
    gone = _ancestors(by_generation, base)
    rest = sorted(
        (entry for entry in entries if entry.generation not in gone and entry.generation != base),
        key=lambda entry: (not entry.retired, max(entry.applied, entry.at), entry.generation),
    )
    too_many = max(0, len(entries) - len(gone) - (CAP - 1))
    gone.update(entry.generation for entry in rest[:too_many])
    return tuple(entry.operation for entry in entries if entry.generation in gone)


def _ancestors(by_generation: Mapping[int, Entry], base: int) -> set[int]:
    """Return the generations above the grandparent of a surface built on `base`."""
    parent = by_generation.get(base)
    grandparent = by_generation.get(parent.base) if parent else None
    found: set[int] = set()
    above = grandparent.base if grandparent else 0
    while above in by_generation and above not in found:
        found.add(above)
        above = by_generation[above].base
    return found
