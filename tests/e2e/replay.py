"""Recorded sessions of real clients, made long: their texts at full length, then the same turns over and over.

A recording holds one session's main line, the calls beside it (a title, a memory sub-agent, the client's own summary),
and perhaps the line that begins anew after the client's own compaction. Every line is grown in the client's own
spelling until Carryon has to pack it, more than once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e import claude
from tests.e2e.growth import Template, blown_up, filler, later, template
from tests.e2e.reading import READINGS, Reading

__all__ = ["CAPTURES", "RECORDINGS", "WINDOWS", "Ask", "Recording", "filler"]

Item = dict[str, Any]

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
#: How often a turn is repeated on each line.
TURNS = 12
#: The window a recording is replayed in, by its own `max_tokens` and system text, and the length of a grown text.
WINDOWS = {"small": 8_192, "large": 16_384, "huge": 32_768}
_LENGTHS = {"small": 2_600, "large": 2_600, "huge": 5_500}
#: The same for sessions with much system text, or with fewer texts in a turn.
_LONGER = {"codex": 8_500, "claude-code": 4_000}
_LONG_SYSTEM = 15_000
_LIMITS = ("max_tokens", "max_completion_tokens")
#: Two sessions of these clients begin alike: canned first messages, or a fork.
_TWINS = ("aider", "openai-agents-0.24.0_responses", "claude-code-2.1_title")
#: Codex says in a header what a request is for; the captures have texts of its length in their place.
_CODEX_KIND = "x-codex-turn-metadata"
_CODEX_SUMMARY = "You are performing a CONTEXT CHECKPOINT COMPACTION."


class _Sent(NamedTuple):
    """One request of a capture."""

    target: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: what it is for (`main`, `beside`, `own`: the client's compaction), on which line, all of it."""

    kind: str
    line: int
    api: str
    target: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def spelled(self) -> bytes:
        """Its bytes, in the key order of the client."""
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode()


