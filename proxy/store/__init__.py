"""The ledger: what is stored of conversations, behind one Protocol.

The generation counter is raised by `lua/commit.lua` and by nothing else. Whoever wants to know what
happened loads: no return value of a compactor, and no reply of a commit, is evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from proxy.store.lanes import Lanes

if TYPE_CHECKING:
    from proxy.store.catalogue import Catalogue

__all__ = ["Commit", "Entry", "Learned", "Ledger", "Record", "Records", "StoreConfigError", "StoreError"]


class StoreError(Exception):
    """The store did not answer, or not in time, or it refused. Traffic goes on without it (rule 5.9)."""


class StoreConfigError(Exception):
    """The store can never work as configured: what is wrong, of which key of the configuration, and how to mend it.

    Raised at start only. Redis being away is not one: that is a `StoreError`, and it passes.
    """

    def __init__(self, message: str, *, key: str, cure: str) -> None:
        """`message` says it of `key`, `cure` is an order; both in small letters, on one line, without a final stop."""
        super().__init__(f"{key}: {message}; {cure}")
        self.key, self.message, self.cure = key, message, cure


class Commit(Enum):
    """What a commit script answered (rule 5.4). Only a load decides what is."""

    DONE = "done"
    MINE = "mine"
    MOVED = "moved"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One surface in a record's index.

    `digest` binds it to the significant items `[0, covered)`, the first `summarised` of which it does
    not show one by one. `base` is the generation of the surface it was built on, 0 for none. `window` is the window in
    tokens it was made for, 0 if unknown; `before` and `after` are measured tokens; `at` is Unix
    seconds. `proven`, `retired` (rule 4.10) and `applied`, when it last was (Unix seconds, 0 if never
    noted), come from the marks.
    """

    generation: int
    operation: str
    digest: bytes
    covered: int
    base: int
    model: str
    window: int
    before: int
    after: int
    at: int
    summarised: int = 0
    proven: bool = False
    retired: bool = False
    applied: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One conversation as one load saw it: no epoch and generation 0 when nothing is stored."""

    epoch: str | None = None
    generation: int = 0
    entries: tuple[Entry, ...] = ()
    #: The notes of the conversation (rule 5.1), by name.
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What refusals and usage taught: a limit in tokens (0: none) and the meter's calibration."""

    limit: int = 0
    calibration: float = 1.0


class Records(Protocol):
    """What a request needs of the ledger to see its conversation and to replace what it sees (see `Ledger`)."""

    async def load(self, conversation: str, *, wait: float | None = None) -> Record:
        """Load epoch, generation, index, marks and notes in one round trip."""
        ...

    def remembered(self, conversation: str) -> Record | None:
        """Return the record as this process last loaded it, for while Redis is away (rule 5.9). Never evidence."""
        ...

    async def surface(self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None) -> bytes | None:
        """Return an entry's stored surface, None where it is absent or does not verify.

        One that this process holds is returned without asking Redis, also while Redis is away.
        """
        ...

    async def commit(
        self, conversation: str, loaded: Record, entry: Entry, surface: bytes, *, wait: float | None = None
    ) -> Commit:
        """Store a replacement if the record is still as loaded (rule 5.4).

        `entry.operation` identifies the attempt, `entry.generation` is ignored: the script gives it.
        """
        ...


class Ledger(Records, Protocol):
    """The door to Redis. Every method raises `StoreError` and nothing else when the store fails.

    `conversation` is the opaque id `<tenant>.<conversation>` (hex), `wait` a time-out in seconds
    that bounds the whole call, pool and connection included (None: the configured time-out).
    """

    @property
    def lanes(self) -> Lanes:
        """The turns in which this process commits to a conversation."""
        ...

    @property
    def away(self) -> bool:
        """Whether the store failed at the start, or several calls in a row, and has not answered since (rule 5.9)."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """What is stored of all conversations. What is forgotten there, this process forgets at once."""
        ...

    async def start(self) -> None:
        """Check durability and secret. Raises `StoreConfigError`; a server that is merely away is no error."""
        ...

    async def confirm(self, conversation: str, *, wait: float | None = None) -> Record | None:
        """Load as evidence: touch, wait for the configured durability, load, on one connection.

        Returns None where the durability is not confirmed within `redis.wait_timeout`, at most `wait` (rule 5.6).
        """
        ...

    async def mark(self, conversation: str, operation: str, mark: str) -> None:
        """Note `proven`, `retired` or `applied` about a surface. Never touches the generation."""
        ...

    async def note(self, conversation: str, name: str, value: str, *, wait: float | None = None) -> None:
        """Set one note of the conversation, remove it with an empty value; notes expire after ten minutes."""
        ...

    async def claim(self, conversation: str, name: str, owner: str, seconds: float) -> bool:
        """Take a lease among the notes, for so many seconds; False where another owner holds it (rule 5.7).

        It ends by itself, or with `note(conversation, name, "")`.
        """
        ...

    async def learned(self, limit_key: str, calibration_key: str, *, wait: float | None = None) -> Learned:
        """Load the learned limit and the calibration (rule 8.5)."""
        ...

    async def learn_limit(self, limit_key: str, limit: int, window: int = 0) -> None:
        """Lower or set the learned limit, at least 1,024, where the window known without it is `window` (0: unknown).

        Lowering by more than half below what holds needs a second sighting.
        """
        ...

    async def learn_calibration(self, calibration_key: str, ratio: float) -> None:
        """Fold one observed ratio (counted by the model / estimated by our meter) into the calibration."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
