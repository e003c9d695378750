"""A transcript: the history a client sent in one request, kept as raw fragments.

Nothing here re-encodes: an item keeps the client's bytes, and what is known of it (its `Facts`)
is found once per distinct bytes and remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Envelope", "Facts", "Item", "Transcript"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What Carryon knows of one item, derived from its bytes alone.

    `digest` is the SHA-256 (32 bytes) of the normalised item, empty when it normalises to nothing
    (rule 4.4). `opens` are the ids of the tool calls it makes, `answers` those it gives results
    for, each in order, repeated ids included. `stays` marks what no replacement may leave out: system
    text in mid-conversation, an upstream's own `compaction` item. `joins` marks a part of an assistant
    step that several items spell: neighbours that join are never parted.
    """

    role: str
    digest: bytes
    opens: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    stays: bool = False
    joins: bool = False

    @property
    def significant(self) -> bool:
        """Whether the item counts in digests and coverage."""
        return bool(self.digest)


class Item(NamedTuple):
    """One message: its bytes, the SHA-256 of those bytes, and what is known of it.

    A named tuple because a request makes hundreds: a frozen dataclass takes twice as long to build.
    """

    raw: bytes
    key: bytes
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What surrounds the items and is always sent as it came.

    `leading` are the system and developer messages before the first other item. `rest` are the
    other parts that the model reads as text (tool definitions, response format), raw. `output` is
    the requested output in tokens, None when the client named none. `ids` are the conversation ids
    found in the body, best first. `server_history` marks a history that lies at the
    server (rule 4.7), `compacts` a body that asks the upstream to compact (rule 4.8).
    """

    model: str
    stream: bool
    output: int | None = None
    leading: tuple[Item, ...] = ()
    rest: tuple[Item, ...] = ()
    ids: tuple[str, ...] = ()
    server_history: bool = False
    compacts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A split request body. `span` is where the array of messages lies in `body`, brackets included."""

    body: bytes
    span: tuple[int, int]
    envelope: Envelope
    items: tuple[Item, ...]
    #: Index in `items` of each significant item, in order.
    significant: tuple[int, ...] = field(default=())

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The normalised digests of the significant items."""
        return tuple(self.items[i].facts.digest for i in self.significant)

    def end(self, covered: int) -> int:
        """How many of `items` the first `covered` significant ones span.

        Insignificant items belong to the next significant one, so they are inside its span.
        """
        return self.significant[covered - 1] + 1 if covered else 0
