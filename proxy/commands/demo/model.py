"""The demo's upstream: a scripted model behind a real socket, with a window that it defends.

It counts 1.3 times what Carryon's meter estimates, as some models do, and reports no usage: Carryon has
only its own estimate, until a refusal states a count. It answers like `/v1/chat/completions`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from aiohttp import web

from proxy.core.meter import Meter
from proxy.dialects.chat import CHAT
from proxy.tokens import count_with

__all__ = ["COUNTS_MORE", "WINDOW", "ScriptedModel"]

#: In the model's own tokens.
WINDOW = 8_192
COUNTS_MORE = 1.3
_SUMMARY = """## Objective
Find out why the nightly import fails and mend it.
## Rules and preferences
Never touch vendor/. Every change has a test.
## Requests
The task is open; all steps so far belong to it.
## State of the work and how it was verified
The files read so far were examined one after the other; nothing is verified by a test run yet.
## Artifacts
src/import/step_*.py were read.
## Findings and errors
The reader stops at the first line that is longer than its buffer.
## Decisions with reasons
Read on before changing anything, because the buffer is shared.
## Open questions
Who fills the buffer?
## Next action if interrupted
Read the next file of src/import.
## Reply language
English"""


def _meter() -> Meter:
    return Meter(CHAT.weigh, count_with("o200k_base"))


@dataclass(slots=True)
class ScriptedModel:
    """Counts, refuses or answers; a request without the use of tools is taken for a summary.

    `window` is in its own tokens; with `defends` false it answers whatever its size. `counts` are the
    tokens of every copy it saw, summaries apart; `refusal` is the body of its newest refusal.
    """

    window: int = WINDOW
    defends: bool = True
    meter: Meter = field(default_factory=_meter)
    counts: list[int] = field(default_factory=list)
    refusal: bytes = b""
    _turns: int = 0

    def app(self) -> web.Application:
        """Make the application to serve."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "demo", "object": "model"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        raw = await request.read()
        transcript = CHAT.split(raw)
        if transcript is None:
            return web.json_response({"error": {"message": "not a chat request"}}, status=400)
        if json.loads(raw).get("tool_choice") == "none":
            return _reply(_SUMMARY)
        counted = math.ceil(self.meter.total(transcript.envelope, transcript.items) * COUNTS_MORE)
        self.counts.append(counted)
        if self.defends and counted > self.window:
            self.refusal = _refusal(counted, self.window)
            return web.Response(status=400, body=self.refusal, content_type="application/json")
        self._turns += 1
        return _reply(f"I have read it. The cause is not in this file; step {self._turns} is done, on to the next.")


def _refusal(counted: int, window: int) -> bytes:
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {counted} "
        "tokens. Please reduce the length of the messages."
    )
    kind = {"type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return json.dumps({"error": {"message": message, **kind}}, indent=2).encode()


def _reply(text: str) -> web.Response:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response({"id": "demo", "object": "chat.completion", "model": "demo", "choices": [choice]})
