"""The one door between a compactor and a conversation (docs/decisions/0003).

A compactor sees a `View`, may `ask` a model within the budget, and may `propose` a replacement. It
holds no pen: a proposal is planned, validated and only then committed here. What it returns, raises
or claims is not looked at; whoever wants to know what happened reads the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from proxy.core.surface import Carry, Keep, Put
from proxy.core.transcript import Item
from proxy.dialects import Completion, Dialect
from proxy.policy import Limits, Policy

__all__ = ["BY_MODEL", "Compactor", "Job", "Proposed", "Summariser", "TurnedDown", "View"]

#: The rungs of the ladder on which a model wrote the summary.
BY_MODEL = frozenset({"S1", "S2", "S3"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """Another model than the conversation's own, or the same at another upstream, and its window in tokens."""

    model: str
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A conversation as the model would see it now: the current surface, then the client's items.

    `tokens[i]` is the measured size of `items[i]`, `envelope` that of all that surrounds them.
    `fixed` is how many of the first items spell the surface as stored (0: none), `put` which of them are its
    own and not the client's. `units` are
    `(start, stop)` ranges over `items`, in order and without gaps. `goal` is the total in tokens to
    get to or below: low water under pressure, what fits under overflow. `carry` is what earlier
    compactions handed on, `covered` how many of the client's significant items the first `fixed` items
    stand for. `calibration` is what the meter's estimates were multiplied by to get measured tokens.
    `summariser` is who writes summaries, None for the conversation's own model, which has the prefix cached.
    `waits` is whether a client waits for what is done.
    """

    dialect: Dialect
    trigger: Literal["pressure", "overflow"]
    items: tuple[Item, ...]
    tokens: tuple[int, ...]
    units: tuple[tuple[int, int], ...]
    envelope: int
    fixed: int
    goal: int
    limits: Limits
    policy: Policy
    carry: Carry
    covered: int = 0
    put: frozenset[int] = frozenset()
    calibration: float = 1.0
    summariser: Summariser | None = None
    waits: bool = True

    @property
    def total(self) -> int:
        """Measured tokens of the whole request."""
        return self.envelope + sum(self.tokens)

    def worst(self, tokens: int) -> int:
        """Measured tokens for a budget that must not be passed: a calibration below 1 does not shrink them."""
        return math.ceil(tokens / min(1.0, self.calibration))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The proposal was committed (or was already there); the view is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedDown:
    """The proposal was not committed; `reason` is a word for the log. `final`: the job is over."""

    reason: str
    final: bool = False


class Job(Protocol):
    """What a compactor is handed."""

    @property
    def view(self) -> View:
        """The conversation as it stands now; after a committed proposal it is another."""
        ...

    @property
    def seconds_left(self) -> float:
        """How long summaries may still take (rule 6.7)."""
        ...

    def measure(self, raws: Sequence[bytes]) -> int:
        """Measured tokens of rendered items, with the meter and calibration of the view."""
        ...

    async def propose(
        self, parts: Sequence[Put | Keep], through: int, *, carry: Carry | None = None, summary: str = "prune"
    ) -> Proposed | TurnedDown:
        """Replace the first `through` items of the view by `parts`.

        `Keep(start, stop)` names items of the view, `Put` holds a rendered item. `through` must be at
        least `view.fixed`. `summary` names the rung: `prune`, `S1` … `S4`.
        """
        ...

    async def ask(
        self, items: Sequence[Item], instruction: str, *, max_tokens: int, alone: bool = False
    ) -> Completion | None:
        """Ask the summariser; None when the call failed, was refused, or time ran out.

        `alone` sends the instruction and nothing else of the conversation: it then holds the text to summarise.
        Never raises but for cancellation.
        """
        ...


class Compactor(Protocol):
    """The replaceable backend that shrinks; entry point group `carryon.compactors`."""

    async def compact(self, job: Job) -> None:
        """Shrink the conversation through `job.propose`. Nothing is returned, nothing returned is read."""
        ...
