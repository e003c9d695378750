"""Clients that wander: generated moves over histories, each reply and body compared with what the rules say.

A model in this file (not `proxy`) knows every summary that was made, of what and upon which, and says which of them
must apply to a request: the deepest whose messages the history begins with. Run with `-s` to see the counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.replay import filler
from tests.e2e.scribe import Request, Scribe
from tests.e2e.stored import PATIENT, proxied
from tests.e2e.talk import Client, Reply
from tests.e2e.witness import Witness, normal
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

Message = dict[str, Any]

#: By model, the tokens from which it packs; the windows are wide enough for every summary to be the model's own.
THRESHOLDS = {"near": 5_000, "far": 9_000}
_WINDOW = 80_000
_WALKERS = 8
_MOST = 90
#: Moves of a client, and how often it makes them.
_HOW_OFTEN = {
    "grow": 12, "again": 1, "regenerate": 2, "edit": 2, "rewind": 1, "fork": 2, "respell": 2, "model": 1, "session": 1,
}  # fmt: skip
_SYSTEM = {"role": "system", "content": "You are one of many."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A summary as it was stored: its generation, the one it was built on (0: none), for which model, of what."""

    generation: int
    base: int
    model: str
    stamp: str
    items: tuple[str, ...]


class Shelf:
    """What must be stored, by conversation; an old ancestor is dropped as the rules say."""

    def __init__(self) -> None:
        self._made: dict[str, dict[int, Made]] = {}

    def put(self, conversation: str, made: Made) -> None:
        """A commit: the grandparent's ancestors go."""
        shelf = self._made.setdefault(conversation, {})
        at = shelf.get(made.base)
        at = shelf.get(at.base) if at else None
        while at is not None:
            at = shelf.pop(at.base, None)
        shelf[made.generation] = made

    def expected(self, conversation: str, history: list[Message], model: str, raw: int | None) -> list[Made]:
        """The surface that must apply, none or one; two answers where only the unknown size could tell."""
        own = tuple(normal(one) for one in history)
        newest = max(at for at, one in enumerate(history) if one["role"] == "user")
        fitting = [
            made
            for made in self._made.get(conversation, {}).values()
            if own[: len(made.items)] == made.items and len(made.items) <= newest
        ]
        fitting.sort(key=lambda made: (len(made.items), made.generation), reverse=True)
        ours = [made for made in fitting if made.model == model]
        if raw is None:
            return fitting[:1] + ours[:1]
        return fitting[:1] if raw >= THRESHOLDS[model] else ours[:1]


