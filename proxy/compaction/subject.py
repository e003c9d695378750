"""What a job is about, and what it may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from proxy.compaction.flights import Flights
from proxy.compaction.job import Summariser
from proxy.compaction.patience import Patience
from proxy.core.identity import opaque
from proxy.core.meter import Meter
from proxy.dialects import Completion, Dialect
from proxy.policy import Limits, Policy
from proxy.store import Entry
from proxy.store.within import Within

__all__ = ["Post", "Subject"]

Post = Callable[[bytes, float], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a job is about and what it may use; the same for all its rounds.

    `post` sends a summary request within so many seconds and gives the whole reply, None on failure.
    `window` is what the entry records, 0 for unknown. `summariser` and `waits`: see `proxy.compaction.job.View`.
    """

    ledger: Within
    conversation: str
    dialect: Dialect
    meter: Meter
    calibration: float
    limits: Limits
    policy: Policy
    trigger: Literal["pressure", "overflow"]
    goal: int
    window: int
    post: Post
    flights: Flights[Completion | None]
    patience: Patience
    suits: Callable[[Entry], bool] = lambda _: True
    summariser: Summariser | None = None
    waits: bool = True

    @property
    def opaque(self) -> str:
        """The conversation as logs name it: without the tenant."""
        return opaque(self.conversation)
