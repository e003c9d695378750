"""Recorded sessions of real clients, grown until they were packed ten times.

Their texts are grown to more than a user's word may take of the budget, so words are not counted here but in the
generated sessions (`fidelity.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from judge import ByCovers, Share, carrier, invalid, rules_kept, shortened
from scripted import Heard, Summarise, carried, clients, scripted

from tests.e2e import replay
from tests.e2e.reading import READINGS
from tests.e2e.replay import RECORDINGS, WINDOWS, Ask, Recording

ROUNDS = 10
#: One session of each client on each of its APIs: what it says first, and in quick runs.
_CLIENTS = (
    "openai-python",
    "openai-agents-0.24.0_responses",
    "claude-code-2.1_title",
    "aider",
    "autogen",
    "openai-agents-0.24.0_chat",
    "opencode-1.18.33_chat",
    "pi-0.73.1_chat",
    "pydantic-ai",
    "qwen-code-0.15.10_chat",
    "codex-0.171.0_responses",
    "claude-code-2.1_subagent",
)
_QUICK = 3
_COLUMNS = "api       requests rounds  items    task           rules valid"
#: Turns by which a session is grown at most.
_TURNS = 150
_TURN = re.compile(rb"turn (\d+) user: ")
_RULE_EVERY = 7


def _ruled(spelled: bytes) -> bytes:
    """The same request; every seventh of its user's grown messages gives an order."""

    def order(found: re.Match[bytes]) -> bytes:
        number = int(found[1])
        return found[0] + (b"Never forget amount number %d. " % number if number % _RULE_EVERY == 0 else b"")

    return _TURN.sub(order, spelled)


@dataclass(slots=True, kw_only=True)
class Row:
    """What one session came to. `task` and `rules` are kept and asked for, over all rounds."""

    name: str
    api: str
    requests: int = 0
    rounds: int = 0
    items: int = 0
    task: int = 0
    rules: Share = field(default_factory=Share)
    wrong: list[str] = field(default_factory=list)
    _surfaces: dict[int, bytes] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def took(self, heard: Heard, sent: bytes, generation: int) -> None:
        """What the upstream had of one request."""
        self.requests += 1
        witness = ByCovers(READINGS[self.api])
        seen = witness.judged(heard.body, sent)
        fault = seen.wrong or invalid(self.api, heard.json, json.loads(sent))
        if self._surfaces.setdefault(generation, seen.surface) != seen.surface:
            fault = fault or "the surface changed without a commit"
        self.wrong += [f"{self.name}, request {self.requests}: {fault}"] if fault else []
        if generation > self.rounds:
            self.rounds = generation
            self._round(heard, json.loads(sent))

    def _round(self, heard: Heard, own: dict[str, Any]) -> None:
        found, reading = carrier(self.api, heard.json), READINGS[self.api]
        if found is None:
            return
        self.items = found.covers
        items = reading.divided(own[reading.field])[1]
        told = [read for one in items if (read := reading.read(one))]
        users = [one.text for one in told[: found.covers] if one.role == "user" and one.text]
        task = found.sections.get("conversation_task", "")
        self.task += _same(users[0], task) or shortened(users[0], task)
        rules = re.findall(r"Never forget amount number \d+\.", "\n".join(users))
        window = WINDOWS[str(heard.json["model"]).partition("-")[0]]
        self.rules += rules_kept(rules, found, window)

    def __str__(self) -> str:
        ok = self.requests - len(self.wrong)
        return (
            f"{self.name:58} {self.api:9} {self.requests:8} {self.rounds:6} {self.items:6}"
            f" {self.task:3}/{self.rounds:<3} {self.rules!s:>15} {ok:4}/{self.requests}"
        )

    def faults(self) -> Iterator[str]:
        """What is wrong."""
        yield from self.wrong
        if self.rounds < ROUNDS:
            yield f"{self.name}: {self.rounds} rounds"
        if self.task != self.rounds or not self.rules.whole:
            yield f"{self.name}: task or rules are missing"


def _same(one: str, other: str) -> bool:
    """Whether two texts differ in white space at most: blocks of a message are joined in more than one way."""
    return "".join(one.split()) == "".join(other.split())


def _chosen(*, quick: bool) -> list[Recording]:
    names = _CLIENTS[:_QUICK] if quick else _CLIENTS
    return [next(one for one in RECORDINGS if one.name.startswith(name)) for name in names]


def _main_line(recording: Recording) -> Iterator[Ask]:
    """The session's own requests until its client compacts or begins anew."""
    return takewhile(lambda ask: ask.line == 0, recording.asks(linear=True))


async def recordings(summarise: Summarise, *, quick: bool) -> list[str]:
    """Every client's session with the outline and with a good summariser; what is wrong."""
    wrong: list[str] = []
    models = [{"model": f"{name}-model", "context_window": size} for name, size in WINDOWS.items()]
    turns, replay.TURNS = replay.TURNS, _TURNS  # the growing is done lazily: what is not sent is not made
    try:
        for method in ("outline", "model"):
            environment = {"CARRYON_DEFAULTS__SUMMARY__METHOD": method}
            print(f"\nrecorded sessions, summary.method {method}")
            print(f"{'':58} {_COLUMNS}")
            async with (
                scripted(summarise) as upstream,
                carried(upstream.url, models=models, **environment) as proxy,
                clients() as client,
            ):
                for recording in _chosen(quick=quick):
                    row = Row(name=recording.name, api=recording.api)
                    for ask in _main_line(recording):
                        sent = _ruled(ask.spelled)
                        own = {**ask.headers, "Authorization": f"Bearer {row.name}", "Content-Type": "application/json"}
                        async with client.post(proxy.url + ask.target, data=sent, headers=own) as reply:
                            if reply.status != 200:
                                raise SystemExit(f"{row.name}: status {reply.status}")
                            await reply.read()
                            generation = int(reply.headers.get("x-carryon-generation", "0"))
                        row.took(next(one for one in reversed(upstream.heard) if not one.summary), sent, generation)
                        upstream.heard.clear()
                        if row.rounds == ROUNDS:
                            break
                    print(row, flush=True)
                    wrong += [f"{method}: {one}" for one in row.faults()]
    finally:
        replay.TURNS = turns
    return wrong
