"""One agent's conversation outlives the window on each of three APIs, streamed and not: `carryon serve`, a real Valkey.

The upstream counts every prompt itself, refuses what is too long in its API's own words, and would reject whatever
breaks its API's order.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from tests.e2e.apis import APIS, Api, Json
from tests.e2e.listening import listening
from tests.e2e.scribe import good
from tests.e2e.stored import proxied
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

WINDOW = 8_192
#: Steps whose history is three windows long.
STEPS = 30


class Upstream:
    """Speaks one API with a window of its own; keeps what it was sent, and what it would have rejected."""

    def __init__(self, api: Api, window: int, *, only_streams: bool = False) -> None:
        """`only_streams` refuses a request that is not streamed, and a limit where the API needs none."""
        self.api, self.window, self.only_streams = api, window, only_streams
        self.turns: list[Json] = []
        self.summaries: list[Json] = []
        self.refused = 0
        self.problems: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        body = json.loads(await request.read())
        if problem := self.api.problem(body):
            self.problems.append(problem)
            return web.json_response({"error": {"message": problem, "type": "invalid_request_error"}}, status=400)
        if self.only_streams and (detail := _unwanted(body)):
            self.problems.append(detail)
            return web.json_response({"detail": detail}, status=400)
        prompt = len(json.dumps(body)) // 4
        summary = self.api.asks_for_summary(body)
        (self.summaries if summary else self.turns).append(body)
        if prompt > self.window:
            self.refused += 1
            return web.json_response(self.api.refusal(prompt, self.window), status=400)
        text = good(len(self.summaries)) if summary else f"Answer {len(self.turns)}."
        if not body.get("stream"):
            return web.json_response(self.api.whole(text, prompt))
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for frame in self.frames(body, text, prompt):
            await reply.write(frame)
        await reply.write_eof()
        return reply

    def frames(self, body: Json, text: str, prompt: int) -> Iterable[bytes]:
        """A streamed reply; a summary for the models `cut` and `error` has no good end."""
        frames = list(self.api.frames(text, prompt))
        if not self.api.asks_for_summary(body) or body["model"] == "whole":
            return frames
        error = [b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n']
        return frames[:-3] + (error if body["model"] == "error" else [])


def _unwanted(body: Json) -> str:
    """As ChatGPT's backend for Codex says it."""
    if body.get("stream") is not True:
        return "Stream must be set to true"
    return "Unsupported parameter: max_output_tokens" if "max_output_tokens" in body else ""


@asynccontextmanager
async def serving(upstream: Upstream) -> AsyncIterator[str]:
    """The upstream on loopback; gives its base URL."""
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1" + upstream.api.path.partition("?")[0], upstream.answer)
    async with listening(app) as url:
        yield url


async def _ask(session: ClientSession, url: str, api: Api, body: Json) -> tuple[int, Any, bytes]:
    headers = {"Authorization": f"Bearer sk-{body['model']}", "Content-Type": "application/json"}
    async with session.post(url + api.path, data=json.dumps(body).encode(), headers=headers) as reply:
        return reply.status, reply.headers, await reply.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("known", [True, False], ids=["window known", "window unknown"])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_a_conversation_outlives_its_window(
    *,
    api: Api,
    known: bool,
    stream: bool,
    ledger: Server,
    tmp_path: Path,
) -> None:
    """Every turn of three windows is answered with the upstream's own bytes, and nothing invalid is ever sent."""
    upstream = Upstream(api, WINDOW)
    model = f"{api.name}-{known}-{stream}"
    options = ("--window", str(WINDOW)) if known else ()
    actions = []
    async with serving(upstream) as url:
        running = proxied(ledger, url, tmp_path, *options)
        base = await running.start()
        async with ClientSession() as session:
            for steps in range(STEPS + 1):
                body = api.body(model, api.history(steps), stream=stream)
                status, headers, said = await _ask(session, base, api, body)
                assert (status, upstream.problems) == (200, []), said
                actions.append(headers["x-carryon-action"])
                prompt = len(json.dumps(upstream.turns[-1])) // 4
                text = f"Answer {len(upstream.turns)}."
                expected = b"".join(api.frames(text, prompt)) if stream else None
                assert said == (expected or json.dumps(api.whole(text, prompt)).encode())
        assert await running.stop() == 0
    assert len(json.dumps(body)) // 4 > 3 * WINDOW
    assert {"pressure" if known else "overflow-retry", "projected"} <= set(actions)
    assert upstream.summaries if known else upstream.refused
    assert not running.events("internal-fault")
    assert not running.events("surface-retired")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_an_upstream_that_only_streams_is_asked_in_that_manner(api: Api, ledger: Server, tmp_path: Path) -> None:
    """Its summary is read from the stream; one that breaks off or holds an error is none, and code serves."""
    upstream = Upstream(api, WINDOW, only_streams=True)
    async with serving(upstream) as url:
        running = proxied(ledger, url, tmp_path, "--window", str(WINDOW))
        base = await running.start()
        async with ClientSession() as session:
            for model, rung in (("whole", "S1"), ("cut", "S4"), ("error", "S4")):
                asked, steps, action = len(upstream.summaries), 5, "pass"
                while action == "pass":
                    body = api.body(model, api.history(steps := steps + 1), stream=True)
                    body.pop("max_output_tokens", None)
                    status, headers, _ = await _ask(session, base, api, body)
                    action = headers["x-carryon-action"]
                    assert (status, upstream.problems) == (200, [])
                assert action == "pressure" if rung == "S1" else action in ("pressure", "overflow-retry")
                assert len(upstream.summaries) == asked + 1 if rung == "S1" else len(upstream.summaries) > asked
                shown = "".join(map(api.texts, upstream.turns[-1][api.field]))
                assert (good(asked + 1) in shown) is (rung == "S1")
                assert running.events("commit")[-1]["summary"] in ((rung,) if rung == "S1" else ("prune", rung))
        assert await running.stop() == 0
    assert [one["finish"] for one in running.events("summary-rejected")] == ["unreadable"] * (
        len(upstream.summaries) - 1
    )
    assert not running.events("summary-refused")
