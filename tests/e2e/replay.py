"""Recorded sessions of real clients, made long: their texts at full length, then the same turns over and over.

A recording holds one session's main line, the calls beside it (a title, a memory sub-agent, the client's own summary),
and perhaps the line that begins anew after the client's own compaction. Every line is grown in the client's own
spelling until Carryon has to pack it, more than once.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.e2e.witness import normal

Message = dict[str, Any]

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
#: How often a turn is repeated on each line.
TURNS = 12
#: The window a recording is replayed in, by its own `max_tokens` and system text, and the length of a grown text.
WINDOWS = {"small": 8_192, "large": 16_384, "huge": 32_768}
_LENGTHS = {"small": 2_600, "large": 2_600, "huge": 5_500}
_LONG_SYSTEM = 20_000
_LEADING = ("system", "developer")
_PLACEHOLDER = re.compile(r"\[text of (\d+) characters written by the client, replaced; id (\w+)\]")
#: aider's newest question carries a suffix of 853 characters that is gone next turn: what is known of the three.
_ASKED = {"7ccef813": "hello first", "06afb363": "second question", "e7b4ada3": "third question"}
_WORDS = """
ledger invoice round total folder branch module handler request answer column record deploy review result number
""".split()  # noqa: SIM905 - words read better than a column of quotes


def filler(length: int, seed: str) -> str:
    """So many characters of words, the same for the same seed and different for every other."""
    at = sum(seed.encode())
    words = [f"{seed}:"]
    while sum(map(len, words)) + len(words) < length + 1:
        at = (at * 31 + 7) % 9_973
        words.append(_WORDS[at % len(_WORDS)])
    return " ".join(words)[: max(length, len(seed) + 1)]


def _whole(match: re.Match[str]) -> str:
    length, name = int(match[1]), match[2]
    asked = _ASKED.get(name)
    return filler(length, name) if asked is None else asked + filler(length - len(asked), "suffix")


def _blown_up(value: Any) -> Any:
    """The same with every text at its full length."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(_whole, value)
    if isinstance(value, list):
        return [_blown_up(one) for one in value]
    return {key: _blown_up(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: what it is for (`main`, `beside`), on which line, its headers and its whole body."""

    kind: str
    line: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def spelled(self) -> bytes:
        """Its bytes, in the key order of the client."""
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode()


def _split(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    lead = next((at for at, one in enumerate(messages) if one["role"] not in _LEADING), len(messages))
    return list(messages[:lead]), list(messages[lead:])


def _begins(history: Sequence[Message], start: Sequence[Message]) -> bool:
    return [normal(one) for one in history[: len(start)]] == [normal(one) for one in start]


class Recording:
    """One capture with chat requests in it."""

    def __init__(self, file: Path) -> None:
        self.name = file.stem
        requests = json.loads(file.read_text())["requests"]
        chat = [one for one in requests if one["method"] == "POST" and one["path"].endswith("/chat/completions")]
        self._asks = [(_headers(one["headers"]), _blown_up(one["body"])) for one in chat]
        self.any = bool(self._asks)

    @cached_property
    def _system(self) -> list[Message]:
        """The leading text of most requests: that of the session itself."""
        leads = [_split(body["messages"])[0] for _, body in self._asks]
        return max(leads, key=leads.count)

    @cached_property
    def size(self) -> str:
        """In which window it is replayed."""
        bodies = [body for _, body in self._asks if _split(body["messages"])[0] == self._system]
        if len(json.dumps(self._system)) > _LONG_SYSTEM:
            return "huge"
        return "large" if any("max_tokens" in one or "max_completion_tokens" in one for one in bodies) else "small"

    @cached_property
    def _suffix(self) -> str:
        return filler(853, "suffix") if self.name.startswith("aider") else ""

    def asks(self, *, linear: bool = False) -> Iterator[Ask]:
        """All requests in order; only the session's own where it is to be `linear`."""
        beside = [ask for ask in self._asks if _split(ask[1]["messages"])[0] != self._system]
        line, history = -1, None
        lines = list(self._lines())
        for line, recorded in enumerate(lines):
            if not linear:
                yield from (self._beside(ask, line) for ask in beside if not self._resends(ask, recorded[0]))
            for headers, body in recorded:
                yield Ask(kind="main", line=line, headers=headers, body=self._named(body))
            history = recorded[-1]
            for grown in self._grown(*history, line):
                yield grown
                if linear or grown.body["messages"][-1]["role"] == "tool":
                    continue
                yield from (self._renewed(ask, grown) for ask in beside if self._resends(ask, history))
        if not linear:
            yield from (self._beside(ask, line) for ask in beside if not self._resends(ask, lines[0][0]))

    def _lines(self) -> Iterator[list[tuple[dict[str, str], dict[str, Any]]]]:
        """The session's own requests, one list for each history that another begins with."""
        found: list[tuple[dict[str, str], dict[str, Any]]] = []
        for ask in self._asks:
            lead, own = _split(ask[1]["messages"])
            if lead != self._system:
                continue
            if found and not _begins(own, self._kept(_split(found[-1][1]["messages"])[1])):
                yield found
                found = []
            found.append(ask)
        yield found

    def _kept(self, history: list[Message]) -> list[Message]:
        """A history as the next turn repeats it: without the suffix of its newest question."""
        if not self._suffix:
            return history
        asked = history[-1]["content"].removesuffix(self._suffix)
        return [*history[:-1], {**history[-1], "content": asked}]

    def _resends(self, ask: tuple[dict[str, str], dict[str, Any]], main: tuple[dict[str, str], dict[str, Any]]) -> bool:
        """Whether a call beside the session sends the session's history again."""
        return _begins(_split(ask[1]["messages"])[1], _split(main[1]["messages"])[1][:1])

    def _named(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body for the model whose window fits this recording."""
        return {**body, "model": f"{self.size}-model" if body["model"] == "mock-model" else body["model"]}

    def _beside(self, ask: tuple[dict[str, str], dict[str, Any]], line: int) -> Ask:
        return Ask(kind="beside", line=line, headers=ask[0], body=self._named(ask[1]))

    def _renewed(self, ask: tuple[dict[str, str], dict[str, Any]], grown: Ask) -> Ask:
        """A call that sends the history again, as it would after this turn."""
        lead, own = _split(ask[1]["messages"])
        messages = [*lead, *_split(grown.body["messages"])[1], _long(own[-2], 0, 40, f"answer {grown.line}"), own[-1]]
        return Ask(kind="beside", line=grown.line, headers=ask[0], body=self._named({**ask[1], "messages": messages}))

    def _grown(self, headers: dict[str, str], body: dict[str, Any], line: int) -> Iterator[Ask]:
        """Turn after turn on one line: a step with a tool where the client has one, an answer, a question."""
        length = _LENGTHS[self.size]
        messages = [*body["messages"][:-1], *self._kept(body["messages"])[-1:]]
        step, said, asked = _template(messages)
        for turn in range(1, TURNS + 1):
            owner = f"{self.name} line {line} turn {turn}"
            if step:
                messages = [*messages, *(_long(one, turn, length, owner) for one in step)]
                yield self._ask(headers, body, messages, line)
            messages = [*messages, _long(said, turn, length, owner)]
            question = _long(asked, turn, length, owner)
            if self._suffix:
                yield self._ask(
                    headers, body, [*messages, {**question, "content": question["content"] + self._suffix}], line
                )
            else:
                yield self._ask(headers, body, [*messages, question], line)
            messages = [*messages, question]

    def _ask(self, headers: dict[str, str], body: dict[str, Any], messages: list[Message], line: int) -> Ask:
        return Ask(kind="main", line=line, headers=headers, body=self._named({**body, "messages": messages}))


def _headers(listed: list[list[str]]) -> dict[str, str]:
    dropped = {"connection", "accept-encoding", "authorization", "content-type"}
    return {name: value for name, value in listed if name.lower() not in dropped}


def _template(messages: list[Message]) -> tuple[list[Message], Message, Message]:
    """The client's own step with a tool (or none), its answer and its question."""
    at = next((at for at, one in enumerate(messages) if one.get("tool_calls")), None)
    step = [] if at is None else messages[at : at + 2]
    answers = [one for one in messages if one["role"] == "assistant" and not one.get("tool_calls")]
    said = answers[-1] if answers else {"role": "assistant", "content": ""}
    return step, said, next(one for one in reversed(messages) if one["role"] == "user")


def _long(message: Message, turn: int, length: int, owner: str) -> Message:
    """The same message of a later turn: other words, other call ids, the client's spelling."""
    found = copy.deepcopy(message)
    text = filler(length, f"{owner} {message['role']}")
    for call in found.get("tool_calls", ()):
        call["id"] = f"call_9{turn:03}"
        spaced = ": " in call["function"]["arguments"]
        arguments = {**json.loads(call["function"]["arguments"]), "note": f"turn {turn}"}
        call["function"]["arguments"] = json.dumps(arguments, separators=(", ", ": ") if spaced else (",", ":"))
    if "tool_call_id" in found:
        found["tool_call_id"] = f"call_9{turn:03}"
    if isinstance(found.get("content"), list):
        found["content"] = [{**found["content"][0], "text": text}]
    elif not found.get("tool_calls"):
        found["content"] = text
    return found


RECORDINGS = [one for one in map(Recording, sorted(CAPTURES.glob("*.json"))) if one.any]
