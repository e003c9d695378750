"""A recording upstream that speaks all three APIs, and a stage: sends what clients sent and judges what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web

from tests.e2e.apis import Api
from tests.e2e.carryon import Carryon
from tests.e2e.listening import listening
from tests.e2e.reading import READINGS
from tests.e2e.replay import WINDOWS, Ask
from tests.e2e.stored import PATIENT, proxied
from tests.e2e.talk import Reply
from tests.e2e.witness import Seen, Witness
from tests.store.servers import Server

#: Cache marks that a body of `messages` may have.
_MOST_MARKS = 4
#: Headers of a client that a request for a summary has otherwise.
_OF_A_REPLY = {"accept", "content-type", "x-stainless-raw-response"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One request as it arrived."""

    api: str
    target: str
    headers: dict[str, str]
    body: bytes
    json: dict[str, Any] = field(repr=False)
    summary: bool = False


class Upstream:
    """Answers turns at once, and requests for summaries with ones that say what they were made of."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.witnesses = {name: Witness(reading) for name, reading in READINGS.items()}
        self.url = ""

    def turns(self, *, since: int = 0) -> list[Heard]:
        """The clients' own requests."""
        return [one for one in self.heard[since:] if not one.summary]

    async def answer(self, api: Api, request: web.Request) -> web.StreamResponse:
        """One request. No usage is reported: what a reply teaches is shown elsewhere."""
        body = await request.read()
        parsed = json.loads(body)
        heard = Heard(
            api=api.name,
            target=request.path_qs.removeprefix("/v1"),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
            json=parsed,
            summary=READINGS[api.name].asks_for_summary(parsed),
        )
        self.heard.append(heard)
        said = self.witnesses[api.name].summary(heard, len(self.heard)) if heard.summary else "Done."
        if not parsed.get("stream"):
            return web.json_response(api.whole(said, 0))
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        await reply.write(b"".join(api.frames(said, 0)))
        await reply.write_eof()
        return reply


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    """The upstream on loopback."""
    found, app = Upstream(), web.Application(client_max_size=1 << 28)
    for reading in READINGS.values():

        async def answer(request: web.Request, api: Api = reading.api) -> web.StreamResponse:
            return await found.answer(api, request)

        app.router.add_post("/v1" + reading.api.path.partition("?")[0], answer)
    async with listening(app) as found.url:
        yield found


