"""`carryon inspect`: which conversations are stored, and what surfaces one of them has (rule 12). No text of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.commands.kept import WAIT, age, counted, found, named, nothing_stored, on_store, shortest, table, wanted
from proxy.settings import Settings
from proxy.store.redis import RedisLedger
from proxy.store.shown import brief, opened

__all__ = ["inspected", "listed", "shown", "shown_list"]

_LIST = ("id", "tenant", "model", "gen", "surfaces", "items", "tokens", "used", "expires")
_SURFACES = ("gen", "items", "put", "kept", "bytes", "tokens", "rung", "written by", "state", "age", "used")
_NUMBERS = {"gen", "surfaces", "items", "put", "kept", "bytes", "tokens"}
#: Signs of a name that are shown: a client may name a model as long as a book.
_SIGNS = 32
#: Digits of a tenant that are shown beside its conversations.
_TENANT = 12


def listed(settings: Settings, tenant: str = "") -> list[dict[str, Any]]:
    """List what is stored, of one tenant or of all, what was used last first."""

    async def work(ledger: RedisLedger) -> list[dict[str, Any]]:
        kept = await ledger.catalogue.read(await named(ledger, tenant), wait=WAIT)
        now = time.time()
        return [brief(one, now) for one in sorted(kept, key=lambda one: one.applied, reverse=True)]

    return on_store(settings, work, nothing=[])


def inspected(settings: Settings, typed: str) -> dict[str, Any]:
    """Describe one conversation and its surfaces. Raises `WrongError` where there is none."""
    one = wanted(typed)

    async def work(ledger: RedisLedger) -> dict[str, Any] | None:
        kept = await found(ledger, one)
        rows = [row async for row in opened(kept, ledger, wait=WAIT)]
        return {"conversation": brief(kept, time.time()), "surfaces": rows}

    described = on_store(settings, work, nothing=None)
    if described is None:
        raise nothing_stored()
    return described


def shown_list(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Spell a list for people."""
    if rows:
        digits = shortest([row["id"] for row in rows])
        yield from table(_LIST, [_line(row, digits) for row in rows], _NUMBERS)
    yield counted(len(rows)) if rows else "no conversation is stored"


def _line(row: Mapping[str, Any], digits: int) -> tuple[Any, ...]:
    return (
        row["id"][:digits],
        row["tenant"][:_TENANT],
        (row["model"] or "-")[:_SIGNS],
        row["generation"],
        row["surfaces"],
        row["covered"],
        _tokens(row["tokens"]),
        age(row["applied"]),
        age(row["expires"]),
    )


def shown(described: Mapping[str, Any]) -> Iterator[str]:
    """Spell one conversation for people."""
    about = described["conversation"]
    for name in ("id", "tenant", "epoch", "generation"):
        yield f"{name:<12}{about[name]}"
    yield f"{'used':<12}{age(about['applied'])}"
    yield f"{'expires':<12}{age(about['expires'])}"
    yield ""
    yield from table(_SURFACES, [_surface(row) for row in described["surfaces"]], _NUMBERS)


def _surface(row: Mapping[str, Any]) -> tuple[Any, ...]:
    known = row["readable"]
    return (
        row["generation"],
        row["covered"],
        row["put"] if known else "-",
        row["kept"] if known else "-",
        f"{row['bytes']:,}" if known else "-",
        _tokens(row["tokens"]),
        row["summary"] if known else "-",
        _writer(row.get("provenance")),
        row["state"] if known else f"{row['state']}, unreadable",
        age(row["made"]),
        age(row["applied"]),
    )


def _writer(provenance: Mapping[str, Any] | None) -> str:
    """Name who wrote a summary, with the tokens it took."""
    if not provenance:
        return "-"
    took = [provenance.get("prompt"), provenance.get("completion")]
    spelled = " + ".join(f"{amount:,}" for amount in took if amount is not None)
    return f"{provenance.get('model', '')[:_SIGNS]} ({spelled or '?'})"


def _tokens(tokens: Mapping[str, int] | None) -> str:
    return f"{tokens['before']:,} → {tokens['after']:,}" if tokens else "-"