class Recording:
    """The requests of one capture to one API."""

    def __init__(self, name: str, requests: Sequence[Item], reading: Reading) -> None:
        self.name, self._reading, self.api = name, reading, reading.name
        path = reading.api.path.partition("?")[0]
        sent = [one for one in requests if one["method"] == "POST" and one["path"].partition("?")[0].endswith(path)]
        self._asks = [_sent(one, reading.field) for one in sent if isinstance(one["body"][reading.field], list)]
        self.any = bool(self._asks)

    def _items(self, body: Item) -> list[Item]:
        found: list[Item] = body[self._reading.field]
        return found

    def _own(self, body: Item) -> list[Item]:
        """The history without the system text before it."""
        return self._reading.divided(self._items(body))[1]

    @cached_property
    def _system(self) -> str:
        """The leading text of most requests: that of the session itself."""
        leads = [self._reading.system(ask.body) for ask in self._asks]
        return max(leads, key=leads.count)

    @cached_property
    def size(self) -> str:
        """In which window it is replayed."""
        bodies = [ask.body for ask in self._asks if self._is_main(ask)]
        if len(self._system) > _LONG_SYSTEM:
            return "huge"
        return "large" if any(limit in one for one in bodies for limit in _LIMITS) else "small"

    @cached_property
    def _suffix(self) -> str:
        return filler(853, "suffix") if self.name.startswith("aider") else ""

    @cached_property
    def _everything(self) -> list[Item]:
        """The longest history of the session."""
        return max((self._own(ask.body) for ask in self._asks if self._kind(ask) != "beside"), key=len)

    def _kind(self, ask: _Sent) -> str:
        if self._compacts(ask.body):
            return "own"
        return "main" if self._reading.system(ask.body) == self._system else "beside"

    def _is_main(self, ask: _Sent) -> bool:
        return self._kind(ask) == "main"

    def _compacts(self, body: Item) -> bool:
        return _compacts(self._items(body))

    def asks(self, *, linear: bool = False) -> Iterator[Ask]:
        """All requests in order; only the session's own where it is to be `linear`."""
        beside = [ask for ask in self._asks if not self._is_main(ask)]
        lines = list(self._lines())
        for line, recorded in enumerate(lines):
            if not linear:
                yield from (self._beside(ask, line) for ask in beside if not self._resends(ask, recorded[0]))
            for one in recorded:
                yield self._ask(one, one.body, line)
            for grown, history in self._grown(recorded[-1], line):
                yield grown
                if not linear and self._speaks(history[-1]):
                    again = (ask for ask in beside if self._resends(ask, recorded[-1]))
                    yield from (self._renewed(ask, history, line) for ask in again)
        if not linear:
            yield from (self._beside(ask, len(lines) - 1) for ask in beside if not self._resends(ask, lines[0][0]))

    def _speaks(self, item: Item) -> bool:
        """Whether an item is a user's words."""
        read = self._reading.read(item)
        return read is not None and read.role == "user" and not read.results

    def _lines(self) -> Iterator[list[_Sent]]:
        """The session's own requests, one list for each history that another begins with or its client compacted."""
        found: list[_Sent] = []
        for before, ask in zip([None, *self._asks], self._asks, strict=False):
            if not self._is_main(ask):
                continue
            anew = before is not None and self._kind(before) == "own"
            if found and (anew or not self._begins(self._own(ask.body), self._kept(self._own(found[-1].body)))):
                yield found
                found = []
            found.append(ask)
        yield found

    def _begins(self, history: Sequence[Item], start: Sequence[Item]) -> bool:
        normal = self._reading.normal
        return [normal(one) for one in history[: len(start)]] == [normal(one) for one in start]

    def _kept(self, history: list[Item]) -> list[Item]:
        """A history as the next turn repeats it: without the suffix of its newest question."""
        if not self._suffix:
            return history
        asked = history[-1]["content"].removesuffix(self._suffix)
        return [*history[:-1], {**history[-1], "content": asked}]

    def _resends(self, ask: _Sent, main: _Sent) -> bool:
        """Whether a call beside the session sends the session's history again."""
        return self._begins(self._own(ask.body), self._own(main.body)[:1])

    def _named(self, body: Item, items: Sequence[Item]) -> Item:
        """The body for the model whose window fits this recording, with these items as its client spells them."""
        spelt = claude.as_sent(self.name, items) if self.api == "messages" else list(items)
        main = next(ask.body["model"] for ask in self._asks if self._is_main(ask))
        model = f"{self.size}-model" if body["model"] == main else body["model"]
        return {**body, "model": model, self._reading.field: spelt}

    def _ask(self, sent: _Sent, body: Item, line: int, items: Sequence[Item] | None = None) -> Ask:
        named = self._named(body, self._items(body) if items is None else items)
        kind = self._kind(sent)
        return Ask(kind=kind, line=line, api=self.api, target=sent.target, headers=sent.headers, body=named)

    def _beside(self, ask: _Sent, line: int) -> Ask:
        return self._ask(ask, ask.body, line)

    def _renewed(self, ask: _Sent, history: Sequence[Item], line: int) -> Ask:
        """A call that sends the history again, as it would after this turn."""
        lead, own = self._reading.divided(self._items(ask.body))
        said = later(self._template(history).said, 0, 40, f"answer {line}")
        return self._ask(ask, ask.body, line, [*lead, *self._reading.divided(history)[1], *said, own[-1]])

    def _template(self, items: Sequence[Item]) -> Template:
        return template(self.api, items, self._everything)

    def _grown(self, sent: _Sent, line: int) -> Iterator[tuple[Ask, list[Item]]]:
        """Turn after turn on one line: a step with a tool where the client has one, an answer, a question."""
        length = next((size for name, size in _LONGER.items() if self.name.startswith(name)), _LENGTHS[self.size])
        items = self._kept(self._items(sent.body))
        repeated = self._template(items)
        for turn in range(1, TURNS + 1):
            owner = f"{self.name} line {line} turn {turn}"
            if repeated.step:
                items = [*items, *later(repeated.step, turn, length, owner)]
                yield self._ask(sent, sent.body, line, items), items
            (question,) = later(repeated.asked, turn, length, owner)
            items = [*items, *later(repeated.said, turn, length, f"{owner} said"), question]
            yield self._ask(sent, sent.body, line, self._suffixed(items)), items

    def _suffixed(self, items: Sequence[Item]) -> list[Item]:
        if not self._suffix:
            return list(items)
        return [*items[:-1], {**items[-1], "content": items[-1]["content"] + self._suffix}]


def _compacts(items: Sequence[Item]) -> bool:
    """Whether a history ends with Codex's request for a summary, of its own kind or the upstream's."""
    return items[-1].get("type") == "compaction_trigger" or _CODEX_SUMMARY in str(items[-1].get("content"))


def _sent(request: Item, field: str) -> _Sent:
    body = blown_up(request["body"])
    headers = _headers(request["headers"])
    if _CODEX_KIND in headers:
        kind = "compaction" if _compacts(body[field]) else "turn"
        headers[_CODEX_KIND] = json.dumps({"request_kind": kind, "said": len(headers[_CODEX_KIND])})
    return _Sent(request["path"].removeprefix("/v1"), headers, body)


def _headers(listed: list[list[str]]) -> dict[str, str]:
    dropped = {"connection", "accept-encoding", "authorization", "content-type"}
    return {name: value for name, value in listed if name.lower() not in dropped}


def _recordings() -> Iterator[Recording]:
    for file in sorted(CAPTURES.glob("*.json")):
        requests = json.loads(file.read_text())["requests"]
        for reading in READINGS.values():
            yield from (Recording(name, requests, reading) for name in _names(file.stem))
    for session, requests_of in claude.SESSIONS.items():
        yield from (Recording(name, requests_of(), READINGS["messages"]) for name in _names(session))


def _names(name: str) -> list[str]:
    """A session, and where there is a twin the other that begins with the same requests and goes on otherwise."""
    return [name, f"{name}, twin"] if name.startswith(_TWINS) else [name]


RECORDINGS = [one for one in _recordings() if one.any]
