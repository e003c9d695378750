"""Surfaces: what the model sees instead of a transcript's prefix; when one applies; what results.

A surface is bound to the digest of exactly the items it stands for. Whether it applies is decided
here and nowhere else, by content (rule 4.3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from proxy.core.identity import covered_digests
from proxy.core.ranges import units
from proxy.core.transcript import Item, Transcript

__all__ = [
    "Carry",
    "Keep",
    "Projection",
    "Provenance",
    "Put",
    "Surface",
    "before_newest",
    "matching",
    "pack",
    "project",
    "raw_projection",
    "unpack",
]

FORMAT = 1


class Put(msgspec.Struct, frozen=True, tag="put", array_like=True):
    """Rendered bytes that stand in the surface: one item of the dialect, JSON."""

    raw: bytes


class Keep(msgspec.Struct, frozen=True, tag="keep", array_like=True):
    """The client's own significant items `[start, stop)`, as it sends them now."""

    start: int
    stop: int


class Carry(msgspec.Struct, frozen=True):
    """What code, not a model, hands from one compaction to the next (never parsed out of text).

    `task` is the first user message's text; `rules` and `words` are rule sentences and users' words,
    oldest first; `modified` and `read` are file paths, oldest first; `outline` holds what the
    model-free outline remembers, by section.
    """

    task: str = ""
    rules: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    outline: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who wrote a surface's summary and what it took.

    `model` is the one that the last reply names, which may be another than was asked. `prompt` and `completion`
    are the tokens of all its `calls` together, as far as the replies told them. `operation` is that of the commit.
    """

    model: str = ""
    prompt: int | None = None
    completion: int | None = None
    calls: int = 0
    operation: str = ""


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """The model-visible form of the significant items `[0, covered)` of some transcript.

    `parts` spell it in order. `summary` names how it came to be: `prune`, `S1` … `S4`. The first
    `summarised` of the items are not there one by one any more. `provenance` is None where no model wrote it,
    and in surfaces stored by a version that did not note it: a reader that does not know the field skips it, so
    both are of one format (rule 5.8).
    """

    parts: tuple[Put | Keep, ...]
    covered: int
    summarised: int = 0
    summary: str = "prune"
    carry: Carry = msgspec.field(default_factory=Carry)
    provenance: Provenance | None = None
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What the model sees of a transcript: a surface (or none), then the client's items after it.

    `origins[i]` is the index in `transcript.items` of `items[i]`, -1 for an item the surface put
    there. The first `fixed` items spell the surface and stand for `covered` significant items, the first
    `summarised` of which are not there one by one.
    `generation` is 0 and `operation` empty where no surface applies.
    """

    transcript: Transcript
    items: tuple[Item, ...]
    origins: tuple[int, ...]
    fixed: int = 0
    covered: int = 0
    summarised: int = 0
    generation: int = 0
    operation: str = ""
    carry: Carry = field(default_factory=Carry)

    @property
    def put(self) -> frozenset[int]:
        """The items that the surface put there: no client sent them."""
        return frozenset(at for at in range(self.fixed) if self.origins[at] < 0)


class Matched(Protocol):
    """What decides whether a stored surface applies: see `proxy.store.Entry`."""

    @property
    def generation(self) -> int:
        """The generation its commit made."""

    @property
    def digest(self) -> bytes:
        """What it is bound to."""

    @property
    def covered(self) -> int:
        """How many significant items that are."""

    @property
    def summarised(self) -> int:
        """How many of those are not there one by one any more."""

    @property
    def retired(self) -> bool:
        """Whether it was retired (rule 4.10)."""


M = TypeVar("M", bound=Matched)


def matching(entries: Sequence[M], transcript: Transcript) -> list[M]:
    """The entries bound to a prefix of this very transcript: deepest first, then the higher generation.

    The newest unit is never shown as a summary: a client that goes back to where a summary ends gets what
    it said last raw, by a shallower surface or none.
    """
    bound = covered_digests(transcript.digests, (entry.covered for entry in entries))
    found = [entry for entry in entries if not entry.retired and bound.get(entry.covered) == entry.digest]
    if found:
        most = before_newest(transcript)
        found = [entry for entry in found if entry.summarised <= most]
    return sorted(found, key=lambda entry: (entry.covered, entry.generation), reverse=True)


def before_newest(transcript: Transcript) -> int:
    """How many significant items stand before the newest unit."""
    parts = units(transcript.items)
    return bisect_left(transcript.significant, parts[-1][0]) if parts else 0


def raw_projection(transcript: Transcript) -> Projection:
    """The transcript as the client sent it."""
    return Projection(transcript=transcript, items=transcript.items, origins=tuple(range(len(transcript.items))))


def project(
    transcript: Transcript, surface: Surface, item: Callable[[bytes], Item | None], *, generation: int, operation: str
) -> Projection | None:
    """Apply a surface that is bound to this transcript; None where it cannot be spelled with it."""
    if not 0 <= surface.covered <= len(transcript.significant):
        return None
    items: list[Item] = []
    origins: list[int] = []
    for part in surface.parts:
        if isinstance(part, Put):
            put = item(part.raw)
            if put is None:
                return None
            items.append(put)
            origins.append(-1)
            continue
        if not 0 <= part.start < part.stop <= surface.covered:
            return None
        own = range(transcript.end(part.start), transcript.end(part.stop))
        items += (transcript.items[i] for i in own)
        origins += own
    tail = range(transcript.end(surface.covered), len(transcript.items))
    return Projection(
        transcript=transcript,
        items=(*items, *(transcript.items[i] for i in tail)),
        origins=(*origins, *tail),
        fixed=len(items),
        covered=surface.covered,
        summarised=surface.summarised,
        generation=generation,
        operation=operation,
        carry=surface.carry,
    )


def pack(surface: Surface) -> bytes:
    """A surface as MessagePack, its format version inside."""
    return _PACK.encode(surface)


def unpack(data: bytes) -> Surface | None:
    """A stored surface; None where the bytes are of another format."""
    try:
        surface = _UNPACK.decode(data)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return surface if surface.format == FORMAT else None


_PACK = msgspec.msgpack.Encoder()
_UNPACK = msgspec.msgpack.Decoder(Surface)
