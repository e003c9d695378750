"""Carryon on a Redis by URL, and what it left there, read with its own ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proxy.core.surface import Surface, unpack
from proxy.store import Entry, Record
from proxy.store.redis import RedisLedger, fingerprint
from proxy.store.sealing import Seals
from tests.e2e.carryon import Carryon
from tests.store.servers import Server

SECRET = "a secret of at least thirty-two characters"
#: For tests in which nothing may run out of time, on the slowest machine.
PATIENT = {"CARRYON_DEFAULTS__SUMMARY__TIMEOUT": "60s", "CARRYON_REDIS__TIMEOUT": "20s"}


def proxied(server: Server, upstream: str, state: Path, *options: str, **environment: str) -> Carryon:
    """A proxy on this server that waits two seconds for a summary, where `environment` does not say otherwise."""
    own = {
        "CARRYON_REDIS__URL": server.url,
        "CARRYON_REDIS__TIMEOUT": "2s",
        "CARRYON_SECRET": SECRET,
        "CARRYON_DEFAULTS__SUMMARY__TIMEOUT": "2s",
    }
    return Carryon(upstream, state, *options, **{**own, **environment})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One conversation's record with all its surfaces, oldest first."""

    record: Record
    entries: tuple[Entry, ...]
    surfaces: tuple[Surface, ...]


def records(server: Server, conversation: str) -> list[str]:
    """The records of a conversation, by whichever tenant: `<tenant>.<conversation>`."""
    keys = server.client().scan_iter(match=f"carryon:1:*.{conversation}}}", count=1_000)
    return sorted(key.partition("{")[2].rstrip("}") for key in keys)


async def stored(server: Server, conversation: str) -> Stored:
    """Load the one record of a conversation."""
    (name,) = records(server, conversation)
    ledger = RedisLedger(server.url, seals=Seals([SECRET.encode()]), fingerprint=fingerprint(SECRET.encode()))
    try:
        record = await ledger.load(name, wait=5.0)
        entries = sorted(record.entries, key=lambda entry: entry.generation)
        blobs = [await ledger.surface(name, record.epoch or "", entry, wait=5.0) for entry in entries]
    finally:
        await ledger.close()
    found = [unpack(blob or b"") for blob in blobs]
    assert all(surface is not None for surface in found)
    return Stored(record=record, entries=tuple(entries), surfaces=tuple(one for one in found if one is not None))
