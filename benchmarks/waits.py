"""What a client waits for the turn that crosses the threshold, with a slow summariser."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from aiohttp import ClientSession
from priced import Model, priced
from scripted import carried, clients
from sessions import body, generated, spelled

WINDOW, LIMIT = 16_384, 500
#: Crossing turns that wait at one time, where they wait.
_LANES = 10
_MOST = "64"
#: A turn that waits for no summary may take this part of one; machines of CI are slow.
_VISIBLE = 0.5


_COLUMNS = "below: p50     p99  crossing: p50     p99  after: p50     p99 summaries"


async def waits(*, quick: bool) -> list[str]:
    """Turns just below the threshold, across it and after, each in a session of its own; what is wrong."""
    seconds, count = (1.0, 20) if quick else (5.0, 100)
    print(f"\nWaits in milliseconds: {count} sessions, a summary takes {seconds:g} s")
    print(f"{'':18} {_COLUMNS}")
    rows = {after: await _measured(after, seconds, count) for after in ("true", "false")}
    wrong = []
    if _p99(rows["true"][1]) > _VISIBLE * seconds:
        wrong.append(f"the crossing turn waits {_p99(rows['true'][1]):.2f} s")
    if statistics.median(rows["false"][1]) < seconds:
        wrong.append("nobody waits without packing beside: this measures nothing")
    return wrong


async def _measured(after: str, seconds: float, count: int) -> list[list[float]]:
    model = Model(seconds=seconds)
    environment = {
        "CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": after,
        "CARRYON_DEFAULTS__SUMMARY__MAX_CONCURRENT": _MOST,
    }
    took: list[list[float]] = [[], [], []]
    async with (
        priced({"wait": model}) as upstream,
        carried(upstream, "--window", str(WINDOW), **environment) as proxy,
        clients() as client,
    ):
        await _session(client, proxy.url, 0)  # encoders are loaded once
        lanes = asyncio.Semaphore(_LANES if after == "false" else 1)

        async def one(number: int) -> None:
            async with lanes:
                for place, found in zip(took, await _session(client, proxy.url, number), strict=True):
                    place.append(found)

        await asyncio.gather(*(one(number) for number in range(1, count + 1)))
        while len(proxy.events("commit")) < count + 1:  # noqa: ASYNC110 - those made beside; the log tells nobody
            await asyncio.sleep(0.2)
    name = "packed beside" if after == "true" else "nothing beside"
    shown = "".join(f"{1_000 * statistics.median(one):12.0f} {1_000 * _p99(one):7.0f}" for one in took)
    print(f"{name:16} {shown} {model.summaries:9}")
    return took


async def _session(client: ClientSession, url: str, number: int) -> list[float]:
    """Three turns of one session: below the threshold, across it, and the next."""
    session = generated(16)
    session.items[1]["content"] += f" This is session {number}."
    raws = [spelled(one) for one in session.items]
    sizes = [len(b"".join(raws[:size])) // 4 for size in session.turns]
    first = next(at for at, size in enumerate(sizes) if size > 0.8 * WINDOW)
    return [await _turn(client, url, raws[: session.turns[at]]) for at in (first - 3, first + 1, first + 2)]


async def _turn(client: ClientSession, url: str, items: Sequence[bytes]) -> float:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-wait"}
    sent, began = body("wait", items, max_tokens=LIMIT), time.perf_counter()
    async with client.post(f"{url}/chat/completions", data=sent, headers=headers) as reply:
        await reply.read()
        if reply.status != 200:
            raise SystemExit(f"status {reply.status}")
    return time.perf_counter() - began


def _p99(found: Sequence[float]) -> float:
    return sorted(found)[max(0, -(-len(found) * 99 // 100) - 1)]
