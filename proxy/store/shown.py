"""What is stored of one conversation as JSON: for the admin API, and for the commands that read the store.

Texts of a conversation come out only where `text` is asked for. The client's own items are not among them: the store
does not have them, a surface only says where they stand (`keep`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from proxy.core.identity import opaque
from proxy.core.surface import Keep, Put, Surface, unpack
from proxy.store import Entry
from proxy.store.catalogue import Kept

__all__ = ["Surfaces", "brief", "opened"]


class Surfaces(Protocol):
    """Where a surface's bytes come from: the ledger."""

    async def surface(self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None) -> bytes | None:
        """Return an entry's stored surface, None where it is absent or does not verify."""
        ...


def brief(kept: Kept, now: float) -> dict[str, Any]:
    """One conversation in a list; `tokens` are those of its newest surface. `now` is in Unix seconds."""
    entries = kept.record.entries
    newest = max(entries, key=lambda entry: entry.generation, default=None)
    return {
        "id": opaque(kept.conversation),
        "tenant": kept.conversation.rpartition(".")[0],
        "epoch": kept.record.epoch,
        "generation": kept.record.generation,
        "surfaces": len(entries),
        "covered": max((entry.covered for entry in entries), default=0),
        "tokens": _tokens(newest) if newest else None,
        "model": newest.model if newest else None,
        "applied": _time(kept.applied),
        "expires": None if kept.expires is None else _time(now + kept.expires),
    }


async def opened(
    kept: Kept, surfaces: Surfaces, *, text: bool = False, wait: float | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield each surface of a conversation, oldest first. Raises `StoreError`.

    With `text` it has its `parts`: `put` is an item that stands there, `keep` a range of the client's own significant
    items; and `carry`, what code hands from one compaction to the next.
    """
    for entry in sorted(kept.record.entries, key=lambda entry: entry.generation):
        blob = await surfaces.surface(kept.conversation, kept.record.epoch or "", entry, wait=wait)
        surface = unpack(blob) if blob is not None else None
        row = _row(entry) | (_counts(surface, len(blob or b"")) if surface else {"readable": False})
        yield row | _texts(surface) if surface and text else row


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "operation": entry.operation,
        "state": "retired" if entry.retired else "proven" if entry.proven else "new",
        "covered": entry.covered,
        "summarised": entry.summarised,
        "digest": entry.digest.hex(),
        "base": entry.base,
        "model": entry.model,
        "window": entry.window or None,
        "tokens": _tokens(entry),
        "made": _time(entry.at),
        "applied": _time(entry.applied),
    }


def _counts(surface: Surface, size: int) -> dict[str, Any]:
    put = [part for part in surface.parts if isinstance(part, Put)]
    provenance = surface.provenance
    return {
        "readable": True,
        "bytes": size,
        "put": len(put),
        "kept": sum(part.stop - part.start for part in surface.parts if isinstance(part, Keep)),
        "summary": surface.summary,
        "provenance": msgspec.to_builtins(provenance) if provenance else None,
    }


def _texts(surface: Surface) -> dict[str, Any]:
    parts = [
        {"put": _value(part.raw)} if isinstance(part, Put) else {"keep": [part.start, part.stop]}
        for part in surface.parts
    ]
    return {"parts": parts, "carry": msgspec.to_builtins(surface.carry)}


def _value(raw: bytes) -> object:
    """Return an item as a value; what a newer version or damage has put there, as text."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


def _tokens(entry: Entry) -> dict[str, int]:
    return {"before": entry.before, "after": entry.after}


def _time(seconds: float) -> str | None:
    """Spell a time; None for what never was, or can be no time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
