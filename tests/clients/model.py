"""A scripted upstream with a true window: it reads page after page with whatever tool the client offers.

It counts each request itself (four characters of its JSON are a token), refuses what is over the window in its API's
own words, would reject what breaks its API's order, answers Carryon's requests for summaries, keeps all it was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.clients import pages
from tests.clients.spellings import SPELLINGS, Call, Reply, Spelling
from tests.clients.validity import problem
from tests.e2e.scribe import INSTRUCTION, good

Json = dict[str, Any]

_STEP = re.compile(r"Step (\d+): read")
#: Clients without tools, by their model: the model says the pages itself.
_TALKERS = ("aider",)
#: How a client's request for a summary of its own reads, or its headers.
_OWN = re.compile(r"(?i)summar|compact|state_snapshot|handoff")
_MARKED = re.compile(r'"request_kind":\s*"compaction"|compaction_trigger')
#: Arguments of the tools that clients offer for reading a page; `folder` is where the pages lie.
TOOLS: dict[str, Callable[[int, str], Json]] = {
    "read_page": lambda number, folder: {"number": number},
    "exec_command": lambda number, folder: {"cmd": f"cat {folder}/{pages.name(number)}"},
    "run_shell_command": lambda number, folder: {
        "command": f"cat {folder}/{pages.name(number)}; sleep 0.3",  # it drops what is still in the pipe at the end
        "is_background": False,
        "description": "Read a page.",
    },
    "bash": lambda number, folder: {"command": f"cat {folder}/{pages.name(number)}", "description": "Read a page."},
    "Bash": lambda number, folder: {"command": f"cat {folder}/{pages.name(number)}", "description": "Read a page."},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as it arrived. `kind`: `turn`, `summary` (Carryon's), `own` (the client's own compaction), `side`."""

    api: str
    kind: str
    step: int
    tokens: int
    refused: bool
    problem: str | None
    body: Json = field(repr=False)


@dataclass(slots=True)
class _Story:
    step: int = 0
    left: int = 0
    page: int = 0


class Model:
    """The upstream, on loopback, in this process; the model's name keeps conversations apart."""

    def __init__(self, folder: str = "notes", *, read: int = pages.PAGES, window: int = pages.WINDOW) -> None:
        """`folder` holds the pages, of which it wants `read` in a turn."""
        self.folder, self._read, self.window = folder, read, window
        self.seen: dict[str, list[Seen]] = {}
        self.strays: list[str] = []
        self._stories: dict[str, _Story] = {}
        self._said: dict[str, int] = {}
        self._number = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 28)
        for path, spelling in SPELLINGS.items():
            app.router.add_post(path, self._handler(spelling))
        app.router.add_get("/v1/models", self._models)
        app.router.add_route("*", "/{rest:.*}", self._stray)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def of(self, model: str, *kinds: str) -> list[Seen]:
        """The requests of those kinds for a model, in order."""
        return [one for one in self.seen.get(model, ()) if one.kind in kinds]

    def read(self, model: str) -> int:
        """The tokens of all different pages the model was shown, or said: the client's history holds them at least."""
        outputs: dict[str, int] = {}
        for one in self.of(model, "turn"):
            spelling = SPELLINGS[next(path for path in SPELLINGS if SPELLINGS[path].name == one.api)]
            for call, text in spelling.results(one.body).items():
                outputs[call] = max(outputs.get(call, 0), len(text))
        return (sum(outputs.values()) + self._said.get(model, 0)) // 4

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.seen]})

    async def _stray(self, request: web.Request) -> web.Response:
        self.strays.append(f"{request.method} {request.path}")
        if "websocket" in request.headers.get("Upgrade", ""):
            return web.Response(status=426)
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": len(await request.read()) // 4})
        status = 200 if request.method == "HEAD" else 404
        return web.json_response({"error": {"message": "not here", "type": "not_found_error"}}, status=status)

    def _handler(self, spelling: Spelling) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = json.loads(await request.read())
            marks = str(request.headers.get("x-codex-turn-metadata", ""))
            status, said = self._answer(spelling, body, marks)
            if status != 200 or not isinstance(said, Reply):
                return web.json_response(said, status=status)
            if not body.get("stream"):
                return web.json_response(spelling.whole(said, body))
            reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await reply.prepare(request)
            for frame in spelling.frames(said, body):
                await reply.write(frame)
            await reply.write_eof()
            return reply

        return answer

    def _answer(self, spelling: Spelling, body: Json, marks: str) -> tuple[int, Reply | Json]:
        model = str(body.get("model"))
        kind, step = self._kind(spelling, body, marks)
        tokens = len(json.dumps(body, ensure_ascii=False, separators=(",", ":"))) // 4
        fault = problem(spelling.name, body)
        refused = tokens > self.window
        seen = Seen(api=spelling.name, kind=kind, step=step, tokens=tokens, refused=refused, problem=fault, body=body)
        self.seen.setdefault(model, []).append(seen)
        if fault:
            return 400, spelling.invalid(fault)
        if refused:
            return 400, spelling.refusal(tokens, self.window)
        self._number += 1
        text, call = self._say(spelling, body, model, kind, step)
        return 200, Reply(model=model, number=self._number, prompt=tokens, text=text, call=call)

    def _kind(self, spelling: Spelling, body: Json, marks: str) -> tuple[str, int]:
        """What a request is for, and which step its user asks for (0: none)."""
        whose, text = spelling.newest(body)
        if whose == "user" and text.startswith(INSTRUCTION):
            return "summary", 0
        if _MARKED.search(marks + whose) or (whose == "tool" and _OWN.search(text)):
            return "own", 0
        step = int(found[-1]) if (found := _STEP.findall(text)) else 0
        reads = self._tool(spelling, body) or (str(body.get("model")) in _TALKERS and not _OWN.search(text))
        if reads and (whose != "user" or step):
            return "turn", step
        return ("own" if _OWN.search(text) else "side"), 0

    def _tool(self, spelling: Spelling, body: Json) -> str | None:
        offered = spelling.tools(body)
        return next((name for name in TOOLS if name in offered), None)

    def _say(self, spelling: Spelling, body: Json, model: str, kind: str, step: int) -> tuple[str, Call | None]:
        """The next call, or the words that end the step."""
        if kind in ("summary", "own"):
            return good(len(self.of(model, kind))), None
        if kind == "side":
            return "Notes about pages", None
        story = self._stories.setdefault(model, _Story())
        if step and spelling.newest(body)[0] == "user":
            story.step, story.left = step, self._read
        tool = self._tool(spelling, body)
        if tool is None or story.left == 0:
            long = "" if tool else "\n".join(pages.page(story.step * self._read + at) for at in range(self._read))
            self._said[model] = self._said.get(model, 0) + len(long)
            return f"{long}\n{pages.done(story.step)}".strip(), None
        story.left -= 1
        story.page += 1
        arguments = TOOLS[tool](story.page, self.folder)
        return "", Call(id=f"call_{self._number:06d}", name=tool, arguments=arguments)