@dataclass(slots=True, kw_only=True)
class Row:
    """What one client's session came to."""

    name: str
    api: str = ""
    requests: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    summaries: int = 0
    needed: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def extra(self) -> int:
        """Summaries beyond those that the session alone needs."""
        return max(0, self.summaries - self.needed)

    def __str__(self) -> str:
        told = (self.requests, *(self.actions[one] for one in ("pass", "pressure", "projected")))
        figures = (*told, self.summaries, self.needed, self.extra, len(self.wrong))
        return f"{self.name:58} {self.api:9}" + "".join(f"{one:>10}" for one in figures)

    @staticmethod
    def head() -> str:
        """What the columns are."""
        columns = ("requests", "verbatim", "packed", "projected", "summaries", "alone", "extra", "wrong")
        return f"{'':58} {'api':9}" + "".join(f"{one:>10}" for one in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one request: the client's reply, what the upstream saw of it, and what that showed."""

    reply: Reply
    turn: Heard
    asked: list[Heard]
    seen: Seen


class Stage:
    """Sends what clients sent and judges what came of it."""

    def __init__(self, url: str, upstream: Upstream, session: ClientSession, running: Carryon | None = None) -> None:
        self.url, self.upstream, self._session, self.running = url, upstream, session, running
        self._surfaces: dict[tuple[str, int], bytes] = {}
        #: Clients' lines of which a surface was applied.
        self._packed: set[tuple[str, int]] = set()

    async def post(self, ask: Ask, key: str, body: bytes | None = None, **headers: str) -> Reply:
        """Send a request's bytes, or others in their place."""
        own = {**ask.headers, "Authorization": f"Bearer {key}", "Content-Type": "application/json", **headers}
        content = ask.spelled if body is None else body
        async with self._session.post(self.url + ask.target, data=content, headers=own) as reply:
            return Reply(status=reply.status, headers=reply.headers.copy(), body=await reply.read())

    async def outcome(self, ask: Ask, key: str, **headers: str) -> Outcome:
        """Send one request; nobody else speaks meanwhile."""
        before, sent = len(self.upstream.heard), ask.spelled
        reply = await self.post(ask, key, **headers)
        assert reply.status == 200, reply.body
        *asked, turn = self.upstream.heard[before:]
        seen = self.upstream.witnesses[ask.api].judged(turn.body, sent)
        return Outcome(reply=reply, turn=turn, asked=asked, seen=seen)

    async def send(self, row: Row, ask: Ask, key: str) -> Outcome:
        """Send one request and put into the row what the upstream saw."""
        found = await self.outcome(ask, key)
        row.requests += 1
        row.actions[found.reply.action] += 1
        row.summaries += len(found.asked)
        witness = self.upstream.witnesses[ask.api]
        wrong = [*(witness.asked(one, ask.spelled) for one in found.asked), found.seen.wrong]
        wrong += [_lost(one, ask) or _invalid(one) for one in (*found.asked, found.turn)]
        wrong += self._reported(found), self._expected(key + row.name, ask, found)
        row.wrong += [f"{row.name}, request {row.requests}: {one}" for one in wrong if one]
        return found

    def _reported(self, found: Outcome) -> str:
        """Whether the headers say what was sent: a generation is one surface, and one surface a generation."""
        reply, surface = found.reply, found.seen.surface
        if (reply.generation == 0) != (surface == b"") or (reply.action == "pass") != (surface == b""):
            return f"{reply.action}, generation {reply.generation}, but the body says otherwise"
        if found.asked and reply.action != "pressure":
            return "a summary was made and not used"
        known = self._surfaces.setdefault((reply.conversation, reply.generation), surface)
        return "" if known == surface else f"generation {reply.generation} is another surface than before"

    def _expected(self, session: str, ask: Ask, found: Outcome) -> str:
        """Whether a line that was packed stays packed, and a client's own compaction starts no other."""
        place, packed = (session, ask.line), bool(found.seen.surface)
        if ask.kind == "own" and (found.asked or found.reply.action == "pressure"):
            return "the client's own compaction was packed for"
        if ask.kind == "main" and packed:
            self._packed.add(place)
        return "" if packed or ask.kind == "beside" or place not in self._packed else "a packed session was sent raw"


def _lost(heard: Heard, ask: Ask) -> str:
    """What of the client's address and headers did not arrive."""
    if heard.target != ask.target:
        return f"sent to {heard.target}"
    skipped = _OF_A_REPLY if heard.summary else ()
    lost = [
        name
        for name, value in ask.headers.items()
        if name.lower() not in skipped and heard.headers.get(name.lower()) != value
    ]
    return f"lost headers {lost}, summary={heard.summary}" if lost else ""


def _invalid(heard: Heard) -> str:
    """Why the API would reject it."""
    marks = heard.body.count(b'"cache_control":') if heard.api == "messages" else 0
    if marks > _MOST_MARKS:
        return f"{marks} cache marks"
    return READINGS[heard.api].api.problem(heard.json) or ""


@asynccontextmanager
async def staged(store: Server, state: Path, *options: str, **environment: str) -> AsyncIterator[Stage]:
    """A proxy that knows three windows by the models' names, before a recording upstream."""
    models = [{"model": f"{name}-model", "context_window": size} for name, size in WINDOWS.items()]
    config = state / "carryon.yaml"
    config.write_text(json.dumps({"defaults": {"context_window": 1_000_000}, "models": models}))
    async with upstream() as found, ClientSession(timeout=ClientTimeout(total=100)) as session:
        running = proxied(store, found.url, state, "--config", str(config), *options, **{**PATIENT, **environment})
        try:
            yield Stage(await running.start(), found, session, running)
        finally:
            code = await running.stop()
        assert code == 0
        assert not running.events("internal-fault")
        assert not running.events("surface-retired")
