"""One commit at a time for a conversation in this process, so that unrelated sessions do not starve each other.

Conversations that begin alike share a record (rule 4.2), and of several commits made at once only one finds
the record as it was loaded. A third move ends a compactor's work (rule 5.4): without a queue here a burst of
sessions with one opening would lose summaries that were paid for, and an overflow its evidence. Only the
compare-and-set keeps the record right; whoever has waited long enough goes on without a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Lanes"]


@dataclass(slots=True)
class _Lane:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


class Lanes:
    """The turns of one ledger, by conversation."""

    def __init__(self) -> None:
        #: Only of conversations with a commit under way.
        self._lanes: dict[str, _Lane] = {}

    def __len__(self) -> int:
        """Return how many conversations have a commit under way."""
        return len(self._lanes)

    @asynccontextmanager
    async def in_turn(self, conversation: str, wait: float) -> AsyncIterator[None]:
        """Hold the conversation's only turn, or after `wait` seconds go on without it."""
        lane = self._lanes.setdefault(conversation, _Lane())
        lane.wanted += 1
        held = False
        try:
            held = await _acquired(lane, wait)
            yield
        finally:
            if held:
                lane.lock.release()
            lane.wanted -= 1
            if not lane.wanted:
                del self._lanes[conversation]


async def _acquired(lane: _Lane, wait: float) -> bool:
    if lane.wanted == 1:  # no timer where nobody is before us
        return await lane.lock.acquire()
    try:
        async with asyncio.timeout(wait):
            return await lane.lock.acquire()
    except TimeoutError:
        return False
