"""Work beside the requests: at most one packing of a dialogue at a time in this process (rules 5.7, 6.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from proxy import events
from proxy.core.chain import passed, place
from proxy.core.transcript import Transcript

__all__ = ["Aside"]

#: Seconds that work which was cancelled may take to end.
_ENDING = 1.0


class Aside:
    """Packings under way, by conversation and by the place in the dialogue from which they started."""

    def __init__(self) -> None:
        self._running: dict[str, dict[str, asyncio.Task[None]]] = {}

    def running(self, conversation: str, transcript: Transcript) -> asyncio.Task[None] | None:
        """The one that packs an earlier turn of this very dialogue, or this turn."""
        known = self._running.get(conversation)
        found = passed(transcript, known) if known else ()
        return next((known[at] for at in found), None) if known else None

    def start(self, conversation: str, transcript: Transcript, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run it; whoever started it may cancel it."""
        at = place(transcript)
        task = asyncio.ensure_future(work)
        self._running.setdefault(conversation, {})[at] = task
        task.add_done_callback(events.ended)
        task.add_done_callback(lambda _: self._forget(conversation, at))
        return task

    async def abandon(self) -> None:
        """End all of it: nobody waits for it."""
        tasks = [task for known in self._running.values() for task in known.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_ENDING)

    def _forget(self, conversation: str, at: str) -> None:
        known = self._running.get(conversation, {})
        known.pop(at, None)
        if not known:
            self._running.pop(conversation, None)
