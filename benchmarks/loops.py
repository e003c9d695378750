"""What others loop on: each for as many turns as are asked for, with all that was paid and said."""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from aiohttp import ClientSession
from priced import Model, priced
from scripted import carried, clients
from sessions import Item, body, generated, spelled

from tests.e2e import agent

WINDOW = 16_384
LIMIT = 500
#: The first turns are far below any threshold: they are not sent.
_SKIPPED = 20
_WARNING = ("warning", "error")
#: Said for each call that failed, and for each refusal that was handed over: there are no more than of those.
_PER_CALL = {"summary-failed", "summary-refused", "summary-rejected", "retry-refused"}

Histories = Callable[[int], Iterator[list[bytes]]]


def plain(count: int) -> Iterator[list[bytes]]:
    """An agent's session."""
    session = generated((count + _SKIPPED + 1) // 2)
    raws = [spelled(one) for one in session.items]
    return (raws[:size] for size in session.turns[_SKIPPED : _SKIPPED + count])


def heavy(count: int) -> Iterator[list[bytes]]:
    """The same with system text that takes three fourths of the window."""
    system = spelled({"role": "system", "content": agent.SYSTEM + " rule of the house" * (WINDOW * 3 // 18)})
    return ([system, *items[1:]] for items in plain(count))


def growing(count: int) -> Iterator[list[bytes]]:
    """A call that nobody answers: all that follows is one unit."""
    call = {"id": "call_open", "type": "function", "function": {"name": "bash", "arguments": '{"command": "serve"}'}}
    opened: Item = {"role": "assistant", "content": "It runs on.", "tool_calls": [call]}
    return ([*items[:2], spelled(opened), *items[2:]] for items in plain(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One scenario. `calls` and `commits` are at most so many in a hundred turns; `warns` must be said, once."""

    name: str
    model: Callable[[], Model]
    histories: Histories = plain
    window: int = WINDOW
    calls: int = 20
    commits: int = 20
    #: Turns in a row of which each had a commit, at most.
    streak: int = 2
    warns: tuple[str, ...] = ()
    #: Whether every turn can be answered.
    curable: bool = True
    #: How often a turn is broken off before it is waited for.
    leaves: int = 0


SCENARIOS = (
    # Nothing is packed under pressure: what these show is the upstream's refusals, each recovered.
    Loop(
        name="an envelope that nearly fills it",
        model=partial(Model, window=WINDOW),
        histories=heavy,
        calls=0,
        commits=90,
        streak=3,
        warns=("cannot-pack",),
    ),
    Loop(
        name="one growing unit",
        model=partial(Model, window=WINDOW),
        histories=growing,
        calls=0,
        commits=40,
        streak=3,
        warns=("cannot-pack",),
        curable=False,
    ),
    Loop(name="a summariser that always fails", model=partial(Model, status=500), calls=3),
    Loop(name="usage three times too high", model=partial(Model, usage=lambda size: 3 * size), calls=40, commits=40),
    Loop(name="usage always at the window", model=partial(Model, usage=lambda _: WINDOW), calls=40, commits=40),
    Loop(
        name="a window much too large", model=partial(Model, window=WINDOW), window=8 * WINDOW, warns=("limit-learned",)
    ),
    Loop(
        name="a window much too small",
        model=partial(Model, window=8 * WINDOW),
        window=WINDOW // 2,
        calls=40,
        commits=40,
    ),
    Loop(name="a client that leaves and retries", model=partial(Model, thinks=0.3, seconds=1.0), leaves=3),
)


@dataclass(slots=True, kw_only=True)
class Came:
    """What one scenario came to. `streak` is the longest run of turns with a commit each."""

    ends: list[float] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    calls: int = 0
    commits: int = 0
    streak: int = 0
    refused: int = 0
    said: Counter[str] = field(default_factory=Counter)


async def loops(count: int) -> list[str]:
    """All scenarios beside each other, each with a model and a tenant of its own; what is wrong."""
    print(f"\nLoops: {count} turns each, window {WINDOW:,}")
    print(f"{'':34} answered calls commits in a row refused  warnings")
    models = {f"loop-{at}": loop.model() for at, loop in enumerate(SCENARIOS)}
    windows = [{"model": f"loop-{at}", "context_window": loop.window} for at, loop in enumerate(SCENARIOS)]
    settings = {"CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "true", "CARRYON_DEFAULTS__SUMMARY__MAX_CONCURRENT": "16"}
    async with priced(models) as upstream, carried(upstream, models=windows, **settings) as proxy, clients() as client:
        played = (_played(client, proxy.url, loop, name, count) for loop, name in zip(SCENARIOS, models, strict=True))
        found = await asyncio.gather(*played)
        told = [json.loads(line) for line in proxy.log.splitlines() if line.startswith("{")]
    wrong: list[str] = []
    nameless = Counter(
        one["event"] for one in told if one["level"] in _WARNING and not {"conversation", "model"} & one.keys()
    )
    for loop, came, (name, model) in zip(SCENARIOS, found, models.items(), strict=True):
        _tell(came, model, [one for one in told if one.get("conversation") in came.names or one.get("model") == name])
        said = ", ".join(f"{name} {times}" for name, times in sorted(came.said.items())) or "none"
        answered = f"{came.statuses[200]}/{len(came.ends)}"
        figures = f"{answered:>8} {came.calls:5} {came.commits:7} {came.streak:8} {came.refused:7}"
        print(f"{loop.name:34} {figures}  {said}")
        wrong += [f"{loop.name}: {one}" for one in _faults(loop, came, count)]
    print(f"warnings that name no conversation: {dict(nameless) or 'none'}")
    return wrong + [f"{name} was said {times} times" for name, times in nameless.items() if times > 4]


def _faults(loop: Loop, came: Came, count: int) -> Iterator[str]:
    if came.calls > max(loop.calls and 3, loop.calls * count // 100):
        yield f"{came.calls} calls"
    if came.commits > -(-loop.commits * count // 100):
        yield f"{came.commits} commits"
    if came.streak > loop.streak:
        yield f"{came.streak} commits in a row"
    if loop.curable and came.statuses[200] != len(came.ends):
        yield f"answered {came.statuses}"
    yield from (f"{name} was said {came.said[name]} times" for name in loop.warns if came.said[name] != 1)
    for name, times in came.said.items():
        if times > 1 and name not in _PER_CALL:
            yield f"{name} was said {times} times"


async def _played(client: ClientSession, url: str, loop: Loop, name: str, count: int) -> Came:
    came = Came()
    for items in loop.histories(count):
        sent = body(name, items, max_tokens=LIMIT)
        for _ in range(loop.leaves):
            await _left(client, url, name, sent)
        status, conversation = await _posted(client, url, name, sent)
        came.ends.append(time.time())
        came.statuses[status] += 1
        came.names.add(conversation)
    return came


def _tell(came: Came, model: Model, told: Sequence[Item]) -> None:
    """What the log and the upstream say of it."""
    came.calls, came.refused = model.summaries, model.refused
    commits = [
        datetime.strptime(one["time"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() for one in told if one["event"] == "commit"
    ]
    came.commits = len(commits)
    turns = {bisect_left(came.ends, at) for at in commits}
    came.streak = max((run for run in _runs(turns)), default=0)
    came.said = Counter(one["event"] for one in told if one["level"] in _WARNING or one["event"] == "limit-learned")


def _runs(turns: set[int]) -> Iterator[int]:
    """How many follow each other, from each of them on."""
    for first in turns:
        yield next(length for length in range(1, len(turns) + 2) if first + length not in turns)


async def _posted(client: ClientSession, url: str, key: str, sent: bytes) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    async with client.post(f"{url}/chat/completions", data=sent, headers=headers) as reply:
        await reply.read()
        return reply.status, reply.headers.get("x-carryon-conversation", "")


async def _left(client: ClientSession, url: str, key: str, sent: bytes) -> None:
    """A client that does not wait for the reply."""
    try:
        async with asyncio.timeout(0.05):
            await _posted(client, url, key, sent)
    except TimeoutError:
        return
