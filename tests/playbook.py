"""Playbooks: short scripts of the outside world around exchanges, and the two stages that perform them.

A `Playbook` says what the client sends, what each copy for the upstream must look like and what it is
answered, what the compactor does, what happens at the ledger meanwhile, and what the client must get.
`perform` plays it on a stage: `InProcess` calls the exchange with a scripted upstream door whose replies
the real hold judges; `OverSockets` puts the real server and the real client between raw sockets. Both use
a real Valkey. After every request the invariants hold (`_check`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from proxy.compaction import work
from proxy.compaction.builtin import Builtin
from proxy.compaction.job import Compactor
from proxy.compaction.work import Work
from proxy.dialects.chat import CHAT
from proxy.exchange import exchange
from proxy.house import Background, House, destinations
from proxy.learning import Learning
from proxy.message import Headers, Incoming
from proxy.policy import resolve
from proxy.settings import Settings
from proxy.store import Ledger
from proxy.store.redis import RedisLedger
from proxy.turn import Turn, read
from proxy.upstream import Answered, Bounds, Call, Outcome, UpstreamError
from proxy.upstream.client import Client
from proxy.upstream.hold import Lens, inspected, relayed
from proxy.windows import Windows
from tests.sockets import Peer, Raw, client, raw_upstream
from tests.store.chaos import Chaos
from tests.store.servers import Server

TARGET = "/v1/chat/completions"
#: Headers that frame or date a message: they may differ on the way.
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "date"})
_PATIENCE = 10.0


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
    within: float = _PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A named story. `policy` are settings of `defaults`, `models` its exceptions, `ledger` options of the ledger's constructor.

    `store` is `shared`, `own` (a server this story may stop) or `chaos` (behind a proxy that misbehaves).
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
        return Incoming(method="POST", target=TARGET, headers=given, body=ask.body)

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

    def elsewhere(self, job: Any) -> Work:
        """The same job at another replica: its own connection to the same ledger."""
        from dataclasses import replace  # noqa: PLC0415 - tests only

        return Work(replace(job._subject, ledger=self.other), job.applied)


@dataclass(slots=True)
class _Acting:
    """The compactor of the request at hand, counted."""

    script: Script | Compactor | None = None
    world: World | None = None

    async def compact(self, job: Any) -> None:
        assert self.world is not None
        self.world.compactions += 1
        if self.script is None:
            return
        try:
            await (self.script(self.world, job) if callable(self.script) else self.script.compact(job))
        except AssertionError as error:
            self.world.wrong.append(error)
            raise


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


# --- in process ---------------------------------------------------------------------------------------


class _Wire:
    """A reply as the client door has it, from a script."""

    def __init__(self, says: Says) -> None:
        self.status, self.reason, self.headers = says.status, "", says.headers
        self.closed = False
        self._chunks = deque(says.chunks)

    async def receive(self, wait: float | None = None) -> bytes:
        await asyncio.sleep(0)
        return self._chunks.popleft() if self._chunks else b""

    async def rest(self) -> AsyncIterator[bytes]:
        while chunk := await self.receive():
            yield chunk

    async def close(self) -> None:
        self.closed = True


class InProcess:
    """Implements `proxy.upstream.Upstream` from a script; what is a reply's fate is the real hold's affair."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._says: deque[Says] = deque()
        self._wires: list[_Wire] = []

    def play(self, says: tuple[Says, ...]) -> None:
        """Answer the next copies so, in order."""
        self._says = deque(says)
        self.seen.clear()

    async def send(
        self, call: Call, *, dialect: str | None = None, inspect: bool = False, window: int | None = None
    ) -> Outcome:
        """Record a copy and answer it."""
        assert isinstance(call.body, bytes)
        self.seen.append(Seen(headers=call.headers, body=call.body))
        assert self._says, "one copy too many reached the upstream"
        says = self._says.popleft()
        await asyncio.sleep(0)
        if says.fault:
            raise UpstreamError(says.fault, "scripted")  # type: ignore[arg-type]
        wire = _Wire(says)
        self._wires.append(wire)
        if not inspect or dialect is None:
            return relayed(wire)  # type: ignore[arg-type]
        lens = Lens(endpoint=urlsplit(call.url).path, dialect=dialect, window=window, patterns=())
        return await inspected(wire, lens, Bounds())  # type: ignore[arg-type]

    async def ask(self, call: Call, *, within: float, limit: int = 16 << 20) -> Answered:
        """No summaries, no windows."""
        return Answered(status=404)

    async def ask_client(self, world: World, ask: Ask) -> Got:
        """Hand the request to the exchange and read the reply."""
        reply = await exchange(world.house, world.incoming(ask))
        try:
            body = reply.body if isinstance(reply.body, bytes) else b"".join([chunk async for chunk in reply.body])
        finally:
            await reply.aclose()
        return Got(status=reply.status, headers=reply.headers, body=body)

    def settled(self) -> None:
        """Every reply was closed."""
        assert all(wire.closed for wire in self._wires), "a reply of the upstream was left open"


