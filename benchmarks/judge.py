"""What a projection still holds of a history: an oracle that shares nothing with `proxy` but its counting of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.tokens import count_with
from tests.clients.validity import problem
from tests.e2e.reading import READINGS
from tests.e2e.witness import Seen, Witness

Item = dict[str, Any]

_SECTION = re.compile(r"<(conversation_\w+)[^>]*>\n(.*?)\n</\1>", re.DOTALL)
_COVERS = re.compile(r'<conversation_summary covers="items 1-(\d+)">')
_TAGS = re.compile(r"</?conversation_\w+")
_ELIDED = re.compile(r"\n?\[… (\d+) characters elided …\]\n?")
_SUMMARY = "conversation_summary"
#: Stands after a carrier where the assistant is not next.
ACKNOWLEDGED = "Understood. I will carry on from there."
#: What of a surface's budget may stay unused though a message did not fit: a heading, line ends, a cut word.
_SLACK = 0.05
#: So much of a text finds where it begins.
_START = 24


class ByCovers(Witness):
    """A witness that takes from a summary's tag how many items it stands for, whoever wrote it."""

    def judged(self, body: bytes, sent: bytes) -> Seen:
        """What an upstream's body shows of the history that the client sent."""
        items, own = (self._reading.divided(json.loads(one)[self._reading.field])[1] for one in (body, sent))
        covers = _COVERS.findall(self._text(items[0]))[-1:] if body != sent else []
        self.made_of = {_stamp(one): self._telling(own)[: int(one)] for one in covers}
        return super().judged(body, sent)

    def _text(self, one: Item) -> str:
        text = super()._text(one)
        return f"{text} {_stamp(covers[-1])}" if (covers := _COVERS.findall(text)) else text


def _stamp(covers: str) -> str:
    return f"stamp-{int(covers):016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """The item that stands for the head, taken apart. `sections` are by tag, `covers` the items it stands for."""

    text: str
    role: str
    covers: int
    sections: dict[str, str]

    @property
    def owned(self) -> str:
        """All that code put there, and no model."""
        return "\n".join(text for tag, text in self.sections.items() if tag != _SUMMARY)

    @property
    def rules(self) -> str:
        """Where a rule must stand: among the rules, or in the task or the newest message, which hold it already."""
        places = ("conversation_rules", "conversation_task", "conversation_newest_user_message")
        return "\n".join(self.sections.get(tag, "") for tag in places)

    @property
    def intact(self) -> bool:
        """Whether every tag is there once at most and none is nested or left open."""
        tags = _TAGS.findall(self.text)
        opened = [tag for tag in tags if not tag.startswith("</")]
        in_pairs = tags == [one for tag in opened for one in (tag, f"</{tag[1:]}")]
        return in_pairs and len(opened) == len(set(opened)) == len(self.sections)


def carrier(api: str, body: Item) -> Carrier | None:
    """The carrier of a projection, None where it has none."""
    reading = READINGS[api]
    first = reading.divided(body[reading.field])[1][0]
    read = reading.read(first)
    found = _COVERS.findall(read.text) if read else []
    if read is None or not found:
        return None
    sections = {tag: text.replace("&lt;", "<") for tag, text in _SECTION.findall(read.text)}
    return Carrier(text=read.text, role=read.role, covers=int(found[-1]), sections=sections)


def stranger(shown: Sequence[bytes], own: Sequence[bytes]) -> str:
    """What of the items after a carrier is not the client's own last items, byte for byte or with a result cut."""
    if len(shown) != len(own):
        return f"{len(shown)} items stand for {len(own)}"
    for one, his in zip(shown, own, strict=True):
        if one != his:
            seen, sent = json.loads(one), json.loads(his)
            changed = {key for key in seen.keys() | sent.keys() if seen.get(key) != sent.get(key)}
            if (seen["role"], changed) != ("tool", {"content"}) or not shortened(sent["content"], seen["content"]):
                return "an item that the client did not send"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of what was to be kept are there: `cut` are those that the budget had no room for, wholly or in part."""

    kept: int = 0
    of: int = 0
    cut: int = 0

    @property
    def whole(self) -> bool:
        """Whether nothing is missing that the budget had room for."""
        return self.kept + self.cut == self.of

    def __add__(self, other: Share) -> Share:
        return Share(kept=self.kept + other.kept, of=self.of + other.of, cut=self.cut + other.cut)

    def __str__(self) -> str:
        return f"{self.kept}/{self.of}" + (f" ({self.cut} cut)" if self.cut else "")


def kept(wanted: Sequence[str], text: str) -> Share:
    """How many of these stand in a text."""
    return Share(kept=sum(one in text for one in wanted), of=len(wanted))


def words_kept(wanted: Sequence[str], found: Carrier, window: int) -> Share:
    """Users' words, oldest first: kept whole or, where the budget is spent, shortened or gone from the oldest on."""
    budget = min(window // 5, 40_000)
    whole = [one.strip() in found.owned for one in wanted]
    room = _room(found, budget)
    least = min(budget // 8, room)
    cut = 0
    for at, one in enumerate(wanted):
        fits = _tokens(one) <= (1 - _SLACK) * least
        partly = not whole[at] and shortened(one.strip(), found.owned)
        gone = not whole[at] and not partly and not any(_there(word, found) for word in wanted[:at])
        cut += (partly and not fits) or (gone and _tokens(one) + _SLACK * budget > room)
    return Share(kept=sum(whole), of=len(whole), cut=cut)


def rules_kept(wanted: Sequence[str], found: Carrier, window: int) -> Share:
    """Rules, oldest first: the newest stay, and older ones go only where the newest fill their eighth."""
    there = [one in found.rules for one in wanted]
    gone = len(there) if not any(there) else there.index(True)
    section = found.sections.get("conversation_rules", "")
    longest = max(map(_tokens, section.splitlines()), default=0)
    full = _tokens(section) + longest >= (1 - _SLACK) * (min(window // 5, 40_000) // 8)
    return Share(kept=sum(there), of=len(there), cut=gone if full else 0)


def _there(word: str, found: Carrier) -> bool:
    return word.strip() in found.owned or shortened(word.strip(), found.owned)


def _room(found: Carrier, budget: int) -> int:
    """What the budget had left once words, pins and summary were written: files fill it only afterwards."""
    modified = _tokens(found.sections.get("conversation_files_modified", ""))
    read = _tokens(found.sections.get("conversation_files_read", ""))
    return budget - _tokens(found.text) + read + max(0, modified - budget // 8)


def shortened(text: str, owned: str) -> bool:
    """Whether a text stands there with its middle cut out."""
    for marker in _ELIDED.finditer(owned):
        at = owned.rfind(text[:_START], 0, marker.start())
        head = owned[at : marker.start()]
        left = len(text) - len(head) - int(marker[1])
        if at >= 0 and text.startswith(head) and left >= 0 and owned.startswith(text[len(text) - left :], marker.end()):
            return True
    return False


def _tokens(text: str) -> int:
    return count_with("o200k_base")(text)


def invalid(api: str, body: Item, own: Item | None = None) -> str:
    """Why the API would reject a projection; of a history `own` that breaks a rule itself only the pairs are judged."""
    strict = own is None or problem(api, own) is None
    return (problem(api, body) if strict else READINGS[api].api.problem(body)) or ""
