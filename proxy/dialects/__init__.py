"""One wire format each, behind one Protocol: what an item says, what may stand, how a body is made.

A dialect is pure: bytes in, bytes and facts out. Which path speaks which is a table in `proxy.routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.core.meter import Weight
from proxy.core.transcript import Facts, Item, Transcript

__all__ = ["Call", "Completion", "Dialect", "Result", "Said", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of an assistant item; `arguments` is the text as sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One tool result: the id of its call, its text with media as markers, whether it says it failed."""

    id: str
    text: str
    error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An item as a reader sees it, the same for every dialect: text without reasoning, calls, results."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the upstream counted them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole reply to a summary request. `finish` is `stop`, `length`, `tool` or `other`."""

    text: str
    finish: str
    model: str = ""
    usage: Usage | None = None


class Dialect(Protocol):
    """One wire format. No method raises on odd input; what cannot be read is None or opaque."""

    name: str

    def split(self, body: bytes, *, model: str = "") -> Transcript | None:
        """Split a request body; None where it cannot be split, has no model, or names a key twice.

        `model` stands in where the body names none (it is then part of the path).
        """
        ...

    def facts(self, raw: bytes) -> Facts | None:
        """Read one item; None where it is not an item of this dialect."""
        ...

    def item(self, raw: bytes) -> Item | None:
        """An item with its facts, remembered by its bytes."""
        ...

    def said(self, raw: bytes) -> Said:
        """What the item says to a reader."""
        ...

    def weigh(self, raw: bytes) -> Weight:
        """What the meter counts of it."""
        ...

    def shrink(self, raw: bytes, change: Callable[[str], str]) -> bytes | None:
        """Apply `change` to each tool-result text of the item; None when that changes nothing."""
        ...

    def user(self, text: str) -> bytes:
        """A user item that says `text`."""
        ...

    def assistant(self, text: str) -> bytes:
        """An assistant item that says `text`."""
        ...

    def invalid(self, items: Sequence[Item], given: Sequence[Item] = ()) -> str | None:
        """Why an upstream would reject this order of items, None where it is valid or `given` has the fault too."""
        ...

    def render(self, transcript: Transcript, items: Sequence[Item]) -> bytes:
        """The body with these items instead of the client's; every other byte stays."""
        ...

    def summary_request(
        self,
        transcript: Transcript,
        items: Sequence[Item],
        instruction: str,
        *,
        max_tokens: int,
        alone: bool,
        model: str = "",
    ) -> bytes:
        """A body that asks for a summary of `items` (S1): the live prefix, then the instruction.

        `alone` leaves out the conversation's own system text, tools and items: the instruction is all.
        `model` is another than the conversation's; empty for its own, with its settings.
        """
        ...

    def answer(self, body: bytes) -> Completion | None:
        """Read a whole reply, streamed or not; None where it is not one, broke off, or holds an error."""
        ...

    def usage(self, tail: bytes, *, sse: bool) -> Usage | None:
        """Find the usage in the end of a reply (decoded bytes, perhaps cut at the front)."""
        ...

    def own_compaction(self, headers: Mapping[str, str], rest: str, transcript: Transcript) -> bool:
        """Whether this is the client's own compaction request (rule 4.8); `rest` is the path's REST."""
        ...
