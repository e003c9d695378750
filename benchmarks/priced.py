"""An upstream with prices: it has a prompt cache, a window it refuses beyond, and a summariser as told.

A token is four bytes of the request. What a request has in common with the latest turn, or the latest request for a
summary, of its conversation, byte for byte from the start, is read from the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.e2e.listening import listening
from tests.e2e.scribe import INSTRUCTION, good

BYTES = 4
#: Units for a token of input that is not cached, of one that is, and of output.
FRESH, CACHED, OUTPUT = 1.0, 0.1, 5.0
_REPLY_TOKENS = 50
_MARK = INSTRUCTION.removesuffix(" above").encode()
_END = 3_000


def common(one: bytes, other: bytes) -> int:
    """Bytes that two requests begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


@dataclass(slots=True)
class Bill:
    """What one conversation cost so far, in tokens by price."""

    fresh: int = 0
    cached: int = 0
    output: int = 0
    _latest: dict[bool, bytes] = field(default_factory=dict)

    def asked(self, body: bytes, *, summary: bool = False) -> int:
        """One request's prompt; its tokens."""
        size = -(-len(body) // BYTES)
        hit = max((common(body, known) for known in self._latest.values()), default=0) // BYTES
        self.fresh, self.cached = self.fresh + size - hit, self.cached + hit
        self._latest[summary] = body
        return size

    @property
    def units(self) -> float:
        """Its price."""
        return self.fresh * FRESH + self.cached * CACHED + self.output * OUTPUT


def honest(prompt: int) -> int:
    """The usage that is so."""
    return prompt


@dataclass(slots=True, kw_only=True)
class Model:
    """One conversation's model. `window` is the true one; `usage` makes of the true count what is reported."""

    window: int | None = None
    usage: Callable[[int], int] = honest
    #: Seconds a summary takes, and the status it ends with.
    seconds: float = 0.0
    status: int = 200
    #: Seconds a turn takes.
    thinks: float = 0.0
    bill: Bill = field(default_factory=Bill)
    turns: int = 0
    summaries: int = 0
    refused: int = 0
    largest: int = 0

    async def answer(self, body: bytes) -> web.Response:
        """A turn, or a request for a summary."""
        summary = _MARK in body[-_END:]
        size = -(-len(body) // BYTES)
        if self.window is not None and size > self.window:
            self.refused += 1
            return _refusal(size, self.window)
        self.bill.asked(body, summary=summary)
        self.largest = max(self.largest, size)
        if not summary:
            self.turns += 1
            await asyncio.sleep(self.thinks)
            return _said("Done.", self.usage(size), _REPLY_TOKENS)
        self.summaries += 1
        await asyncio.sleep(self.seconds)
        if self.status != 200:
            return web.json_response({"error": {"message": "no", "type": "server_error"}}, status=self.status)
        text = good(self.summaries)
        self.bill.output += len(text) // BYTES
        return _said(text, size, len(text) // BYTES)


def _said(text: str, prompt: int, completion: int) -> web.Response:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return web.json_response(
        {"id": "r", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    )


def _refusal(size: int, window: int) -> web.Response:
    said = f"This model's maximum context length is {window} tokens. However, your messages resulted in {size} tokens."
    error = {"message": said, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return web.json_response({"error": error}, status=400)


@asynccontextmanager
async def priced(models: dict[str, Model]) -> AsyncIterator[str]:
    """These models behind one address."""

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        name = body[: body.index(b",")].split(b'"')[3].decode()
        return await models[name].answer(body)

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", answer)
    async with listening(app) as url:
        yield url
