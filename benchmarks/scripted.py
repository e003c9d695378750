"""The real proxy before an upstream on loopback that writes down what it hears and answers as told."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web

from tests.e2e.apis import Api
from tests.e2e.carryon import Carryon
from tests.e2e.listening import listening
from tests.e2e.reading import READINGS
from tests.e2e.scribe import INSTRUCTION

#: Nothing may run out of time on a slow machine; and it is known which request is packed.
PATIENT = {
    "CARRYON_DEFAULTS__SUMMARY__TIMEOUT": "60s",
    "CARRYON_REDIS__TIMEOUT": "20s",
    "CARRYON_LOG__LEVEL": "info",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One request as it arrived."""

    api: str
    body: bytes
    json: dict[str, Any] = field(repr=False)
    summary: bool = False


Summarise = Callable[[Heard], str]


class Scripted:
    """Answers turns with one word, and requests for summaries as `summarise` says. `heard` is all that came."""

    def __init__(self, summarise: Summarise) -> None:
        self.heard: list[Heard] = []
        self._summarise = summarise
        self.url = ""

    async def answer(self, api: Api, request: web.Request) -> web.StreamResponse:
        """One request, streamed where it asks for that."""
        body = await request.read()
        parsed = json.loads(body)
        heard = Heard(api=api.name, body=body, json=parsed, summary=asks_for_summary(api.name, parsed))
        self.heard.append(heard)
        said = self._summarise(heard) if heard.summary else "Done."
        if not parsed.get("stream"):
            return web.json_response(api.whole(said, 0))
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        await reply.write(b"".join(api.frames(said, 0)))
        await reply.write_eof()
        return reply


def asks_for_summary(api: str, body: dict[str, Any]) -> bool:
    """Whether Carryon made this request itself."""
    reading = READINGS[api]
    newest = reading.read(body[reading.field][-1])
    return newest is not None and newest.text.startswith(INSTRUCTION.removesuffix(" above"))


@asynccontextmanager
async def scripted(summarise: Summarise) -> AsyncIterator[Scripted]:
    """An upstream that speaks all three APIs."""
    found, app = Scripted(summarise), web.Application(client_max_size=1 << 28)
    for reading in READINGS.values():

        async def answer(request: web.Request, api: Api = reading.api) -> web.StreamResponse:
            return await found.answer(api, request)

        app.router.add_post("/v1" + reading.api.path.partition("?")[0], answer)
    async with listening(app) as found.url:
        yield found


@asynccontextmanager
async def carried(
    upstream: str, *options: str, models: Sequence[dict[str, Any]] = (), **environment: str
) -> AsyncIterator[Carryon]:
    """`carryon serve` with an embedded store of its own; it must end well and without a fault of ours."""
    with tempfile.TemporaryDirectory(prefix="carryon-bench-") as folder:
        state = Path(folder)
        config = state / "carryon.yaml"
        config.write_text(json.dumps({"models": list(models)}))
        running = Carryon(upstream, state, "--config", str(config), *options, **{**PATIENT, **environment})
        await running.start()
        try:
            yield running
        finally:
            code = await running.stop()
        faults = [name for name in ("internal-fault", "background-failed") if running.events(name)]
        if code or faults:
            raise SystemExit(f"carryon ended with {code}, {faults}: {running.log[-2_000:]}")


@asynccontextmanager
async def clients() -> AsyncIterator[ClientSession]:
    """A client's connections."""
    async with ClientSession(timeout=ClientTimeout(total=120)) as session:
        yield session
