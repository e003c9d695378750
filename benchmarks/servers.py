"""The processes a measurement needs: a model that answers at once, a relay that does nothing, and Carryon."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

MODEL = "bench"
#: A streamed reply: so many chunks, and seconds between two.
CHUNKS, PAUSE = 200, 0.001
REPLY = {
    "id": "r",
    "object": "chat.completion",
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
}
_BODY = 1 << 27
_SESSION = web.AppKey("session", aiohttp.ClientSession)
_TRIES = 1_500


def upstream(port: int) -> None:
    """A model that answers at once; a body that asks for a stream gets 200 chunks, a millisecond apart."""
    chunks = [_chunk({"role": "assistant"}), *(_chunk({"content": f"word {at} "}) for at in range(CHUNKS))]

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if b'"stream": true' not in body[-100:]:
            return web.json_response(REPLY)
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for chunk in (*chunks, b"data: [DONE]\n\n"):
            await reply.write(chunk)
            await asyncio.sleep(PAUSE)
        return reply

    app = web.Application(client_max_size=_BODY)
    app.router.add_post("/v1/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


def relay(port: int, target: int) -> None:
    """A relay that does nothing: read the request whole, send it on, pass on what comes as it comes."""

    async def session(app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False) as opened:
            app[_SESSION] = opened
            yield

    async def pass_on(request: web.Request) -> web.StreamResponse:
        body, url = await request.read(), f"http://127.0.0.1:{target}{request.path_qs}"
        headers = {"Content-Type": "application/json"}
        async with request.app[_SESSION].request(request.method, url, data=body, headers=headers) as got:
            reply = web.StreamResponse(status=got.status, headers={"Content-Type": got.headers["Content-Type"]})
            await reply.prepare(request)
            async for data in got.content.iter_any():
                await reply.write(data)
            return reply

    app = web.Application(client_max_size=_BODY)
    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", pass_on)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


@contextmanager
def process(target: Callable[..., None], *args: int) -> Iterator[None]:
    """A server in a process of its own; the first argument is its port."""
    child = multiprocessing.get_context("spawn").Process(target=target, args=args, daemon=True)
    child.start()
    try:
        wait_for(args[0])
        yield
    finally:
        child.terminate()
        child.join()


@contextmanager
def carryon(port: int, target: int, window: int) -> Iterator[float]:
    """Carryon as an operator would start it; gives the seconds until it listened."""
    command = [sys.executable, "-m", "proxy.cli", "serve", "--upstream", f"http://127.0.0.1:{target}/v1"]
    command += ["--port", str(port), "--window", str(window)]
    with tempfile.TemporaryDirectory(prefix="carryon-bench-") as folder:
        environment = {
            **os.environ,
            "CARRYON_STATE_DIR": folder,
            "CARRYON_ADMIN__PORT": "0",
            "CARRYON_LOG__LEVEL": "warning",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        started = time.monotonic()
        child = subprocess.Popen(  # noqa: S603 - our own command
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(port)
            yield time.monotonic() - started
        finally:
            child.terminate()
            child.wait()


def wait_for(port: int) -> None:
    """Wait until something listens there."""
    for _ in range(_TRIES):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port}")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _chunk(delta: dict[str, str]) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return b"data: " + json.dumps({"id": "r", "model": MODEL, "choices": [choice]}).encode() + b"\n\n"
