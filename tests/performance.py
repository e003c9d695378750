"""Plays playbooks, and checks after every request what must hold whatever happened."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from proxy.compaction import landing
from proxy.compaction.builtin import Builtin
from proxy.compaction.job import Compactor
from proxy.core.identity import opaque
from proxy.dialects.chat import CHAT
from proxy.exchange import exchange
from proxy.house import Background, House, destinations, policies
from proxy.learning import Learning
from proxy.message import Headers
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Door
from proxy.settings import Settings
from proxy.steps.turn import Turn, read
from proxy.store import Ledger
from proxy.store.redis import RedisLedger
from proxy.upstream import Bounds
from proxy.upstream.client import Client
from proxy.windows import Windows
from tests.playbook import Ask, Got, Playbook, Says, Script, Stage, World
from tests.sockets import raw_upstream
from tests.stages import InProcess, InProcessStage, OverSockets
from tests.store.chaos import Chaos
from tests.store.servers import SEALS, Server

#: Headers that frame or date a message: they may differ on the way.
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "date"})


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
    ledger = RedisLedger(url, seals=SEALS, **{"timeout": 2.0, "durability": "memory", **playbook.ledger})  # type: ignore[arg-type]
    other = RedisLedger(server.url, seals=SEALS, timeout=2.0, durability="memory")
    stack.push_async_callback(ledger.close)
    stack.push_async_callback(other.close)
    credential = f"Bearer {secrets.token_hex(8)}"
    if kind == "process":
        door = InProcess()
        house = _house(playbook, "http://upstream.test/v1", ledger, door, stack)
        return InProcessStage(door), World(house=house, server=server, other=other, credential=credential, chaos=chaos)
    sockets = OverSockets()
    upstream = await stack.enter_async_context(raw_upstream(sockets.serve))
    hangs = any(copy.says.fault == "first_byte" for ask in playbook.asks for copy in ask.copies)
    real = Client(bounds=Bounds(first_byte=0.3, connect=0.2) if hangs else Bounds())
    stack.push_async_callback(real.close)
    house = _house(playbook, f"{upstream.url}/v1", ledger, real, stack)
    sockets.port = await _listening(house, stack)
    return sockets, World(house=house, server=server, other=other, credential=credential, chaos=chaos)


async def _listening(house: House, stack: AsyncExitStack) -> int:
    door = Door(partial(exchange, house), ServerBounds(linger=0.2), on_fault=lambda: house.fault("the door"))
    stack.push_async_callback(door.close)
    return await door.listen()


def _house(playbook: Playbook, url: str, ledger: Ledger, upstream: Any, stack: AsyncExitStack) -> House:
    policy = {
        "max_overflow_retries": playbook.cap,
        "window_kind": "total",
        "pressure": {"after_reply": False},
        **playbook.policy,
    }
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

    resolved = policies(settings)

    async def nobody(upstream: str, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        return 404, b""

    background = Background()
    windows = Windows(resolved, nobody)
    stack.push_async_callback(windows.close)
    stack.push_async_callback(background.close, 1.0)
    return House(
        settings=settings,
        policies=resolved,
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
    await landing.landed(3.0)
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
        named = opaque(found.conversation) if isinstance(found, Turn) else None
        assert got.header("x-carryon-conversation") == named


def _kept(headers: Headers) -> list[tuple[str, str]]:
    return [
        (name.lower(), value)
        for name, value in headers
        if name.lower() not in _FRAMING and not name.lower().startswith("x-carryon-")
    ]