@dataclass(slots=True)
class Walker:
    """One client: who it is, its history, and the histories it may go back to."""

    number: int
    run: str
    chance: random.Random
    model: str = "near"
    session: str = ""
    history: list[Message] = field(default_factory=list)
    saved: list[list[Message]] = field(default_factory=list)
    said: int = 0

    @property
    def key(self) -> str:
        """Two clients share each credential, which no other run has."""
        return f"sk-walk-{self.run}-{self.number // 2}"

    def move(self) -> str:
        """Change the history or who asks, as clients do; the name of the move."""
        if not self.history:
            self.history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
            self._grow()
            return "start"
        name = "rewind" if len(self.history) > _MOST else self.chance.choices(list(_HOW_OFTEN), _HOW_OFTEN.values())[0]
        getattr(self, f"_{name}")()
        return name

    def _text(self, length: int) -> str:
        self.said += 1
        return filler(length, f"client {self.number} says {self.said}")

    def _grow(self) -> None:
        if self.history[-1]["role"] == "user":
            if self.chance.random() < 0.4:
                call = f"call_{self.number}_{self.said}"
                function = {"name": "look", "arguments": json.dumps({"at": self.said, "with": "care"})}
                calls = [{"id": call, "type": "function", "function": function}]
                self.history.append({"role": "assistant", "content": None, "tool_calls": calls})
                self.history.append({"role": "tool", "tool_call_id": call, "content": self._text(5_000)})
            self.history.append({"role": "assistant", "content": self._text(3_000)})
        self.history.append({"role": "user", "content": self._text(800)})

    def _again(self) -> None:
        """The same once more."""

    def _regenerate(self) -> None:
        at = max(at for at, one in enumerate(self.history) if one["role"] == "user")
        before = [at for at, one in enumerate(self.history[:at]) if one["role"] == "user"]
        if before:
            self.saved.append(self.history)
            self.history = self.history[: before[-1] + 1]
            self._grow()

    def _edit(self) -> None:
        at = self.chance.randrange(len(self.history))
        if self.history[at].get("content"):
            self.saved.append(self.history)
            self.history = deepcopy(self.history)
            self.history[at]["content"] = self._text(300)

    def _rewind(self) -> None:
        places = [at + 1 for at, one in enumerate(self.history) if one["role"] == "user"]
        self.saved.append(self.history)
        self.history = self.history[: self.chance.choice(places[len(places) // 2 :])]

    def _fork(self) -> None:
        if self.saved:
            self.saved.append(self.history)
            self.history = list(self.chance.choice(self.saved))
            self._grow()

    def _respell(self) -> None:
        self.history = [_respelt(one, self.chance) for one in self.history]

    def _model(self) -> None:
        self.model = self.chance.choice(list(THRESHOLDS))

    def _session(self) -> None:
        self.session = self.chance.choice(["", "one", "two"])

    def body(self) -> bytes:
        """The request."""
        value = {"model": self.model, "messages": [_SYSTEM, *self.history]}
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _respelt(one: Message, chance: random.Random) -> Message:
    """The same message as another turn may spell it."""
    found = deepcopy(one)
    found.pop("id", None), found.pop("reasoning_content", None)
    if chance.random() < 0.3:
        found["id"] = f"msg_{chance.randrange(10**6)}"
    if one["role"] == "assistant" and chance.random() < 0.3:
        found["reasoning_content"] = "Thinking of it."
    if isinstance(found["content"], str) and chance.random() < 0.3:
        found["content"] = [{"type": "text", "text": found["content"], "cache_control": {"type": "ephemeral"}}]
    elif isinstance(found["content"], list) and chance.random() < 0.5:
        found["content"] = found["content"][0]["text"]
    for call in found.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        turned = dict(chance.sample(list(arguments.items()), len(arguments)))
        call["function"]["arguments"] = json.dumps(turned, indent=chance.choice([None, 1]))
    return dict(chance.sample(list(found.items()), len(found)))


class Walk:
    """Sends what walkers have, and says what was wrong about the reply and the upstream's body."""

    def __init__(self, client: Client, upstream: Scribe) -> None:
        self._client, self._upstream = client, upstream
        self.witness, self.shelf = Witness(), Shelf()
        self.actions: Counter[str] = Counter()
        self.summaries = 0
        self._marks = itertools.count()
        upstream.requests.clear()  # a walk before this one had the same marks
        for model in THRESHOLDS:
            upstream.summarisers[model] = self.witness.summarise

    async def step(self, walker: Walker, *, exactly: bool) -> list[str]:
        """Send the walker's request; what was wrong with what came of it. `exactly`: nobody else is walking."""
        sent, mark = walker.body(), str(next(self._marks))
        stamps = len(self.witness.made_of)
        reply = await self._client.post(
            sent, key=walker.key, **{"x-session-id": walker.session or None, "x-mark": mark}
        )
        assert reply.status == 200
        mine = [one for one in self._upstream.requests if ("x-mark", mark) in _lower(one)]
        self._upstream.requests.clear() if exactly else None
        asked, (turn,) = (
            [one for one in mine if one.asks_for_summary],
            [one for one in mine if not one.asks_for_summary],
        )
        self.actions[reply.action] += 1
        self.summaries += len(asked)
        seen = self.witness.judged(turn.body, sent)
        found = [*(self.witness.asked(one, sent) for one in asked), seen.wrong]
        if (reply.generation > 0) != bool(seen.surface):
            found.append(f"generation {reply.generation}, but the body says otherwise")
        if exactly:
            found += self._unlike(walker, sent, reply, seen.stamp, list(self.witness.made_of)[stamps:])
        return [f"client {walker.number}, {reply.action}: {one}" for one in found if one]

    def _unlike(self, walker: Walker, sent: bytes, reply: Reply, stamp: str, new: list[str]) -> list[str]:
        """Where this is not what the rules say."""
        told = dict(one.split("=") for one in reply.headers.get("x-carryon-tokens", "raw=-1").split(", "))
        raw = int(told["raw"]) if int(told.get("raw", -1)) >= 0 else None
        expected = self.shelf.expected(reply.conversation, walker.history, walker.model, raw)
        if len(sent) + 64 < THRESHOLDS[walker.model]:
            return ["a surface was applied to a request that is surely below"] if stamp else []
        if not new:
            allowed = {one.stamp for one in expected} if expected else {""}
            allowed |= {""} if raw is None else set()
            return [] if stamp in allowed else [f"{stamp or 'nothing'} applied instead of {expected}"]
        base = expected[0].generation if expected else 0
        first = reply.generation - len(new) + 1
        for at, one in enumerate(new):
            items = tuple(normal(item) for item in self.witness.made_of[one])
            made = Made(generation=first + at, base=base, model=walker.model, stamp=one, items=items)
            self.shelf.put(reply.conversation, made)
            base = made.generation
        longest = len(expected[0].items) if expected else 0
        shortest = len(self.witness.made_of[new[0]])
        wrong = [] if stamp == new[-1] else [f"{stamp or 'nothing'} applied, and not the new summary"]
        return wrong if shortest > longest else [*wrong, "a summary was made of what was summarised already"]


def _lower(request: Request) -> set[tuple[str, str]]:
    return {(name.lower(), value) for name, value in request.headers}


@pytest_asyncio.fixture(loop_scope="module")
async def walk(upstream: Scribe, ledger: Server, tmp_path: Path) -> AsyncIterator[Walk]:
    """A proxy with two models that pack early, before a request is sent."""
    async with _walk(upstream, ledger, tmp_path) as found:
        yield found


@asynccontextmanager
async def _walk(upstream: Scribe, ledger: Server, tmp_path: Path, **environment: str) -> AsyncIterator[Walk]:
    models = [
        {"model": name, "context_window": _WINDOW, "threshold_tokens": size, "retain_tokens": size // 5}
        for name, size in THRESHOLDS.items()
    ]
    (tmp_path / "carryon.yaml").write_text(json.dumps({"models": models}))
    running = proxied(
        ledger, upstream.url, tmp_path, "--config", str(tmp_path / "carryon.yaml"), **PATIENT, **environment
    )
    async with Client(await running.start()) as client:
        yield Walk(client, upstream)
    assert await running.stop() == 0
    assert not running.events("internal-fault")


def _walkers(seed: int, each: int) -> list[Walker]:
    return [Walker(number, f"{seed}-{each}", random.Random(seed * 100 + number)) for number in range(_WALKERS)]


def _told(walk: Walk, moves: Counter[str], wrong: list[str]) -> None:
    print(
        f"\n{moves.total()} moves of {_WALKERS} clients {dict(moves)}: {dict(walk.actions)},"
        f" {walk.summaries} summaries, {len(wrong)} wrong"
    )


@pytest.mark.parametrize("each", [15, pytest.param(60, marks=pytest.mark.slow)])
async def test_wandering_clients_get_the_deepest_surface_of_their_own_history_and_no_other(
    walk: Walk, each: int
) -> None:
    """One after the other, so that the model says exactly what must be stored and what must apply."""
    walkers, moves, wrong = _walkers(1, each), Counter[str](), list[str]()
    for _ in range(each):
        for walker in walkers:
            moves[walker.move()] += 1
            wrong += await walk.step(walker, exactly=True)
    _told(walk, moves, wrong)
    assert wrong == []
    assert min(walk.actions[one] for one in ("pass", "pressure", "projected")) > each // 8


@pytest.mark.parametrize("each", [15, pytest.param(60, marks=pytest.mark.slow)])
async def test_clients_that_wander_at_the_same_time_never_get_each_other_s_surface(walk: Walk, each: int) -> None:
    """All at once, two to a credential and a record: whatever wins, no body holds what its client did not say."""
    moves, wrong = await _at_once(walk, _walkers(2, each), each)
    _told(walk, moves, wrong)
    assert wrong == []
    assert min(walk.actions[one] for one in ("pass", "pressure", "projected")) > each // 8


async def test_what_is_packed_beside_the_requests_is_nobody_else_s_either(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """The same with packing in the background, which lands whenever it does."""
    each = 20
    beside = {"CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "true"}
    async with _walk(upstream, ledger, tmp_path, **beside) as walk:
        moves, wrong = await _at_once(walk, _walkers(3, each), each)
    _told(walk, moves, wrong)
    assert wrong == []
    assert min(walk.actions[one] for one in ("pass", "projected")) > each // 8


async def _at_once(walk: Walk, walkers: list[Walker], each: int) -> tuple[Counter[str], list[str]]:
    moves, wrong = Counter[str](), list[str]()

    async def go(walker: Walker) -> None:
        for _ in range(each):
            moves[walker.move()] += 1
            wrong.extend(await walk.step(walker, exactly=False))

    await asyncio.gather(*(go(walker) for walker in walkers))
    return moves, wrong
