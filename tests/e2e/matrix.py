"""Rows of the store's troubles: real traffic through each, what it cost the clients, how soon all was well again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp

from proxy.store.binary import find_server
from tests.e2e.carryon import Carryon
from tests.e2e.traffic import KINDS, WINDOW, Asked, Traffic, narrow, p99
from tests.store.chaos import Chaos
from tests.store.servers import Server
from tests.store.troubles import TROUBLES, Place

__all__ = ["ADDED", "IN_OVERFLOW", "RECOVERY", "Ground", "Row", "ground", "table"]

#: Invariant I10: what trouble may add to a request, and to one in an overflow (seconds); and how soon it must be over.
ADDED, IN_OVERFLOW, RECOVERY = 0.2, 0.2 + 1.5, 5.0
CLIENTS = 3
#: How long all must be well before it is said that it is not.
_PATIENCE = 15.0
_SECRET = "a secret of at least thirty-two characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trouble: what was asked while it lasted, and the seconds until a commit landed after it."""

    name: str
    asked: tuple[Asked, ...]
    healthy: tuple[Asked, ...]
    recovered: float

    @property
    def success(self) -> float:
        """The share of requests that got what the upstream says."""
        return sum(one.well for one in self.asked) / len(self.asked)

    def added(self, kind: str, figure: Callable[[list[float]], float]) -> float:
        """By how many seconds a figure of the requests of a kind is larger than on a healthy store."""
        now, usual = ([one.took for one in asked if one.kind == kind] for asked in (self.asked, self.healthy))
        return figure(now) - figure(usual)

    def worst(self, figure: Callable[[list[float]], float]) -> float:
        """The same for the kind, outside an overflow, that is worst off."""
        return max(self.added(kind, figure) for kind in KINDS if kind != "overflow")

    @property
    def in_bounds(self) -> bool:
        """Whether I10 holds: what compaction itself costs, and how busy the machine is, are no trouble of the store."""
        return self.worst(p99) <= ADDED and self.added("overflow", p99) <= IN_OVERFLOW

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        figures = (self.worst(median), self.worst(p99), self.worst(max), self.added("overflow", p99))
        return [
            self.name,
            str(len(self.asked)),
            f"{self.success:.1%}",
            *(f"{1_000 * figure:.0f}" for figure in figures),
            f"{self.recovered:.1f}",
        ]


def table(rows: list[Row]) -> str:
    """All rows, as Markdown: milliseconds beyond the same figure on a healthy store, of the kind that is worst off."""
    heads = ["trouble", "requests", "success", "added p50", "p99", "max", "in an overflow p99", "recovery s"]
    lines = [heads, ["---"] * len(heads), *(row.cells for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(slots=True, kw_only=True)
class Ground:
    """Carryon with its own time-outs on a server that may be troubled; its clients, each with a packed conversation."""

    carryon: Carryon
    place: Place
    clients: list[Traffic]
    session: aiohttp.ClientSession
    log: Path

    async def during(self, seconds: float, kinds: tuple[str, ...] = tuple(KINDS)) -> list[Asked]:
        """Let all clients ask for so long; what they asked."""
        asked: list[Asked] = []
        tasks = [asyncio.create_task(client.run(kinds, asked)) for client in self.clients]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        return asked

    async def row(self, name: str, healthy: list[Asked], seconds: float) -> Row:
        """Measure one trouble."""
        async with TROUBLES[name](self.place):
            asked = await self.during(seconds)
        recovered = await self.clients[0].recovered(time.monotonic(), _PATIENCE)
        return Row(name=name, asked=tuple(asked), healthy=tuple(healthy), recovered=recovered)


@asynccontextmanager
async def ground(state: Path) -> AsyncIterator[Ground]:
    """Start all of it; it ends well."""
    server = Server(find_server(), appendonly="yes")
    try:
        async with Chaos(server.socket) as chaos, narrow() as upstream, aiohttp.ClientSession() as session:
            settings = {
                "CARRYON_REDIS__URL": chaos.url,
                "CARRYON_SECRET": _SECRET,
                "CARRYON_DEFAULTS__SUMMARY__METHOD": "outline",
            }
            carryon = Carryon(upstream, state, "--window", str(WINDOW), **settings)
            await carryon.start()
            try:
                clients = [Traffic(carryon.url, session) for _ in range(CLIENTS)]
                for client in clients:
                    await client.prepare()
                place = Place(server=server, chaos=chaos)
                yield Ground(carryon=carryon, place=place, clients=clients, session=session, log=state / "carryon.log")
            finally:
                code = await carryon.stop()
            assert code == 0
            assert not carryon.events("internal-fault")
    finally:
        server.stop()
