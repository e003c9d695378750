"""What the server's replies mean. Pure. A reply of another shape than ours raises: then no server of ours answered.

A field that makes no sense is another matter: whoever wrote it, the record around it counts as absent, here as in
`lua/commit.lua`, which then replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from proxy.core.meter import CALIBRATION_RANGE
from proxy.store import Commit, Learned, Record, index

__all__ = ["Loaded", "calibration", "commit", "learned", "limit", "loaded", "record", "scanned", "stored", "taken"]

#: Epoch, generation, index, marks, notes, milliseconds until the record expires; see `lua/load.lua`.
Loaded = list[Any]

#: What `lua/commit.lua` writes; what it takes for a record's epoch and generation is spelled there as well.
_EPOCH = re.compile(rb"[0-9A-Za-z]{1,64}")
_GENERATION = re.compile(rb"[0-9]{1,15}")
_LIMIT = re.compile(rb"[0-9]{1,9}")
_FRACTION = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,17})?")
_SHAPE = ("epoch", "generation", "index", "marks", "notes", "expiry")


class _ShapeError(ValueError):
    """The reply is not what our script answers."""


def loaded(reply: object) -> Loaded:
    """Return the reply of `lua/load.lua`; raise ValueError where it is something else."""
    if not isinstance(reply, list) or len(reply) != len(_SHAPE):
        raise _ShapeError("a load was answered with something else")
    texts, pairs, expiry = reply[:3], reply[3:5], reply[5]
    good = (
        all(text is None or isinstance(text, bytes) for text in texts)
        and all(_is_flat(flat) for flat in pairs)
        and isinstance(expiry, int)
    )
    if not good:
        raise _ShapeError("a load was answered with values of other types")
    return reply


def record(reply: Loaded) -> Record:
    """Return the record of a reply, its notes alone where its epoch or its generation is none that was written."""
    epoch, generation, packed, marks, notes = reply[:5]
    named = tuple(sorted((_text(name), _text(value)) for name, value in _pairs(notes)))
    if not (epoch and generation and _EPOCH.fullmatch(epoch) and _GENERATION.fullmatch(generation)):
        return Record(notes=named)
    return Record(
        epoch=epoch.decode(),
        generation=int(generation),
        entries=index.marked(index.unpack(packed or b""), dict(_pairs(marks))),
        notes=named,
    )


def stored(reply: object) -> tuple[bytes | None, bytes | None]:
    """Return epoch and blob of a surface; raise ValueError where the reply holds something else."""
    if not isinstance(reply, list) or len(reply) != 2 or not all(v is None or isinstance(v, bytes) for v in reply):
        raise _ShapeError("a surface was answered with something else")
    return reply[0], reply[1]


def scanned(reply: object) -> tuple[str, list[bytes]]:
    """Return the cursor and the keys of one step of a SCAN; raise ValueError where it is something else."""
    if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], list):
        raise _ShapeError("a walk was answered with something else")
    cursor, found = reply
    if not isinstance(cursor, bytes) or not all(isinstance(key, bytes) for key in found):
        raise _ShapeError("a walk was answered with values of other types")
    return cursor.decode("ascii", "replace"), found


def commit(reply: object) -> Commit:
    """Return what a commit answered; raise ValueError where it is no answer of ours."""
    if not isinstance(reply, bytes):
        raise _ShapeError("a commit was answered with something else")
    return Commit(reply.decode("ascii", "replace"))


def taken(reply: object) -> bool:
    """Return whether a lease was given; raise ValueError where the reply does not tell."""
    if not isinstance(reply, int):
        raise _ShapeError("a lease was answered with something else")
    return reply == 1


def learned(replies: Sequence[object]) -> Learned:
    """Return what was learned; what is unreadable, or of another type, was not learned."""
    told, ratio = (_optional(reply) for reply in replies)
    return Learned(limit=limit(told), calibration=calibration(ratio))


def limit(raw: bytes | None) -> int:
    """Return a stored limit, 0 for none that can be meant."""
    return int(raw) if raw and _LIMIT.fullmatch(raw) else 0


def calibration(raw: bytes | None) -> float:
    """Return a stored calibration, 1 for none that can be meant."""
    low, high = CALIBRATION_RANGE
    ratio = float(raw) if raw and _FRACTION.fullmatch(raw) else 1.0
    return ratio if low <= ratio <= high else 1.0


def _optional(reply: object) -> bytes | None:
    """Return a text or nothing; a key of another type holds nothing of ours, any other error is raised."""
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return None
    if isinstance(reply, Exception):
        raise reply
    if reply is not None and not isinstance(reply, bytes):
        raise _ShapeError("a text was answered with something else")
    return reply


def _is_flat(flat: object) -> bool:
    return isinstance(flat, list) and len(flat) % 2 == 0 and all(isinstance(one, bytes) for one in flat)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
