"""Traffic of every kind a store matters to, its upstream, and what the client waited for each."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import quantiles

import aiohttp
from aiohttp import web

from tests.e2e.listening import listening

__all__ = ["KINDS", "Asked", "Traffic", "narrow", "p99"]

#: The window of every model here, in tokens; `tight` refuses bodies over so many bytes all the same.
WINDOW = 20_000
ROOM = 24_000
TIGHT = "tight"
OK = {"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": "aye"}, "finish_reason": "stop"}]}
OVER = {"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}}

Message = dict[str, object]


@asynccontextmanager
async def narrow() -> AsyncIterator[str]:
    """Run the upstream; its base URL."""

    async def chat(request: web.Request) -> web.Response:
        body = await request.read()
        over = len(body) > ROOM and body.startswith(b'{"model": "%s"' % TIGHT.encode())
        return web.json_response(OVER if over else OK, status=400 if over else 200)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/chat/completions", chat)
    async with listening(app) as url:
        yield url


def _steps(first: int, last: int, lines: int) -> list[Message]:
    found: list[Message] = []
    for at in range(first, last):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "read", "arguments": f'{{"path":"f{at}"}}'}}
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"line of file {at}\n" * lines})
    return found


def _opening(name: str) -> list[Message]:
    return [{"role": "system", "content": "Be careful."}, {"role": "user", "content": f"Mend {name}."}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: of which kind, when (monotonic), how long it took, and what came."""

    kind: str
    at: float
    took: float
    status: int
    action: str
    skip: str
    refused: str
    error: str

    @property
    def well(self) -> bool:
        """Whether the client got what the upstream says: never an error of Carryon's own."""
        if self.kind == "overflow" and self.action == "overflow-refused":
            return self.status == 400
        return self.status == 200 and not self.error

    @property
    def stored(self) -> bool:
        """Whether the store plainly took part: a new replacement landed and was proven."""
        return self.action == "overflow-retry"


def _below(traffic: Traffic) -> tuple[str, list[Message]]:
    """So small that its bytes prove it: the store is not asked."""
    return "wide", [*_opening("a detail"), *_steps(0, 1, 20)]


def _looked(traffic: Traffic) -> tuple[str, list[Message]]:
    """Below the threshold in tokens, not in bytes: looked up, nothing found."""
    return "wide", [*_opening("a module"), *_steps(0, 12, 120)]


def _packed(traffic: Traffic) -> tuple[str, list[Message]]:
    """Over the threshold; its surface was stored before."""
    return "wide", [*_opening(f"all of {traffic.name}"), *_steps(0, 45, 120), *_steps(45, 45 + traffic.turn % 3, 5)]


def _fresh(traffic: Traffic) -> tuple[str, list[Message]]:
    """Over the threshold for the first time: to be packed before it is sent."""
    return "wide", [*_opening(secrets.token_hex(8)), *_steps(0, 45, 120)]


def _overflow(traffic: Traffic) -> tuple[str, list[Message]]:
    """Below the threshold, and refused by its upstream as too long."""
    return TIGHT, [*_opening(secrets.token_hex(8)), *_steps(0, 16, 120)]


KINDS: dict[str, Callable[[Traffic], tuple[str, list[Message]]]] = {
    "below": _below,
    "looked": _looked,
    "packed": _packed,
    "fresh": _fresh,
    "overflow": _overflow,
}


@dataclass
class Traffic:
    """One client; it keeps what it asked and what came. Its conversation `packed` is packed by `prepare`."""

    url: str
    session: aiohttp.ClientSession
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    turn: int = 0

    async def ask(self, kind: str) -> Asked:
        """Send one request of a kind."""
        model, messages = KINDS[kind](self)
        self.turn += 1
        body = json.dumps({"model": model, "messages": messages}).encode()
        headers = {"Authorization": "Bearer sk-team", "Content-Type": "application/json"}
        began = time.monotonic()
        async with self.session.post(f"{self.url}/chat/completions", data=body, headers=headers) as got:
            await got.read()
            named = {name: got.headers.get(f"x-carryon-{name}", "") for name in ("action", "skip", "refused", "error")}
            error = "" if named["refused"] else named["error"]
            took = time.monotonic() - began
        return Asked(kind=kind, at=began, took=took, status=got.status, **{**named, "error": error})

    async def prepare(self) -> None:
        """Pack the conversation that is to be packed."""
        packed = await self.ask("packed")
        assert packed.action == "pressure", packed
        assert (await self.ask("packed")).action == "projected"

    async def run(self, kinds: Iterable[str], into: list[Asked], *, pause: float = 0.0) -> None:
        """Ask one kind after the other until cancelled."""
        kinds = tuple(kinds)
        with suppress(asyncio.CancelledError):
            while True:
                for kind in kinds:
                    into.append(await self.ask(kind))
                    await asyncio.sleep(pause)

    async def recovered(self, since: float, within: float) -> float:
        """Ask until the store takes part again; seconds since `since`. Raises `TimeoutError`."""
        while time.monotonic() - since < within:
            if (await self.ask("overflow")).stored:
                return time.monotonic() - since
            await asyncio.sleep(0.05)
        raise TimeoutError


def p99(seconds: list[float]) -> float:
    """The 99th percentile."""
    return quantiles(seconds, n=100, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
