"""Stands between Carryon and the model server, passes everything on, and counts what went by."""

from __future__ import annotations

import json
from collections import Counter
from types import TracebackType
from typing import Self

from aiohttp import ClientSession, ClientTimeout, web

#: The client numbers its turns with this header; Carryon passes it on like any other.
TURN = "x-turn"
_TURNS = ("/chat/completions", "/responses", "/messages")
_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


class Recorder:
    """A pass-through on loopback. `copies` counts a turn's requests, `summaries` the requests Carryon made itself."""

    def __init__(self, upstream: str, limit: int) -> None:
        """Pass on to the origin of `upstream`; the client always asks for `limit` output tokens, a summary for more."""
        self._origin, self._limit = upstream.removesuffix("/v1"), limit
        self.copies: Counter[str] = Counter()
        self.summaries = 0
        self.statuses: list[int] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._session = ClientSession(timeout=ClientTimeout(total=300), auto_decompress=False)
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        chat = request.method == "POST" and request.path.endswith(_TURNS)
        if chat:
            self._count(request, json.loads(body))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        async with self._session.request(
            request.method, self._origin + request.path_qs, headers=headers, data=body or None
        ) as reply:
            if chat:
                self.statuses.append(reply.status)
            kept = [(name, value) for name, value in reply.headers.items() if name.lower() not in _HOP]
            answer = web.StreamResponse(status=reply.status, reason=reply.reason)
            for name, value in kept:
                answer.headers.add(name, value)
            await answer.prepare(request)
            async for data in reply.content.iter_any():
                await answer.write(data)
            await answer.write_eof()
            return answer

    def _count(self, request: web.Request, body: dict[str, object]) -> None:
        if self._limit in (body.get("max_tokens"), body.get("max_output_tokens")):
            self.copies[request.headers.get(TURN, "?")] += 1
        else:
            self.summaries += 1
