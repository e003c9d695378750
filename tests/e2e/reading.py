"""How the items of each API read, whatever their spelling: the witness's eyes, and none of `proxy`'s.

What clients spell otherwise between turns is gone from a `Read`: white space, ids of items, reasoning, cache marks.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

from tests.e2e.apis import APIS, Api
from tests.e2e.scribe import INSTRUCTION

Item = dict[str, Any]

_THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_THOUGHTS = ("thinking", "redacted_thinking")
#: Which of the other top-level fields are system text.
_SYSTEM_FIELDS = ("system", "instructions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What an item says: `calls` are id, name and arguments, `results` are id and text."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    name: str | None = None


class Reading(ABC):
    """One API's items."""

    name: ClassVar[str]
    leading: ClassVar[tuple[str, ...]] = ("system", "developer")

    def __init__(self) -> None:
        self.api: Api = next(api for api in APIS if api.name == self.name)
        self.field = self.api.field

    @abstractmethod
    def read(self, item: Item) -> Read | None:
        """What it says; None where it says nothing by itself."""

    def normal(self, item: Item) -> str:
        """An item without what clients spell otherwise between turns."""
        return json.dumps(astuple(found)) if (found := self.read(item)) else ""

    def divided(self, items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
        """System text at the beginning, and the rest."""
        lead = next((at for at, one in enumerate(items) if one.get("role") not in self.leading), len(items))
        return list(items[:lead]), list(items[lead:])

    def system(self, body: Item) -> str:
        """All leading system text of a body."""
        fields = [_text(body.get(field)) for field in _SYSTEM_FIELDS]
        return "\n".join([*map(self.normal, self.divided(body[self.field])[0]), *filter(None, fields)])

    def asks_for_summary(self, body: Item) -> bool:
        """Whether Carryon made this request itself."""
        newest = self.read(body[self.field][-1])
        return newest is not None and newest.text.startswith(INSTRUCTION)

    def split(self, body: bytes) -> tuple[bytes, list[bytes], bytes]:
        """What stands before the items, each item, what stands after; for bodies spelt without spaces there."""
        marker = f'"{self.field}":['.encode()
        start = body.index(marker) + len(marker)
        text, decoder, found = body[start:].decode(), json.JSONDecoder(), []
        at = 0
        while text[at] != "]":
            at += text[at] == ","
            stop = decoder.raw_decode(text, at)[1]
            found.append(text[at:stop].encode())
            at = stop
        return body[:start], found, text[at:].encode()


class ChatReading(Reading):
    """Messages of `/chat/completions`."""

    name = "chat"

    def read(self, item: Item) -> Read | None:
        """Reasoning is in fields nobody reads here."""
        text, role = _text(item.get("content")), item["role"]
        calls = tuple(
            (call["id"], call["function"]["name"], _canonical(call["function"]["arguments"]))
            for call in item.get("tool_calls") or ()
        )
        if role == "tool":
            return Read(role=role, results=((item["tool_call_id"], text),), name=item.get("name"))
        said = _THINK.sub("", text).strip() if role == "assistant" else text
        return Read(role=role, text=said, calls=calls, name=item.get("name"))


class ResponsesReading(Reading):
    """Input items of `/responses`."""

    name = "responses"

    def read(self, item: Item) -> Read | None:
        """Reasoning belongs to what follows it."""
        kind = item.get("type", "message")
        if kind == "reasoning":
            return None
        if kind == "function_call":
            return Read(role="assistant", calls=((item["call_id"], item["name"], _canonical(item["arguments"])),))
        if kind == "function_call_output":
            return Read(role="tool", results=((item["call_id"], _text(item["output"])),))
        if kind == "message":
            return Read(role=item["role"], text=_text(item["content"]))
        return Read(role=kind, text=str(item.get("encrypted_content", "")))


class MessagesReading(Reading):
    """Messages of `/messages`."""

    name = "messages"
    leading = ()

    def read(self, item: Item) -> Read | None:
        """Calls and results stand among the blocks."""
        content = item["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found = Read(
            role=item["role"],
            text=_text([block for block in blocks if block["type"] == "text"]),
            calls=tuple((b["id"], b["name"], json.dumps(b["input"], sort_keys=True)) for b in _of(blocks, "tool_use")),
            results=tuple((b["tool_use_id"], _text(b.get("content"))) for b in _of(blocks, "tool_result")),
        )
        return found if found.text or found.calls or found.results else None


def _of(blocks: Sequence[Item], kind: str) -> list[Item]:
    return [block for block in blocks if block["type"] == kind]


def _text(content: object) -> str:
    """The text of content however it is spelt."""
    parts = content if isinstance(content, list) else [content or ""]
    texts = (part if isinstance(part, str) else part.get("text", "") for part in parts if not _thought(part))
    return "".join(texts).strip()


def _thought(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in _THOUGHTS


def _canonical(arguments: str) -> str:
    return json.dumps(json.loads(arguments), sort_keys=True)


CHAT = ChatReading()
READINGS: dict[str, Reading] = {one.name: one for one in (CHAT, ResponsesReading(), MessagesReading())}