class _InProcessStage:
    """The stage around `InProcess`."""

    def __init__(self, door: InProcess) -> None:
        self._door = door
        self.seen = door.seen
        self.play, self.settled = door.play, door.settled

    async def ask(self, world: World, ask: Ask) -> Got | None:
        """Send one request; a client that leaves cancels it."""
        asked = asyncio.ensure_future(self._door.ask_client(world, ask))
        return await _awaited(world, ask, asked)


async def _awaited(world: World, ask: Ask, asked: asyncio.Future[Got]) -> Got | None:
    async with asyncio.timeout(_PATIENCE):
        if not ask.leaves:
            return await asked
        await world.reached.wait()
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        return None


# --- over sockets -------------------------------------------------------------------------------------


class OverSockets:
    """The real doors between a raw client and a raw upstream."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.port = 0
        self._says: deque[Says] = deque()

    def play(self, says: tuple[Says, ...]) -> None:
        """Answer the next copies so, in order."""
        self._says = deque(says)
        self.seen.clear()

    async def serve(self, peer: Peer) -> None:
        """One connection of the upstream."""
        while True:
            raw = await peer.message()
            if not raw.start.startswith(b"POST /v1/chat"):
                await peer.send(_spelled(Says(status=404, chunks=(b"{}",))))
                continue
            self.seen.append(Seen(headers=_headers(raw), body=raw.body))
            says = self._says.popleft()
            if says.fault == "first_byte":
                await asyncio.sleep(_PATIENCE)
            if says.fault:
                return
            await peer.send(_spelled(says))

    async def ask(self, world: World, ask: Ask) -> Got | None:
        """Send one request over a fresh connection; a client that leaves closes it."""
        asked = asyncio.ensure_future(self._sent(world, ask))
        return await _awaited(world, ask, asked)

    async def _sent(self, world: World, ask: Ask) -> Got:
        given = (("Host", "carryon"), *world.incoming(ask).headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in given)
        async with client(self.port) as peer:
            await peer.send(f"POST {TARGET} HTTP/1.1\r\n{head}\r\n".encode() + ask.body)
            raw = await peer.message()
        return Got(status=raw.status, headers=_headers(raw), body=raw.body)

    def settled(self) -> None:
        """Connections end with the stage."""


def _headers(raw: Raw) -> Headers:
    return tuple((name.decode(), value.decode()) for name, value in raw.headers)


def _spelled(says: Says) -> bytes:
    head = b"HTTP/1.1 %d Scripted\r\n" % says.status
    head += b"".join(f"{name}: {value}\r\n".encode() for name, value in says.headers)
    if len(says.chunks) < 2:
        return head + b"Content-Length: %d\r\n\r\n" % len(says.body) + says.body
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in says.chunks)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


# --- performance --------------------------------------------------------------------------------------


async def perform(playbook: Playbook, kind: str, shared: Server, own: Callable[[], Server]) -> None:
    """Play a story on the stage `process` or `sockets`; whatever differs from its script fails."""
    async with AsyncExitStack() as stack:
        server = shared if playbook.store == "shared" else own()
        chaos = await stack.enter_async_context(Chaos(server.socket)) if playbook.store == "chaos" else None
        stage, world = await _staged(playbook, kind, server, chaos, stack)
        acting = _Acting(world=world)
        world.house.compactor = acting
        for number, ask in enumerate(playbook.asks):
            acting.script = ask.compactor
            world.reached.clear()
            await _asked(playbook, world, stage, ask, f"{playbook.name}, request {number}")


async def _staged(
    playbook: Playbook, kind: str, server: Server, chaos: Chaos | None, stack: AsyncExitStack
) -> tuple[Stage, World]:
    url = chaos.url if chaos else server.url
    ledger = RedisLedger(url, **{"timeout": 2.0, "durability": "memory", **playbook.ledger})  # type: ignore[arg-type]
    other = RedisLedger(server.url, timeout=2.0, durability="memory")
    stack.push_async_callback(ledger.close)
    stack.push_async_callback(other.close)
    credential = f"Bearer {secrets.token_hex(8)}"
    if kind == "process":
        door = InProcess()
        house = _house(playbook, "http://upstream.test/v1", ledger, door, stack)
        return _InProcessStage(door), World(
            house=house, server=server, other=other, credential=credential, chaos=chaos
        )
    sockets = OverSockets()
    upstream = await stack.enter_async_context(raw_upstream(sockets.serve))
    real = Client(bounds=Bounds(first_byte=0.3, connect=0.2))
    stack.push_async_callback(real.close)
    house = _house(playbook, f"{upstream.url}/v1", ledger, real, stack)
    sockets.port = await _listening(house, stack)
    return sockets, World(house=house, server=server, other=other, credential=credential, chaos=chaos)


async def _listening(house: House, stack: AsyncExitStack) -> int:
    from proxy.server import ServerBounds  # noqa: PLC0415 - only this stage has a server
    from proxy.server.lifecycle import Server as Door  # noqa: PLC0415

    door = Door(partial(exchange, house), ServerBounds(linger=0.2), on_fault=lambda: house.fault("the door"))
    stack.push_async_callback(door.close)
    return await door.listen()


def _house(playbook: Playbook, url: str, ledger: Ledger, upstream: Any, stack: AsyncExitStack) -> House:
    policy = {"max_overflow_retries": playbook.cap, "window_kind": "total", **playbook.policy}
    if playbook.window is not None:
        policy["context_window"] = playbook.window
    settings = Settings.model_validate(
        {
            "upstreams": {f"up-{secrets.token_hex(4)}": url},  # what is learned of it is no other story's
            "defaults": policy,
            "models": playbook.models,
            "redis": {"timeout": f"{float(str(playbook.ledger.get('timeout', 2.0))) * 1000:.0f}ms"},
        }
    )

    async def nobody(method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        return 404, b""

    background = Background()
    windows = Windows(lambda name, model: resolve(settings, name, model), nobody)
    stack.push_async_callback(windows.close)
    stack.push_async_callback(background.close, 1.0)
    return House(
        settings=settings,
        upstreams=destinations(settings),
        dialects={"chat": CHAT},
        ledger=ledger,
        upstream=upstream,
        windows=windows,
        compactor=Builtin(),
        learning=Learning(ledger, background.spawn),
        secret=b"a secret for stories",
        background=background,
    )


async def _asked(playbook: Playbook, world: World, stage: Stage, ask: Ask, where: str) -> None:
    before = world.generation(ask) if ask.commits is not None else 0
    if ask.before is not None:
        await ask.before(world)
    faults, called = world.house.internal_faults, world.compactions
    stage.play(tuple(copy.says for copy in ask.copies))
    began = asyncio.get_running_loop().time()
    got = await stage.ask(world, ask)
    took = asyncio.get_running_loop().time() - began
    await _idle(world.house.background._tasks)
    await work.landed(3.0)
    try:
        assert not world.wrong, world.wrong
        assert took < ask.within, f"it took {took:.2f} s"
        assert world.house.internal_faults - faults == ask.faults, "faults of our own"
        assert ask.compactor is not None or world.compactions == called, "the compactor was called"
        _check(playbook, stage, ask, got)
        _check_conversation(world, ask, got)
        if ask.commits is not None:
            assert world.generation(ask) == before + ask.commits, "the generation"
    except AssertionError as error:
        error.add_note(where)
        raise


async def _idle(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait for work beside the request: marks and notes."""
    while tasks:
        await asyncio.wait(set(tasks), timeout=3.0)


