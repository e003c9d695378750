"""What Carryon adds to a request: direct, through a relay that does nothing, and through Carryon, interleaved.

Run it with `python benchmarks/overhead.py` in the environment Carryon is installed in. Everything is on
loopback; each server is a process of its own. The figures that matter are the ratios within one run:
machines differ, and a busy machine is slow for all three alike. Every turn carries one new message, as
a growing conversation does; all older items were seen before.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

MODEL = "bench"
REPLY = {
    "id": "r",
    "object": "chat.completion",
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
}
WORDS = "the reader stops at a line that is longer than its buffer because offset and batch are shared ".split()


def upstream(port: int) -> None:
    """A model that answers at once."""

    async def complete(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(REPLY)

    app = web.Application(client_max_size=1 << 27)
    app.router.add_post("/v1/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


def relay(port: int, target: int) -> None:
    """A relay that does nothing: read, send, read, answer."""
    sessions: list[aiohttp.ClientSession] = []

    async def pass_on(request: web.Request) -> web.Response:
        if not sessions:
            sessions.append(aiohttp.ClientSession(auto_decompress=False))
        body = await request.read()
        url = f"http://127.0.0.1:{target}{request.path_qs}"
        async with sessions[0].request(request.method, url, data=body, headers={"Content-Type": "application/json"}) as got:
            return web.Response(status=got.status, body=await got.read(), content_type=got.content_type)

    app = web.Application(client_max_size=1 << 27)
    app.router.add_route("*", "/{path:.*}", pass_on)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


@contextmanager
def process(target: Callable[..., None], *args: int) -> Iterator[None]:
    """A server in a process of its own."""
    child = multiprocessing.get_context("spawn").Process(target=target, args=args, daemon=True)
    child.start()
    try:
        wait_for(args[0])
        yield
    finally:
        child.terminate()
        child.join()


@contextmanager
def carryon(port: int, target: int, window: int) -> Iterator[None]:
    """Carryon as an operator would start it; prints how long it took to its first answer."""
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
        child = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
        try:
            wait_for(port)
            post(http.client.HTTPConnection("127.0.0.1", port), json.dumps(conversation(1_000, 0)).encode())
            print(f"start to first answer: {time.monotonic() - started:.2f} s")
            yield
        finally:
            child.terminate()
            child.wait()


def wait_for(port: int) -> None:
    """Wait until something listens there."""
    for _ in range(1_500):
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


def conversation(size: int, turn: int) -> dict[str, object]:
    """A chat body of about `size` bytes; only its last message differs from turn to turn."""
    messages: list[dict[str, str]] = [{"role": "system", "content": "You are an engineer."}]
    number = 0
    while len(json.dumps(messages)) < size - 400 or number == 0:
        step = " ".join(WORDS[(number + i) % len(WORDS)] for i in range(300 if size > 10_000 else 20))
        messages += [{"role": "user" if number % 2 == 0 else "assistant", "content": f"{number}: {step}"}]
        number += 1
        if number % 50 == 0 and len(json.dumps(messages)) >= size - 400:
            break
    messages.append({"role": "user", "content": f"turn {turn}"})
    return {"model": MODEL, "messages": messages}


def post(connection: http.client.HTTPConnection, body: bytes) -> float:
    """One request on a kept connection, in seconds."""
    started = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    if reply.status != 200:  # noqa: PLR2004
        raise SystemExit(f"status {reply.status}")
    return time.perf_counter() - started


def measure(ports: dict[str, int], size: int, rounds: int) -> None:
    """Interleave the three ways and print medians, 99th percentiles and what each adds."""
    base = conversation(size, 0)
    messages = base["messages"]
    assert isinstance(messages, list)
    connections = {name: http.client.HTTPConnection("127.0.0.1", port) for name, port in ports.items()}
    taken: dict[str, list[float]] = {name: [] for name in ports}
    for turn in range(rounds + 5):
        messages[-1] = {"role": "user", "content": f"turn {turn}"}
        body = json.dumps(base).encode()
        for name, connection in connections.items():
            seconds = post(connection, body)
            if turn >= 5:  # noqa: PLR2004 - the first ones warm connections and memories
                taken[name].append(seconds)
    direct = statistics.median(taken["direct"])
    print(f"\n{len(body):,} bytes, {len(messages)} messages, {rounds} rounds")
    for name, seconds in taken.items():
        median = statistics.median(seconds)
        p99 = sorted(seconds)[max(0, int(len(seconds) * 0.99) - 1)]
        print(f"  {name:<8} median {median * 1e3:8.2f} ms   p99 {p99 * 1e3:8.2f} ms   adds {(median - direct) * 1e3:8.2f} ms")
    added = {name: statistics.median(seconds) - direct for name, seconds in taken.items()}
    print(f"  carryon adds {added['carryon'] / max(added['relay'], 1e-9):.2f} times what the relay adds")


def main() -> None:
    """Run all sizes once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--window", type=int, default=1_000_000)
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    ports = {name: free_port() for name in ("direct", "relay", "carryon")}
    with ExitStack() as stack:
        stack.enter_context(process(upstream, ports["direct"]))
        stack.enter_context(process(relay, ports["relay"], ports["direct"]))
        stack.enter_context(carryon(ports["carryon"], ports["direct"], given.window))
        measure(ports, 1_000, given.rounds)
        measure(ports, 800_000, max(20, given.rounds // 4))


if __name__ == "__main__":
    main()
