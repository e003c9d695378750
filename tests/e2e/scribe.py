"""An upstream that writes down every request as it came, answers turns at once, and summarises as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from proxy.core.meter import Meter
from proxy.dialects.chat import CHAT
from proxy.tokens import count_with

METER = Meter(CHAT.weigh, count_with("o200k_base"))
#: How each request for a summary begins (`proxy/compaction/prompts`).
INSTRUCTION = "Write a summary of the conversation"
HEADINGS = (
    "Objective",
    "Rules and preferences",
    "Requests",
    "State of the work",
    "Artifacts",
    "Findings and errors",
    "Decisions",
    "Open questions",
    "Next action",
    "Reply language",
)


def good(number: int) -> str:
    """A summary under all ten headings that names its number."""
    return "\n\n".join(f"## {heading}\n{heading} as of summary {number}." for heading in HEADINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it arrived: path with query, headers in order, body bytes."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    json: dict[str, Any] = field(repr=False)

    @property
    def model(self) -> str:
        """The model it names."""
        return str(self.json["model"])

    @property
    def asks_for_summary(self) -> bool:
        """Whether Carryon made it itself."""
        return self.said.startswith(INSTRUCTION)

    @property
    def said(self) -> str:
        """Its newest message, where that is plain text."""
        said = self.json["messages"][-1].get("content")
        return said if isinstance(said, str) else ""


def split(body: bytes) -> tuple[bytes, list[bytes], bytes]:
    """What stands before the messages, each message, what stands after; for bodies spelt without spaces there."""
    marker = b'"messages":['
    start = body.index(marker) + len(marker)
    text, decoder, found, at = body.decode(), json.JSONDecoder(), [], len(body[:start].decode())
    while text[at] != "]":
        at += text[at] == ","
        stop = decoder.raw_decode(text, at)[1]
        found.append(text[at:stop].encode())
        at = stop
    return body[:start], found, text[at:].encode()


def message(
    text: str | None, *, finish: str = "stop", usage: dict[str, int] | None = None, **more: object
) -> web.Response:
    """A whole reply."""
    said = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    told = {"usage": usage} if usage else {}
    reply = {"id": "r", "object": "chat.completion", "model": "scribe-1", "choices": [choice], **told}
    return web.json_response(reply)


Summariser = Callable[[Request, int], Awaitable[web.Response]]


async def summarises_well(request: Request, number: int) -> web.Response:
    """Answer with a good summary."""
    return message(good(number))


class Scribe:
    """The upstream, on loopback, in this process. `summarisers` may be set by model, `windows` is what it reports.

    `limits` are the tokens over which it refuses all that names a model, by the model.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.summarisers: dict[str, Summariser] = {}
        self.windows: dict[str, int] = {}
        #: By model: what its turns wait for before they are answered.
        self.holds: dict[str, asyncio.Event] = {}
        #: By model: the usage in the replies to its turns.
        self.usage: dict[str, dict[str, int]] = {}
        self.limits: dict[str, int] = {}
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def of(self, model: str, *, summaries: bool) -> list[Request]:
        """The turns of a model, or Carryon's requests for summaries."""
        return [one for one in self.requests if one.model == model and one.asks_for_summary is summaries]

    async def _models(self, request: web.Request) -> web.Response:
        data = [{"id": name, "object": "model", "max_model_len": size} for name, size in self.windows.items()]
        return web.json_response({"object": "list", "data": data})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen = Request(path=request.path_qs, headers=tuple(request.headers.items()), body=body, json=json.loads(body))
        self.requests.append(seen)
        if (limit := self.limits.get(seen.model)) is not None and (size := _tokens(body)) > limit:
            return _refused(limit, size)
        if seen.asks_for_summary:
            number = len(self.of(seen.model, summaries=True))
            return await self.summarisers.get(seen.model, summarises_well)(seen, number)
        text = f"Answer {len(self.of(seen.model, summaries=False))}."
        if seen.model in self.holds:
            await self.holds[seen.model].wait()
        if seen.json.get("stream"):
            return await _streamed(request, text)
        return message(text, usage=self.usage.get(seen.model))


def _tokens(body: bytes) -> int:
    """The tokens of a request, as Carryon counts them too."""
    found = CHAT.split(body)
    assert found is not None
    return METER.total(found.envelope, found.items)


def _refused(limit: int, size: int) -> web.Response:
    text = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {size} tokens."
    error = {"message": text, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return web.json_response({"error": error}, status=400)


async def _streamed(request: web.Request, text: str) -> web.StreamResponse:
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    for delta, finish in (({"role": "assistant"}, None), ({"content": text}, None), ({}, "stop")):
        chunk = {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        await reply.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await asyncio.sleep(0)
    await reply.write(b"data: [DONE]\n\n")
    await reply.write_eof()
    return reply
