"""Which stored surface applies to this transcript: found in a record, fetched, and laid on it.

The same function serves every look at the ledger, so that what a compactor saw, what was sent and
what counts as evidence can only differ by what the record holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.identity import opaque
from proxy.core.surface import Projection, matching, project, raw_projection, unpack
from proxy.core.transcript import Transcript
from proxy.dialects import Dialect
from proxy.store import Entry, Record, Records

__all__ = ["Applied", "apply"]

_LOG = logging.getLogger(__name__)
#: Blobs that may be missing (evicted, another format) before the raw transcript serves.
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one load of the ledger makes of a transcript; `entry` is None where no surface applies."""

    record: Record
    projection: Projection
    entry: Entry | None = None


async def apply(
    ledger: Records,
    conversation: str,
    record: Record,
    transcript: Transcript,
    dialect: Dialect,
    *,
    suits: Callable[[Entry], bool] = lambda _: True,
) -> Applied:
    """Lay the deepest stored surface that is bound to this transcript on it.

    `suits` may turn one down (rule 4.9). Raises `StoreError` where a blob could not be asked for.
    """
    candidates = [entry for entry in matching(record.entries, transcript) if suits(entry)]
    for entry in candidates[:_TRIES]:
        found = await _laid(ledger, conversation, record, entry, transcript=transcript, dialect=dialect)
        if found is not None:
            return Applied(record=record, projection=found, entry=entry)
        told = {"conversation": opaque(conversation), "generation": entry.generation}
        _LOG.warning("a stored surface could not be used", extra=told)
    return Applied(record=record, projection=raw_projection(transcript))


async def _laid(
    ledger: Records,
    conversation: str,
    record: Record,
    entry: Entry,
    *,
    transcript: Transcript,
    dialect: Dialect,
) -> Projection | None:
    blob = await ledger.surface(conversation, record.epoch or "", entry)
    surface = unpack(blob) if blob is not None else None
    if surface is None or surface.covered != entry.covered:
        return None
    return project(transcript, surface, dialect.item, generation=entry.generation, operation=entry.operation)
