"""Commits on their way: once sent, one lands whole or not at all, whoever stops waiting (rule 3.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from proxy import events
from proxy.store import Commit, StoreError

__all__ = ["landed", "shielded"]

#: Held here, so that nobody's leaving ends one.
_SENT: set[asyncio.Task[Commit]] = set()


async def shielded(commit: Coroutine[None, None, Commit]) -> Commit:
    """Wait for a commit; a waiter that is cancelled leaves it on its way."""
    sent = asyncio.ensure_future(commit)
    _SENT.add(sent)
    sent.add_done_callback(_landed)
    return await asyncio.shield(sent)


async def landed(wait: float) -> None:
    """Give commits that are on their way up to `wait` seconds: close the ledger only afterwards."""
    if _SENT:
        await asyncio.wait(set(_SENT), timeout=wait)


def _landed(sent: asyncio.Task[Commit]) -> None:
    _SENT.discard(sent)
    failed = None if sent.cancelled() else sent.exception()
    if not isinstance(failed, StoreError):  # that is for who waits; if nobody does any more, the next load tells
        events.ended(sent)
