"""S4: a summary without a model. Deterministic; what it remembers is carried on and merged by key.

Pins, users' words and files stand in the carrier beside it; here is what tools and assistant said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from proxy.compaction.elision import Count, fit
from proxy.compaction.lexicon import SENTENCE, TROUBLE, weight
from proxy.dialects import Call, Result, Said

__all__ = ["SECTIONS", "outline", "remembered", "with_summary"]

Memory = Mapping[str, tuple[str, ...]]

#: Sections in the order in which they fill the budget: key, heading, the share of the whole in percent.
SECTIONS = (
    ("summary", "Earlier summary", 45),
    ("outcomes", "Commands and how they ended", 20),
    ("errors", "Error lines", 15),
    ("notes", "What the assistant decided and found", 25),
    ("last", "Last words of the assistant", 25),
    ("calls", "Last tool calls", 100),
)
_KEPT = 60
_LEAST_WEIGHT = 2
_CALLS = 6
_LINE = 240
_TEXT = 2_000
_ENDED_BADLY = re.compile(
    r"\bexit(?:ed)?(?: with)?(?: code| status)?[:= ]+[1-9]|\b[1-9]\d* (?:failed|failures?|errors?)\b", re.IGNORECASE
)
_SHELL_KEYS = ("command", "cmd", "script", "code", "query")
_NO_MEMORY: Memory = {}


def remembered(said: Sequence[Said], earlier: Memory = _NO_MEMORY) -> dict[str, tuple[str, ...]]:
    """What the outline keeps of the head, merged by key into what was remembered, oldest first."""
    texts = [one.text.strip() for one in said if one.role == "assistant" and one.text.strip()]
    calls = [call for one in said for call in one.calls]
    found = {
        "summary": (),
        "outcomes": tuple(_outcomes(said)),
        "errors": tuple(_error_lines(result for one in said for result in one.results)),
        "notes": _newest_notes(texts),
        "last": (texts[-1][:_TEXT],) if texts else earlier.get("last", ()),
        "calls": tuple(_signature(call) for call in calls[-_CALLS:]) or earlier.get("calls", ()),
    }
    replaced = ("last", "calls")
    memory = {
        key: lines if key in replaced else _merged(key, earlier.get(key, ()), lines) for key, lines in found.items()
    }
    return {key: lines[-_KEPT:] for key, lines in memory.items() if lines}


def with_summary(text: str) -> dict[str, tuple[str, ...]]:
    """The memory after a model's summary: its text says what was remembered before."""
    return {"summary": (text,)}


def outline(memory: Memory, budget: int, count: Count) -> str:
    """The memory as text within `budget` tokens, the sections in order, each with its newest lines."""
    parts: list[str] = []
    left = budget
    for key, heading, share in SECTIONS:
        title = f"## {heading}"
        room = min(left, budget * share // 100) - count(title)
        lines = _newest(memory.get(key, ()), room, count)
        if lines:
            parts.append("\n".join((title, *lines)))
            left -= count(parts[-1]) + 1
    return "\n".join(parts)


def _newest(lines: Sequence[str], room: int, count: Count) -> list[str]:
    """The newest lines that fit, oldest first; a line that does not fit whole is cut only if it is alone."""
    kept: list[str] = []
    for line in reversed(lines):
        shorter = line if count(line) <= room else "" if kept else fit(line, room, count)
        if not shorter:
            break
        kept.append(shorter)
        room -= count(shorter) + 1
    return kept[::-1]


def _merged(key: str, earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    """Later lines place their key anew: for outcomes command and how it ended, for others the line itself."""
    newest: dict[str, str] = {}
    for line in (*earlier, *later):
        name = line.partition(" → ")[0] if key == "outcomes" else line
        newest.pop(name, None)
        newest[name] = line
    return tuple(newest.values())


def _outcomes(said: Sequence[Said]) -> Iterable[str]:
    """The last failing and the last succeeding outcome of each command, as `ok|failed: command → last line`."""
    commands: dict[str, str] = {}
    outcomes: dict[str, str] = {}
    for one in said:
        commands |= {call.id: command for call in one.calls if (command := _command(call))}
        for result in one.results:
            if result.id in commands:
                name = f"{'failed' if _failed(result) else 'ok'}: {commands[result.id]}"
                outcomes.pop(name, None)
                outcomes[name] = f"{name} → {_last_line(result.text)}"
    return outcomes.values()


def _failed(result: Result) -> bool:
    """Whether a command's result speaks of failure: its own mark, or how its output ends."""
    return result.error or _ENDED_BADLY.search(result.text[-_LINE:]) is not None


def _command(call: Call) -> str:
    """What a shell-like call runs, in one line; empty for any other call."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    found = next((value[key] for key in _SHELL_KEYS if value.get(key)), "")
    text = " ".join(str(one) for one in found) if isinstance(found, list) else str(found)
    return _line(text).replace(" → ", " -> ")


def _error_lines(results: Iterable[Result]) -> Iterable[str]:
    """The error lines of results, at most three of each: the first ones name the cause."""
    for result in results:
        lines = [_line(line) for line in result.text.splitlines() if len(line) < _TEXT and TROUBLE.search(line[:_LINE])]
        yield from lines[:3]


def _newest_notes(texts: Sequence[str]) -> tuple[str, ...]:
    """The newest weighty sentences, oldest first; older texts are not read once there are enough."""
    found: list[str] = []
    for text in reversed(texts):
        found[:0] = _weighty(text)
        if len(found) >= _KEPT:
            break
    return tuple(found)


def _weighty(text: str) -> Iterable[str]:
    """Sentences that decide, find or name something."""
    for sentence in SENTENCE.split(text):
        bare = sentence.strip()
        if bare and weight(bare) >= _LEAST_WEIGHT:
            yield _line(bare)


def _signature(call: Call) -> str:
    return _line(f"{call.name}({' '.join(call.arguments.split())})", _LINE // 2)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return _line(lines[-1]) if lines else "(no output)"


def _line(text: str, longest: int = _LINE) -> str:
    """One line of bounded length."""
    bare = " ".join(text[: 2 * longest].split())
    return bare if len(bare) <= longest else bare[: longest - 1] + "…"
