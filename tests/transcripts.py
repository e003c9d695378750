"""Building blocks for tests: chat messages, bodies, transcripts, recorded requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from proxy.core.transcript import Item, Transcript
from proxy.dialects.chat import CHAT

CAPTURES = Path(__file__).parent / "data" / "captures"

Message = dict[str, Any]

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="<\x00"), max_size=12)
WORDS = st.text("abcdefgh", min_size=1, max_size=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One recorded chat request: the capture's name, its number there, and the body."""

    capture: str
    number: int
    body: Message

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.capture} #{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a record's index says of a surface."""

    generation: int
    digest: bytes
    covered: int
    summarised: int = 0
    retired: bool = False


def user(text: str, **more: object) -> Message:
    """A user message."""
    return {"role": "user", "content": text, **more}


def says(text: str, **more: object) -> Message:
    """An assistant message."""
    return {"role": "assistant", "content": text, **more}


def system(text: str) -> Message:
    """A system message."""
    return {"role": "system", "content": text}


def calls(*ids: str, arguments: str = '{"path": "a.py"}', name: str = "read") -> Message:
    """An assistant message that calls tools."""
    made = [{"id": call, "type": "function", "function": {"name": name, "arguments": arguments}} for call in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call: str, text: str = "done") -> Message:
    """A tool result."""
    return {"role": "tool", "tool_call_id": call, "content": text}


def spelt(value: object) -> bytes:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def body(messages: Sequence[object], **more: object) -> bytes:
    """A request body."""
    return spelt({"model": "m", "messages": list(messages), **more})


def item(message: object) -> Item:
    """A message as an item."""
    found = CHAT.item(spelt(message))
    assert found is not None
    return found


def transcript(*messages: object) -> Transcript:
    """A split body of these messages."""
    found = CHAT.split(body(messages))
    assert found is not None
    return found


def digest(message: object) -> bytes:
    """The normalised digest of a message."""
    return item(message).facts.digest


@cache
def recorded() -> tuple[Recorded, ...]:
    """Every recorded chat request, in the order it was made."""
    return tuple(
        Recorded(capture=path.stem, number=request["n"], body=request["body"])
        for path in sorted(CAPTURES.glob("*.json"))
        for request in json.loads(path.read_text())["requests"]
        if isinstance(request["body"], dict) and "messages" in request["body"]
    )


@st.composite
def conversations(draw: st.DrawFn, *, steps: int = 8, odd: bool = False) -> list[Message]:
    """A random agent's history: talk, parallel calls, empty messages, system text in between.

    With `odd`, results may be late, missing, repeated or orphaned as well.
    """
    found: list[Message] = [user(draw(WORDS))]
    for step in range(draw(st.integers(0, steps))):
        kind = draw(st.sampled_from(["talk", "calls", "calls", "system", "empty", *(["late", "open", "orphan"] * odd)]))
        ids = [f"c{step}.{n}" for n in range(draw(st.integers(1, 3)))]
        results = [result(call, draw(WORDS)) for call in draw(st.permutations(ids))]
        found += {
            "talk": [says(draw(WORDS)), user(draw(WORDS))],
            "calls": [calls(*ids), *results],
            "system": [system(draw(WORDS))],
            "empty": [says("")],
            "late": [calls(*ids), *results[1:], user(draw(WORDS)), results[0]],
            "open": [calls(*ids), *results[1:]],
            "orphan": results[:1],
        }[kind]
    return found
