"""`carryon forget`: what is stored of conversations is deleted: record, surfaces, marks and notes (rule 12).

A running Carryon that holds a surface in memory drops it when it next looks for it. What was learned of models is
no conversation's and stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from proxy.commands.kept import WAIT, Wanted, found, named, nothing_stored, on_store, usage
from proxy.core.identity import opaque
from proxy.settings import Settings
from proxy.settings.units import Duration
from proxy.store.redis import RedisLedger

__all__ = ["Which", "forget", "seconds"]

_TOGETHER = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which conversations: those with these ids, else those of a tenant (empty: all) unused for `older` seconds."""

    ids: tuple[Wanted, ...] = ()
    tenant: str = ""
    older: float | None = None


def seconds(text: str) -> float:
    """Read a duration of the command line. Raises `ConfigError`."""
    try:
        return float(TypeAdapter(Duration).validate_python(text))
    except ValidationError as error:
        told = error.errors()[0].get("ctx", {})
        raise usage("--older-than", told.get("message", "is no duration"), told.get("cure", "write 7d")) from None


def forget(settings: Settings, which: Which, agreed: Callable[[int], bool] = lambda _: True) -> list[str] | None:
    """Forget them and return the ids of those that were there, None where `agreed`, told how many, says no.

    Raises `WrongError` where an id is nobody's, `ConfigError` where it is none.
    """

    async def work(ledger: RedisLedger) -> list[str] | None:
        names = await _matched(ledger, which)
        if not agreed(len(names)):
            return None
        gone = await ledger.catalogue.forget(names, wait=WAIT)
        if not which.ids and which.older is None:  # what has notes alone goes with the rest
            notes = ledger.catalogue.names(tenant=which.tenant, notes=True, wait=WAIT)
            gone += await ledger.catalogue.forget([name async for name in notes], wait=WAIT)
        return [opaque(name) for name in gone]

    nothing: list[str] | None = []
    gone = on_store(settings, work, nothing=nothing)
    if which.ids and gone is nothing:
        raise nothing_stored()
    return gone


async def _matched(ledger: RedisLedger, which: Which) -> list[str]:
    """Find them: `<tenant>.<conversation>`."""
    if which.ids:
        return list(dict.fromkeys([(await found(ledger, one)).conversation for one in which.ids]))
    return await _walked(ledger, which)


async def _walked(ledger: RedisLedger, which: Which) -> list[str]:
    names = await named(ledger, which.tenant)
    if which.older is None:
        return names
    before = time.time() - which.older
    old: list[str] = []
    for at in range(0, len(names), _TOGETHER):
        kept = await ledger.catalogue.read(names[at : at + _TOGETHER], wait=WAIT)
        old += [one.conversation for one in kept if one.applied < before]
    return old
