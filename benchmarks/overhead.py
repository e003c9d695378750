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
import os
import platform
import statistics
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from servers import CHUNKS, MODEL, carryon, free_port, process, relay, upstream

WORDS = [
    "the",
    "reader",
    "stops",
    "at",
    "a",
    "line",
    "that",
    "is",
    "longer",
    "than",
    "its",
    "buffer",
    "because",
    "offset",
    "and",
    "batch",
    "are",
    "shared",
]
WARM = 5
_OK = 200
_SMALL = 10_000
#: Bytes a conversation's size may miss.
_SLACK = 400


@dataclass(slots=True)
class Taken:
    """Seconds to the first and to the last byte of every reply of one way."""

    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)


def history(size: int) -> list[dict[str, str]]:
    """Messages whose JSON takes about `size` bytes."""
    messages = [{"role": "system", "content": "You are an engineer."}]
    taken, words = len(json.dumps(messages)), 300 if size > _SMALL else 20
    while taken < size - _SLACK:
        number = len(messages)
        text = " ".join(WORDS[(number + i) % len(WORDS)] for i in range(words))
        messages.append({"role": "user" if number % 2 else "assistant", "content": f"{number}: {text}"})
        taken += len(json.dumps(messages[-1])) + 2
    return messages


def body(messages: list[dict[str, str]], turn: int, *, stream: bool) -> bytes:
    """A chat body; only its last message differs from turn to turn."""
    newest = {"role": "user", "content": f"turn {turn}"}
    more = {"stream": True} if stream else {}
    return json.dumps({"model": MODEL, "messages": [*messages, newest], **more}).encode()


def post(connection: http.client.HTTPConnection, content: bytes) -> tuple[float, float]:
    """One request on a kept connection: seconds to the first and to the last byte of the reply's body."""
    started = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", content, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read(1)
    first = time.perf_counter() - started
    reply.read()
    if reply.status != _OK:
        raise SystemExit(f"status {reply.status}")
    return first, time.perf_counter() - started


def measure(ports: dict[str, int], size: int, rounds: int, *, stream: bool) -> None:
    """Interleave the three ways and print what each takes and adds."""
    messages = history(size)
    taken = {name: Taken() for name in ports}
    with ExitStack() as stack:
        ways = {
            name: stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port)))
            for name, port in ports.items()
        }
        for turn in range(rounds + WARM):
            content = body(messages, turn, stream=stream)
            for name, connection in ways.items():
                first, last = post(connection, content)
                if turn >= WARM:
                    taken[name].first.append(first)
                    taken[name].last.append(last)
    kind = f"streamed, {CHUNKS} chunks" if stream else "whole"
    print(f"\n{len(content):,} bytes, {len(messages) + 1} messages, {kind}, {rounds} rounds")
    show(taken)


def show(taken: dict[str, Taken]) -> None:
    """Print medians to the first byte, medians and 99th percentiles to the last, and what each way adds."""
    direct = taken["direct"]
    added = {}
    for name, way in taken.items():
        first, last = statistics.median(way.first), statistics.median(way.last)
        p99 = sorted(way.last)[max(0, int(len(way.last) * 0.99) - 1)]
        added[name] = first - statistics.median(direct.first), last - statistics.median(direct.last)
        print(
            f"  {name:<8} first byte {first * 1e3:7.2f} ms   last byte {last * 1e3:7.2f} ms (p99 {p99 * 1e3:7.2f})"
            f"   adds {added[name][0] * 1e3:6.2f} and {added[name][1] * 1e3:6.2f} ms"
        )
    print(f"  to the first byte carryon adds {added['carryon'][0] / added['relay'][0]:.2f} times what the relay adds")


def main() -> None:
    """Run all sizes once, whole and streamed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--window", type=int, default=1_000_000)
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    ports = {name: free_port() for name in ("direct", "relay", "carryon")}
    with ExitStack() as stack:
        stack.enter_context(process(upstream, ports["direct"]))
        stack.enter_context(process(relay, ports["relay"], ports["direct"]))
        listening = stack.enter_context(carryon(ports["carryon"], ports["direct"], given.window))
        with closing(http.client.HTTPConnection("127.0.0.1", ports["carryon"])) as connection:
            answered = post(connection, body(history(1_000), 0, stream=False))[1]
        print(f"start to first answer: {listening + answered:.2f} s")
        for size, rounds in ((1_000, given.rounds), (800_000, max(20, given.rounds // 4))):
            measure(ports, size, rounds, stream=False)
            measure(ports, size, max(20, rounds // 4), stream=True)


if __name__ == "__main__":
    main()
