"""What the commands that read the store share: it is opened, asked, shown as a table; what is not there is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from proxy.boot import state_dir, stored
from proxy.core.identity import opaque
from proxy.errors import ConfigError, Mistake, WrongError
from proxy.settings import Settings
from proxy.store import StoreError, keys
from proxy.store.catalogue import Kept
from proxy.store.redis import RedisLedger

__all__ = [
    "WAIT",
    "Wanted",
    "age",
    "counted",
    "found",
    "named",
    "nothing_stored",
    "on_store",
    "shortest",
    "table",
    "usage",
    "wanted",
]

T = TypeVar("T")

#: Seconds that one call to the store may take: nobody's request waits for it.
WAIT = 10.0
#: How many ids are named where a beginning fits several.
_NAMED = 5
#: The digits of an id that are shown in a list, at least.
_DIGITS = 12
_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def usage(option: str, message: str, cure: str) -> ConfigError:
    """Return the error for what was typed: the command ends with 2."""
    return ConfigError(Mistake(key=option, message=message, cure=cure))


def on_store(settings: Settings, work: Callable[[RedisLedger], Awaitable[T]], *, nothing: T) -> T:
    """Run something on the store that `serve` uses; return `nothing` where no store was ever made.

    Raises `ConfigError` and `StoreConfigError` where it cannot be used as configured, `WrongError` where it fails.
    """
    if settings.redis.url is None and not (state_dir(settings) / "store").is_dir():
        return nothing

    async def opened() -> T:
        async with stored(settings) as ledger:
            return await work(ledger)

    try:
        return asyncio.run(opened())
    except StoreError as error:
        where = "redis.url" if settings.redis.url else str(state_dir(settings) / "store")
        cure = "mend that, or name the store with --config"
        raise WrongError(f"the store ({where}) does not answer: {error}", cure) from error


class Wanted(NamedTuple):
    """What was typed for an id, taken apart: a tenant or none, and the first digits of the conversation's own id."""

    tenant: str
    beginning: str


def wanted(typed: str) -> Wanted:
    """Take an id apart, which may be shortened. Raises `ConfigError` where it is none: nothing typed is a pattern."""
    tenant, _, beginning = typed.strip().lower().rpartition(".")
    try:
        keys.pattern(tenant, beginning)
    except ValueError:
        beginning = ""
    if not beginning:
        message, cure = (
            "is no conversation's id",
            "write 32 hex digits, or the first of them: carryon inspect lists them",
        )
        raise usage(typed or "ID", message, cure)
    return Wanted(tenant, beginning)


async def found(ledger: RedisLedger, one: Wanted) -> Kept:
    """Return the conversation whose id this is, or the only one whose id begins so. Raises `WrongError`."""
    walk = ledger.catalogue.names(tenant=one.tenant, beginning=one.beginning, wait=WAIT)
    names = [name async for name in walk]
    if len(names) > 1:
        listed = ", ".join(sorted(opaque(name) for name in names)[:_NAMED])
        raise WrongError(f"{one.beginning} begins the ids of {len(names)} conversations: {listed}", "write more digits")
    kept = await ledger.catalogue.read(names, wait=WAIT)
    if not kept:
        raise WrongError(f"no conversation {one.beginning} is stored", "see what is: carryon inspect")
    return kept[0]


def nothing_stored() -> WrongError:
    """Return the error for an id where no store was ever made."""
    return WrongError("nothing is stored here", "name the configuration of the proxy with --config")


async def named(ledger: RedisLedger, tenant: str) -> list[str]:
    """Return the conversations of a tenant, of all where it is empty. Raises `ConfigError` where it can be none."""
    try:
        return [name async for name in ledger.catalogue.names(tenant=tenant, wait=WAIT)]
    except ValueError as error:
        raise usage("--tenant", str(error), "see the tenants: carryon inspect --json") from None


def counted(count: int) -> str:
    """Spell a number of conversations."""
    return "1 conversation" if count == 1 else f"{count:,} conversations"


def shortest(ids: Collection[str]) -> int:
    """Return how many digits tell these ids apart."""
    digits = _DIGITS
    while len({one[:digits] for one in ids}) < len(set(ids)):
        digits += 1
    return digits


def age(when: str | None, now: float | None = None) -> str:
    """Spell a time of JSON as people say it: `3m ago`, `in 6d`, `-` for none."""
    if when is None:
        return "-"
    seconds = (time.time() if now is None else now) - datetime.fromisoformat(when).timestamp()
    size, unit = next(((size, unit) for size, unit in _AGES if abs(seconds) >= size), _AGES[-1])
    amount = f"{int(abs(seconds) // size)}{unit}"
    return f"in {amount}" if seconds < 0 else f"{amount} ago"


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Collection[str] = ()) -> list[str]:
    """Return the lines of a table; the columns of `numbers` are set to the right."""
    cells = [list(heads), *([_printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return [
        "  ".join(
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for cell, width, head in zip(row, widths, heads, strict=True)
        ).rstrip()
        for row in cells
    ]


def _printable(text: str) -> str:
    """Return a text that changes nothing on a terminal: a client names its model as it likes."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)
