"""Who may be shown what: every summary is stamped with what it was made of, and every body is read for stamps.

An oracle of its own: it knows how a message may be spelt otherwise, how a cut tool result looks, and what a summary
stands for, and takes none of it from `proxy`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.e2e import scribe
from tests.e2e.scribe import Request, good, message

Message = dict[str, Any]

_LEADING = ("system", "developer")
_CARRIER = "[Earlier turns of this conversation were summarised automatically"
_ACKNOWLEDGED = "Understood. I will carry on from there."
_STAMP = re.compile(r"stamp-[0-9a-f]{16}")
_ELIDED = re.compile(r"\n?\[… (\d+) characters elided …\]\n?")
_THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def text_of(one: Message) -> str:
    """All a message says, however it is spelt."""
    content = one.get("content")
    parts = content if isinstance(content, list) else [content or ""]
    text = "".join(part if isinstance(part, str) else part.get("text", "") for part in parts)
    return (_THINK.sub("", text) if one["role"] == "assistant" else text).strip()


def normal(one: Message) -> str:
    """A message without what clients spell otherwise between turns."""
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in one.get("tool_calls") or ()
    ]
    return json.dumps([one["role"], text_of(one), calls, one.get("tool_call_id"), one.get("name")], sort_keys=True)


def _stands_for(seen: Message, own: Message) -> bool:
    """Whether this is the client's message, or its tool result with the middle cut out."""
    if normal(seen) == normal(own):
        return True
    said, whole = text_of(seen), text_of(own)
    cut = _ELIDED.search(said)
    if cut is None or own["role"] != "tool" or seen.get("tool_call_id") != own.get("tool_call_id"):
        return False
    head, tail = said[: cut.start()], said[cut.end() :]
    return whole.startswith(head) and whole.endswith(tail) and len(head) + int(cut[1]) + len(tail) == len(whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one body showed of a history. `wrong` says what is not this client's, `surface` is what replaced it."""

    covered: int = 0
    surface: bytes = b""
    stamp: str = ""
    wrong: str = ""


class Witness:
    """Stamps summaries and judges bodies."""

    def __init__(self) -> None:
        #: What each summary was made of, all the way down to the clients' own messages.
        self.made_of: dict[str, list[Message]] = {}

    async def summarise(self, request: Request, number: int) -> web.Response:
        """A good summary that names exactly what it was asked to summarise."""
        items = [one for one in request.json["messages"][:-1] if one["role"] not in _LEADING]
        whole = self._spelled_out(items)
        name = hashlib.sha256(f"{len(self.made_of)} {json.dumps(whole)}".encode()).hexdigest()[:16]
        self.made_of[f"stamp-{name}"] = whole
        return message(f"{good(number)}\n\nMade of stamp-{name}.")

    def _spelled_out(self, items: Sequence[Message]) -> list[Message]:
        stamps = _STAMP.findall(text_of(items[0])) if items and text_of(items[0]).startswith(_CARRIER) else []
        if not stamps:
            return list(items)
        rest = items[2:] if len(items) > 1 and text_of(items[1]) == _ACKNOWLEDGED else items[1:]
        return [*self.made_of[stamps[-1]], *rest]

    def asked(self, request: Request, sent: bytes) -> str:
        """What is wrong with a request for a summary of this history: nothing where it is."""
        own = [one for one in json.loads(sent)["messages"] if one["role"] not in _LEADING]
        whole = self._spelled_out([one for one in request.json["messages"][:-1] if one["role"] not in _LEADING])
        return "" if _stand_for(whole, own[: len(whole)]) else "another history was to be summarised"

    def judged(self, body: bytes, sent: bytes) -> Seen:
        """What an upstream's body shows of the history that the client sent."""
        if body == sent:
            return Seen()
        start, items, end = scribe.split(body)
        own_start, own, own_end = scribe.split(sent)
        lead = next((at for at, one in enumerate(own) if json.loads(one)["role"] not in _LEADING), len(own))
        if (start, items[:lead], end) != (own_start, own[:lead], own_end):
            return Seen(wrong="what surrounds the history is not as it was sent")
        return self._judged(items[lead:], own[lead:])

    def _judged(self, items: list[bytes], own: list[bytes]) -> Seen:
        first, stamp, covered, shown = json.loads(items[0]), "", 0, items
        changed: list[bytes] = []
        if text_of(first).startswith(_CARRIER):
            stamps = set(_STAMP.findall(text_of(first)))
            if len(stamps) != 1 or not stamps <= self.made_of.keys():
                return Seen(wrong=f"a summary with the stamps {stamps}")
            stamp = stamps.pop()
            covered = len(self.made_of[stamp])
            if not _stand_for(self.made_of[stamp], [json.loads(one) for one in own[:covered]]):
                return Seen(stamp=stamp, wrong="a summary of another history")
            skipped = 1 + (len(items) > 1 and text_of(json.loads(items[1])) == _ACKNOWLEDGED)
            changed, shown = items[:skipped], items[skipped:]
        if len(shown) != len(own) - covered:
            return Seen(stamp=stamp, wrong=f"{len(shown)} messages after {covered} of {len(own)}")
        for one, mine in zip(shown, own[covered:], strict=True):
            if one != mine:
                changed.append(one)
                if not _ELIDED.search(text_of(json.loads(one))) or not _stands_for(json.loads(one), json.loads(mine)):
                    return Seen(stamp=stamp, wrong="a message that the client did not send")
        return Seen(covered=covered, surface=b"\n".join(changed), stamp=stamp)


def _stand_for(seen: Sequence[Message], own: Sequence[Message]) -> bool:
    return len(seen) == len(own) and all(_stands_for(one, mine) for one, mine in zip(seen, own, strict=True))
