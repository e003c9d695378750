"""The whole of Carryon between raw clients and a raw upstream that answers by the request's model: cases stay apart."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from proxy.boot import opened
from proxy.exchange import exchange
from proxy.house import House
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Door
from proxy.settings import Settings
from tests.e2e.deliveries import WINDOW, Answer, Delivery, Header, deliver
from tests.phrases import HISTORY, message
from tests.sockets import Peer, Raw, client, raw_upstream
from tests.store.servers import Server

#: Cases at a time, each on a connection of its own.
TOGETHER = 4

Line = tuple[Answer, Delivery]


@dataclass(slots=True)
class Played:
    """Carryon with this upstream behind it, and what passed."""

    house: House
    port: int
    lines: dict[str, deque[Line]]
    seen: dict[str, list[Raw]]
    peers: list[Peer] = field(default_factory=list)
    path: bytes = b"/v1/chat/completions"
    _mark: str = field(default_factory=lambda: secrets.token_hex(4))
    _count: itertools.count[int] = field(default_factory=itertools.count)

    async def ask(
        self, body: bytes, model: str, *lines: Line, headers: tuple[Header, ...] = (), all_said: bool = True
    ) -> Raw:
        """Send one request over a kept connection; its copies are answered so, in order, and recorded in `seen`."""
        peer = self.peers.pop()
        await self.send(peer, body, model, *lines, headers=headers)
        got = await peer.message()
        self.peers.append(peer)
        assert not (all_said and self.lines[model]), f"{model}: too few copies"
        self.lines[model].clear()
        return got

    async def send(self, peer: Peer, body: bytes, model: str, *lines: Line, headers: tuple[Header, ...] = ()) -> None:
        """Send one request and leave its reply to be read."""
        self.lines[model].extend(lines)
        self.seen[model].clear()
        given = ((b"Content-Type", b"application/json"), (b"Authorization", b"Bearer sk-" + model.encode()), *headers)
        head = b"".join(b"%s: %s\r\n" % header for header in given)
        request = b"POST %s HTTP/1.1\r\nHost: carryon\r\n%sContent-Length: %d\r\n\r\n" % (self.path, head, len(body))
        await peer.send(request + body)

    def model(self) -> str:
        """A model that no other case has: what is learned of it, and who asks, is its own."""
        return f"case-{self._mark}-{next(self._count)}"


@asynccontextmanager
async def played(
    store: Server, window: int | None = WINDOW, *, clients: int = 1, **more: object
) -> AsyncIterator[Played]:
    """Open the whole of Carryon, none of its parts replaced, before an upstream that answers by the model's name."""
    lines: dict[str, deque[Line]] = defaultdict(deque)
    seen: dict[str, list[Raw]] = defaultdict(list)

    async def serve(peer: Peer) -> None:
        keeps = True
        while keeps:
            raw = await peer.message()
            if not raw.start.startswith(b"POST /v1/"):  # Ollama is asked for its window by a POST as well
                await peer.send(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
                continue
            model = json.loads(raw.body)["model"]
            seen[model].append(raw)
            assert lines[model], f"{model}: one copy too many"
            keeps = await deliver(peer, *lines[model].popleft())

    async with (
        raw_upstream(serve) as upstream,
        opened(_settings(upstream.url, store, window, more)) as house,
    ):
        door = Door(partial(exchange, house), ServerBounds(linger=0.2), on_fault=lambda: house.fault("the door"))
        try:
            found = Played(house=house, port=await door.listen(), lines=lines, seen=seen)
            async with _connected(found, clients):
                yield found
        finally:
            await door.close()
        assert house.internal_faults == 0


@asynccontextmanager
async def _connected(found: Played, clients: int) -> AsyncIterator[None]:
    if not clients:
        yield
        return
    async with client(found.port) as peer, _connected(found, clients - 1):
        found.peers.append(peer)
        yield


def _settings(url: str, store: Server, window: int | None, more: dict[str, object]) -> Settings:
    policy: dict[str, object] = {"summary": {"method": "outline"}, "window_kind": "total"}
    if window is not None:
        policy["context_window"] = window
    given = {
        "upstreams": {"up": f"{url}/v1"},
        "redis": {"url": store.url, "durability": "memory", "timeout": "2s"},
        "secret": "a secret of at least thirty-two characters",
        "defaults": policy,
        **more,
    }
    return Settings.model_validate(given)


def request(model: str, *, stream: bool, messages: tuple[bytes, ...] = HISTORY) -> bytes:
    """A long conversation with this model: below the threshold of the window, and some 2,900 tokens."""
    system = message("system", "You are a pilot.")
    tail = b', "stream" :true' if stream else b""
    return b'{"x_unknown":1.50, "model" : "%s", "messages":[ %s ]%s}' % (
        model.encode(),
        b" , ".join((system, *messages)),
        tail,
    )


async def each(stage: Played, cases: Iterable[tuple[str, Callable[[], Awaitable[object]]]]) -> int:
    """Play cases, some at a time; a case that fails is named. Gives how many there were."""
    places, tried = asyncio.Semaphore(TOGETHER), 0

    async def play(label: str, case: Callable[[], Awaitable[object]]) -> None:
        async with places:
            try:
                await case()
            except Exception as error:
                error.add_note(label)
                raise

    async with asyncio.TaskGroup() as group:
        for label, case in cases:
            tried += 1
            group.create_task(play(label, case))
    return tried