def _check(playbook: Playbook, stage: Stage, ask: Ask, got: Got | None) -> None:
    """The invariants: copies, what they hold, what is forwarded, what the client is handed."""
    assert len(stage.seen) == len(ask.copies), "the number of copies"
    assert len(stage.seen) <= 1 + playbook.cap, "the cap (I2)"
    for seen, copy in zip(stage.seen, ask.copies, strict=True):
        assert seen.body == (ask.body if copy.sees is None else copy.sees), "what the upstream is sent"
        names = [name.lower() for name, _ in seen.headers]
        assert not [name for name in names if name.startswith("x-carryon")], "ours is forwarded"
        assert copy.sees is None or "content-encoding" not in names, "a projection goes as identity"
    if got is None:
        assert ask.leaves
        return
    said = ask.gets if isinstance(ask.gets, Says) else ask.copies[ask.gets].says
    assert got.status == said.status
    if not isinstance(ask.gets, Says):
        assert got.body == said.body, "the reply's bytes"
        assert _kept(got.headers) == _kept(said.headers), "the reply's headers"
    else:
        assert got.header("x-carryon-error") == json.loads(got.body)["error"]["code"]
    _check_headers(ask, got)
    stage.settled()


def _check_headers(ask: Ask, got: Got) -> None:
    if isinstance(ask.gets, Says):
        return
    assert got.header("x-carryon-action") == ask.action
    assert got.header("x-carryon-refused") == ask.refused
    assert (got.header("x-carryon-error") == "CONTEXT_WINDOW_EXCEEDED") is (ask.refused is not None)
    assert got.header("x-carryon-generation") == (None if ask.generation is None else str(ask.generation))
    if ask.skip is not None:
        assert got.header("x-carryon-skip") == ask.skip


def _check_conversation(world: World, ask: Ask, got: Got | None) -> None:
    """The reply names the conversation, without its tenant, exactly where there is one."""
    if got is not None and not isinstance(ask.gets, Says):
        found = read(world.house, world.incoming(ask))
        named = found.conversation.rpartition(".")[2] if isinstance(found, Turn) else None
        assert got.header("x-carryon-conversation") == named


def _kept(headers: Headers) -> list[tuple[str, str]]:
    return [
        (name.lower(), value)
        for name, value in headers
        if name.lower() not in _FRAMING and not name.lower().startswith("x-carryon-")
    ]
