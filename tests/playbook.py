"""Playbooks: the language in which a story of the outside world around exchanges is written.

A `Playbook` says what the client sends, what each copy for the upstream must look like and what it is
answered, what the compactor does, what happens at the ledger meanwhile, and what the client must get.
`tests.performance` plays it on one of two stages (`tests.stages`): in process, where a scripted upstream
door gives replies that the real hold judges; and over sockets, where the real server and the real client
stand between raw ones. Both use a real Valkey.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from proxy.compaction.job import Compactor
from proxy.compaction.work import Work
from proxy.dialects.chat import CHAT
from proxy.encodings import codings, decode
from proxy.house import House
from proxy.message import Headers, Incoming
from proxy.steps.turn import Turn, read
from proxy.store import Ledger
from proxy.store.within import Within
from tests.store.chaos import Chaos
from tests.store.servers import Server

TARGET = "/v1/chat/completions"
PATIENCE = 10.0


# --- the vocabulary -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """What the upstream answers one copy: a reply in these chunks, or (with `fault`) none."""

    status: int = 200
    chunks: tuple[bytes, ...] = ()
    headers: Headers = (("Content-Type", "application/json"), ("X-Upstream", "yes"))
    fault: str = ""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of a request at the upstream: `sees` is its body (None: the client's own bytes)."""

    sees: bytes | None
    says: Says


Script = Callable[["World", Any], Awaitable[object]]
Hook = Callable[["World"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of the client, and all that must come of it.

    `gets` is the index of the copy whose reply the client receives, or a `Says` of our own. `compactor`
    None fails where one is called. `commits` None: the ledger cannot be asked afterwards. With `leaves`
    the client goes away as soon as the script says so (`World.reached`).
    """

    body: bytes
    copies: tuple[Copy, ...]
    gets: int | Says = 0
    headers: Headers = ()
    compactor: Script | Compactor | None = None
    before: Hook | None = None
    action: str | None = "pass"
    refused: str | None = None
    skip: str | None = None
    generation: int | None = None
    commits: int | None = 0
    faults: int = 0
    leaves: bool = False
    within: float = PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A named story. `policy` are settings of `defaults`, `models` its exceptions.

    `ledger` are options of the ledger's constructor; `store` is `shared`, `own` (a server this story may
    stop) or `chaos` (behind a proxy that misbehaves).
    """

    name: str
    asks: tuple[Ask, ...]
    cap: int = 1
    window: int | None = 10_000
    policy: dict[str, object] = field(default_factory=dict)
    models: tuple[dict[str, object], ...] = ()
    ledger: dict[str, object] = field(default_factory=dict)
    store: str = "shared"


# --- the world ----------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class World:
    """The outside of one story, for its scripts."""

    house: House
    server: Server
    other: Ledger
    credential: str
    chaos: Chaos | None = None
    client: Any = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    compactions: int = 0
    #: What a compactor's script found otherwise than it says: its own failures are swallowed, as they must be.
    wrong: list[AssertionError] = field(default_factory=list)

    def incoming(self, ask: Ask) -> Incoming:
        """The client's request as the exchange is given it."""
        length = ("Content-Length", str(len(ask.body)))
        given = (("Content-Type", "application/json"), ("Authorization", self.credential), length, *ask.headers)
        plain = decode(ask.body, codings(given), 1 << 26)
        return Incoming(method="POST", target=TARGET, headers=given, body=ask.body, plain=plain)

    def turn(self, body: bytes) -> Turn:
        """A body as the exchange reads it."""
        found = read(self.house, self.incoming(Ask(body=body, copies=())))
        assert isinstance(found, Turn)
        return found

    def generation(self, ask: Ask) -> int:
        """The generation the ledger holds for this request's conversation, 0 for no record."""
        dialects, self.house.dialects = self.house.dialects, {"chat": CHAT}
        found = read(self.house, self.incoming(ask))
        self.house.dialects = dialects
        if not isinstance(found, Turn):
            return 0
        self.client = self.client or self.server.client()
        return int(self.client.hget(f"carryon:1:{{{found.conversation}}}", "g") or 0)

    @property
    def others(self) -> Within:
        """The ledger as another replica's request uses it."""
        return Within(self.other, 5.0, each=5.0)

    def elsewhere(self, job: Any) -> Work:
        """The same job at another replica: its own connection to the same ledger."""
        return Work(replace(job._subject, ledger=self.others), job.applied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """What the client received."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """The only value of a header, None where it is absent."""
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) < 2, f"{name} is doubled"
        return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One copy as it reached the upstream."""

    headers: Headers
    body: bytes


class Stage(Protocol):
    """Where a story is played."""

    seen: list[Seen]

    def play(self, says: tuple[Says, ...]) -> None:
        """Answer the next copies so, in order."""
        ...

    async def ask(self, world: World, ask: Ask) -> Got | None:
        """Send one request; None where the client left."""
        ...

    def settled(self) -> None:
        """Assert that nothing is left open."""
        ...
