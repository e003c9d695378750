"""The meter against a real model's own counts, and what of a summary's prompt a real server had in its cache.

    .venv/bin/python benchmarks/real.py              # some minutes; a llama.cpp server with SmolLM2, from packages

Carryon is told nothing of the model: it estimates with an encoding of another family, and learns from `usage`. Ends
with 1 where a claim does not hold.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripted import carried

from tests.e2e import agent, llama
from tests.e2e.listening import listening

ROOT = Path(__file__).parent.parent
TURNS, LIMIT = 10, 8
#: What the estimate may be off after ten turns, and what of a summary's prompt must come from the cache.
_ERROR, _CACHED = 0.02, 0.90
#: Steps after which the agent's history is over the threshold of the server's window.
_OVER = range(4, 12)
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer sk-real"}
_CHINESE = (
    "请把发票第{n}行的金额四舍五入到分。然后运行测试并报告结果。不要修改数据库结构。"
    "上次的修改在第{n}个模块里引入了一个错误。汇率换算之后余额不对。"
)


def _corpora() -> dict[str, list[str]]:
    """Ten pieces of each kind of text, from this project's own files but for the Chinese."""
    code = "".join(path.read_text() for path in sorted((ROOT / "proxy" / "core").glob("*.py")))
    prose = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    schema = (ROOT / "config" / "carryon.schema.json").read_text()
    return {
        "code": _pieces(code, 1_600),
        "prose": _pieces(prose, 1_800),
        "JSON": _pieces(schema, 1_400),
        "Chinese": [_CHINESE.format(n=number) * 3 for number in range(TURNS)],
    }


def _pieces(text: str, size: int) -> list[str]:
    return [text[at * size : (at + 1) * size] for at in range(TURNS)]


class Between:
    """Passes everything on to the model server, and keeps the usage of what Carryon asked itself."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self.summaries: list[dict[str, Any]] = []
        self.url = ""

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[Between]:
        """Serve on loopback for a while."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        async with ClientSession(timeout=ClientTimeout(total=600)) as self._session, listening(app) as self.url:
            yield self

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        url = self._origin + request.path_qs
        async with self._session.request(request.method, url, data=body or None, headers=_HEADERS) as reply:
            answer = await reply.read()
        if body and json.loads(body).get("max_tokens") != LIMIT and reply.status == 200:
            self.summaries.append(json.loads(answer))
        return web.Response(status=reply.status, body=answer, content_type=reply.content_type)


@contextmanager
def _server() -> Iterator[str]:
    """A llama.cpp server for a while: its origin."""
    if reason := llama.missing():
        raise SystemExit(reason)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="carryon-bench-") as folder:
        for build in llama.builds(port):
            try:
                server = llama.LlamaServer(build, port, Path(folder) / "log")
            except RuntimeError as error:
                print(error)
                continue
            try:
                yield server.url.removesuffix("/v1")
            finally:
                server.stop()
            return
        raise SystemExit("no build of llama.cpp runs on this processor")


async def _asked(
    client: ClientSession, url: str, messages: list[dict[str, Any]], session: str, **more: object
) -> tuple[int, int]:
    """Send one turn; what Carryon measured of what it sent (0: nothing) and what the server counted."""
    body = {"model": llama.MODEL, "max_tokens": LIMIT, "messages": messages, "temperature": 0, **more}
    headers = {**_HEADERS, "X-Session-Id": session}
    async with client.post(f"{url}/chat/completions", data=json.dumps(body), headers=headers) as reply:
        answer = await reply.json()
        if reply.status != 200:
            raise SystemExit(f"{reply.status}: {answer}")
        told = dict(one.split("=") for one in reply.headers.get("x-carryon-tokens", "sent=0").split(", "))
        return int(told["sent"]), int(answer["usage"]["prompt_tokens"])


async def _meter(origin: str) -> list[str]:
    """The error of the meter from turn to turn, each kind of text in a proxy of its own."""
    print(f"\nMeter: what Carryon measured against what the server counted, error in percent by turn\n{'':8}", end="")
    print("".join(f"{number:>7}" for number in range(1, TURNS + 1)), "  tokens at the end")
    wrong = []
    for name, pieces in _corpora().items():
        async with carried(f"{origin}/v1", "--window", "8192") as carryon, ClientSession() as client:
            messages: list[dict[str, Any]] = []
            errors: list[float | None] = []
            counted = 0
            for piece in pieces:
                messages += [{"role": "user", "content": piece}]
                sent, counted = await _asked(client, carryon.url, messages, name)
                errors.append(sent / counted - 1 if sent else None)
                messages += [{"role": "assistant", "content": "Noted."}]
        shown = "".join(f"{'-':>7}" if one is None else f"{100 * one:>+7.1f}" for one in errors)
        print(f"{name:8}{shown}   {counted}")
        last = errors[-1]
        if last is None or abs(last) > _ERROR:
            wrong.append(f"{name}: the meter is off by {last}")
    return wrong


async def _cached(origin: str) -> list[str]:
    """An agent's history grows over the threshold; its summary is asked on the live prefix, beside the requests."""
    between = Between(origin)
    async with (
        between.standing(),
        carried(between.url, "--window", str(llama.CONTEXT)) as carryon,
        ClientSession() as client,
    ):
        for steps in _OVER:
            await _asked(client, carryon.url, agent.conversation(steps), "cached", tools=agent.TOOLS)
            await asyncio.sleep(1)
            if between.summaries or carryon.events("commit"):
                break
        async with asyncio.timeout(300):
            while not between.summaries:  # noqa: ASYNC110 - a model of few tokens a second tells nobody
                await asyncio.sleep(0.5)
        print("\nCache: what of the first summary's prompt the server had")
        usage = between.summaries[0]["usage"]
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        share = cached / usage["prompt_tokens"]
        print(f"{cached} of {usage['prompt_tokens']} tokens, {100 * share:.1f} %")
    return [] if share >= _CACHED else [f"only {100 * share:.1f} % of the summary's prompt came from the cache"]


async def main() -> int:
    """Run both; 1 where a claim does not hold."""
    with _server() as origin:
        wrong = [*await _meter(origin), *await _cached(origin)]
    for one in wrong:
        print(f"WRONG: {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
