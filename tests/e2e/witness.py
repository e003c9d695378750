"""Who may be shown what: every summary is stamped with what it was made of, and every body is read for stamps.

An oracle of its own: it knows how a message may be spelt otherwise, how a cut tool result looks, and what a summary
stands for, and takes none of it from `proxy`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from aiohttp import web

from tests.e2e.reading import CHAT, Read, Reading
from tests.e2e.scribe import good, message

Message = dict[str, Any]

_CARRIER = "[Earlier turns of this conversation were summarised automatically"
_ACKNOWLEDGED = "Understood. I will carry on from there."
_STAMP = re.compile(r"stamp-[0-9a-f]{16}")
_ELIDED = re.compile(r"\n?\[… (\d+) characters elided …\]\n?")


class Asked(Protocol):
    """A request as an upstream had it."""

    @property
    def json(self) -> dict[str, Any]:
        """Its body, parsed."""


def normal(one: Message) -> str:
    """A message of chat without what clients spell otherwise between turns."""
    return CHAT.normal(one)


def _cut(said: str, whole: str) -> bool:
    """Whether this is that text with its middle cut out."""
    found = _ELIDED.search(said)
    if found is None:
        return False
    head, tail = said[: found.start()], said[found.end() :]
    return whole.startswith(head) and whole.endswith(tail) and len(head) + int(found[1]) + len(tail) == len(whole)


def _shortened(seen: Read | None, own: Read | None) -> bool:
    """Whether this is that item with the middle of results cut out, of one at least, and nothing else changed."""
    if seen is None or own is None or len(seen.results) != len(own.results):
        return False
    if replace(seen, results=own.results) != own:
        return False
    pairs = list(zip(seen.results, own.results, strict=True))
    return seen != own and all(one == mine or (one[0] == mine[0] and _cut(one[1], mine[1])) for one, mine in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one body showed of a history. `wrong` says what is not this client's, `surface` is what replaced it."""

    covered: int = 0
    surface: bytes = b""
    stamp: str = ""
    wrong: str = ""


class Witness:
    """Stamps summaries and judges bodies of one API."""

    def __init__(self, reading: Reading = CHAT) -> None:
        self._reading = reading
        #: What each summary was made of, all the way down to the clients' own items that say anything.
        self.made_of: dict[str, list[Message]] = {}

    async def summarise(self, request: Asked, number: int) -> web.Response:
        """A good summary that names exactly what it was asked to summarise, as chat."""
        return message(self.summary(request, number))

    def summary(self, request: Asked, number: int) -> str:
        """The text of one."""
        whole = self._spelled_out(self._to_summarise(request))
        name = hashlib.sha256(f"{len(self.made_of)} {json.dumps(whole)}".encode()).hexdigest()[:16]
        self.made_of[f"stamp-{name}"] = whole
        return f"{good(number)}\n\nMade of stamp-{name}."

    def _to_summarise(self, request: Asked) -> list[Message]:
        return self._telling(self._reading.divided(request.json[self._reading.field])[1][:-1])

    def _telling(self, items: Sequence[Message]) -> list[Message]:
        return [one for one in items if self._reading.read(one) is not None]

    def _text(self, one: Message) -> str:
        found = self._reading.read(one)
        return found.text if found else ""

    def _spelled_out(self, items: Sequence[Message]) -> list[Message]:
        stamps = _STAMP.findall(self._text(items[0])) if items and self._carries(items[0]) else []
        if not stamps:
            return list(items)
        return [*self.made_of[stamps[-1]], *items[self._skipped(items) :]]

    def _carries(self, one: Message) -> bool:
        return self._text(one).startswith(_CARRIER)

    def _skipped(self, items: Sequence[Message]) -> int:
        """How many items stand for a summary: the carrier, and the line after it where there is one."""
        return 1 + (len(items) > 1 and self._text(items[1]) == _ACKNOWLEDGED)

    def asked(self, request: Asked, sent: bytes) -> str:
        """What is wrong with a request for a summary of this history: nothing where it is."""
        own = self._telling(self._reading.divided(json.loads(sent)[self._reading.field])[1])
        whole = self._spelled_out(self._to_summarise(request))
        return "" if self._stand_for(whole, own[: len(whole)]) else "another history was to be summarised"

    def judged(self, body: bytes, sent: bytes) -> Seen:
        """What an upstream's body shows of the history that the client sent."""
        if body == sent:
            return Seen()
        start, items, end = self._reading.split(body)
        own_start, own, own_end = self._reading.split(sent)
        lead = len(self._reading.divided([json.loads(one) for one in own])[0])
        if (start, items[:lead], end) != (own_start, own[:lead], own_end):
            return Seen(wrong="what surrounds the history is not as it was sent")
        return self._judged(items[lead:], own[lead:])

    def _judged(self, items: list[bytes], own: list[bytes]) -> Seen:
        parsed, mine = [json.loads(one) for one in items], [json.loads(one) for one in own]
        stamp, covered, place = "", 0, 0
        changed: list[bytes] = []
        if self._carries(parsed[0]):
            stamps = set(_STAMP.findall(self._text(parsed[0])))
            if len(stamps) != 1 or not stamps <= self.made_of.keys():
                return Seen(wrong=f"a summary with the stamps {stamps}")
            stamp = stamps.pop()
            covered = len(self.made_of[stamp])
            place = self._end(mine, covered)
            if not self._stand_for(self.made_of[stamp], self._telling(mine[:place])):
                return Seen(stamp=stamp, wrong="a summary of another history")
            changed = items[: self._skipped(parsed)]
        shown = items[len(changed) :]
        if len(shown) != len(own) - place:
            return Seen(stamp=stamp, wrong=f"{len(shown)} items after {place} of {len(own)}")
        for one, his in zip(shown, own[place:], strict=True):
            if one != his:
                changed.append(one)
                if not _shortened(self._reading.read(json.loads(one)), self._reading.read(json.loads(his))):
                    return Seen(stamp=stamp, wrong="an item that the client did not send")
        return Seen(covered=covered, surface=b"\n".join(changed), stamp=stamp)

    def _end(self, own: Sequence[Message], covered: int) -> int:
        """How many of a client's items the first `covered` that say anything span."""
        telling = [at for at, one in enumerate(own) if self._reading.read(one) is not None]
        return telling[min(covered, len(telling)) - 1] + 1 if covered else 0

    def _stand_for(self, seen: Sequence[Message], own: Sequence[Message]) -> bool:
        """Whether these are the client's items, or with results cut."""
        pairs = [(self._reading.read(one), self._reading.read(mine)) for one, mine in zip(seen, own, strict=False)]
        return len(seen) == len(own) and all(one == mine or _shortened(one, mine) for one, mine in pairs)
