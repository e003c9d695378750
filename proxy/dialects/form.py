"""What the dialects do alike: split a body, remember items, render a projection, ask for a summary.

A `Form` says under which keys a dialect keeps what; a `Wire` is a dialect made of a form and of what its
items mean, which each dialect says itself.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.known import Known
from proxy.core.split import elements, fields
from proxy.core.transcript import Envelope, Facts, Item, Transcript
from proxy.dialects import Usage
from proxy.dialects.parts import dumps, loads, mapping, parse

__all__ = ["Body", "Form", "Wire"]

_KNOWN_ITEMS = 50_000
#: A body with more is no conversation; reading it would keep the event loop from everybody else.
_MOST_ITEMS = 50_000
_LEADING = ("system", "developer")
_NO_FACTS = Facts(role="", digest=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a dialect spells a request; all but the last are top-level keys of the body.

    `items` holds the conversation. `read_by_model` are the other keys whose text the model reads. `limits`
    name the requested output, the best first. `kept_for_summary` are settings that a summary request
    keeps: they shape the cached prefix or the way the model thinks. `stores` is whether the upstream keeps
    replies unless told otherwise. `no_tools` is the `tool_choice` that forbids calls.
    """

    items: str
    read_by_model: tuple[str, ...]
    limits: tuple[str, ...]
    kept_for_summary: tuple[str, ...]
    stores: bool = False
    no_tools: bytes = b'"none"'


class Body:
    """The top-level values of one body, parsed only when asked for."""

    def __init__(self, body: bytes, spans: Mapping[str, tuple[int, int]]) -> None:
        """`spans` says where in `body` each value lies."""
        self._body, self._spans = body, spans

    def __contains__(self, key: str) -> bool:
        """Whether the body names it."""
        return key in self._spans

    def raw(self, key: str) -> bytes:
        """The bytes of a value that is there."""
        start, stop = self._spans[key]
        return self._body[start:stop]

    def value(self, key: str) -> object:
        """The value, None where there is none."""
        return parse(self.raw(key)) if key in self._spans else None

    def text(self, key: str) -> str:
        """The value where it is text, else empty."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def count(self, key: str) -> int | None:
        """The value where it is a whole number over 0."""
        value = self.value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def ids(self) -> tuple[str, ...]:
        """The conversation ids that clients put into bodies, best first."""
        metadata = mapping(self.value("metadata"))
        user = metadata.get("user_id")
        conversation = self.value("conversation")
        found = (
            mapping(conversation).get("id") if isinstance(conversation, dict) else conversation,
            mapping(self.value("client_metadata")).get("thread_id"),
            self.value("session_id"),
            self.value("prompt_cache_key"),
            metadata.get("session_id"),
            loads(user).get("session_id") if isinstance(user, str) else None,
        )
        return tuple(value for value in found if isinstance(value, str))


class Wire(ABC):
    """A dialect without its items. Stateless but for a bounded memory of item facts by the items' bytes."""

    name: str
    form: Form

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._known: Known[bytes, Facts] = Known(_KNOWN_ITEMS)

    # -- what each dialect says itself ----------------------------------------------------------------------

    @abstractmethod
    def facts(self, raw: bytes) -> Facts | None:
        """Read one item; None where it is none of this dialect."""

    @abstractmethod
    def user(self, text: str) -> bytes:
        """A user item."""

    @abstractmethod
    def faults(self, items: Sequence[Item]) -> Iterator[str]:
        """What an upstream would reject in this order of items."""

    @abstractmethod
    def counted(self, usage: object) -> Usage | None:
        """Prompt and completion tokens of a `usage` object, None where it has none."""

    def elsewhere(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the history lies at the server (rule 4.7)."""
        del items
        return body.value("previous_response_id") is not None

    def compacts(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the body asks the upstream to compact (rule 4.8)."""
        del items
        return body.value("context_management") is not None or body.value("truncation") == "auto"

    def limit_field(self, body: Body, model: str) -> str:
        """The key that limits the output of a request of ours: the client's own where it named one."""
        del model
        return next((key for key in self.form.limits if key in body), self.form.limits[0])

    # -- what all do alike ----------------------------------------------------------------------------------

    def split(self, body: bytes, *, model: str = "") -> Transcript | None:
        """Split a body (see `Dialect.split`)."""
        spans = fields(body)
        if spans is None or self.form.items not in spans:
            return None
        values = Body(body, spans)
        raws = elements(values.raw(self.form.items))
        named = values.text("model") or model
        if raws is None or not named.isprintable() or not named:  # it goes into logs, labels and keys
            return None
        known = self._items(raws)
        if known is None:
            return None
        lead = next((i for i, item in enumerate(known) if item.facts.role not in _LEADING), len(known))
        rest = known[lead:]
        return Transcript(
            body=body,
            span=spans[self.form.items],
            envelope=self._envelope(values, named, known, lead),
            items=rest,
            significant=tuple(i for i, item in enumerate(rest) if item.facts.significant),
        )

    def item(self, raw: bytes) -> Item | None:
        """An item with its facts, None where it is not one."""
        key = hashlib.sha256(raw).digest()
        facts = self._known.get(key)
        if facts is None:
            facts = self.facts(raw)
            if facts is None:
                return None
            self._known.put(key, facts)
        return Item(raw, key, facts)

    def invalid(self, items: Sequence[Item], given: Sequence[Item] = ()) -> str | None:
        """The first fault in the order of `items` that is not in `given` as well, None for none.

        A client's own oddity (a call it never answers) is the client's to send; only what a replacement
        would add is a fault of ours.
        """
        faults = list(self.faults(items))
        if not faults:
            return None
        added = Counter(faults) - Counter(self.faults(given))
        return next((fault for fault in faults if fault in added), None)

    def render(self, transcript: Transcript, items: Sequence[Item]) -> bytes:
        """The client's body with these items; all bytes outside the array stay."""
        start, stop = transcript.span
        raws = [item.raw for item in (*transcript.envelope.leading, *items)]
        return b"".join((transcript.body[:start], b"[", b",".join(raws), b"]", transcript.body[stop:]))

    def summary_request(
        self, transcript: Transcript, items: Sequence[Item], instruction: str, *, max_tokens: int, alone: bool = False
    ) -> bytes:
        """S1: the live prefix as the upstream has it cached, then the instruction as the last user item."""
        form = self.form
        body = Body(transcript.body, fields(transcript.body) or {})
        left_out = form.read_by_model if alone else ()
        kept = {key: body.raw(key) for key in form.kept_for_summary if key in body and key not in left_out}
        kept.setdefault("model", dumps(transcript.envelope.model))
        prefix = () if alone else (*(i.raw for i in transcript.envelope.leading), *(i.raw for i in items))
        kept[form.items] = b"[" + b",".join((*prefix, self.user(instruction))) + b"]"
        if "tools" in kept:
            kept["tool_choice"] = form.no_tools
        if form.stores or "store" in body:
            kept["store"] = b"false"
        budget = mapping(body.value("thinking")).get("budget_tokens")
        beyond = budget if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0 else 0
        kept[self.limit_field(body, transcript.envelope.model)] = b"%d" % (max_tokens + beyond)
        return b"{" + b",".join(dumps(key) + b":" + raw for key, raw in kept.items()) + b"}"

    def usage(self, tail: bytes, *, sse: bool) -> Usage | None:
        """The last usage in the end of a reply."""
        at = tail.rfind(b'"usage"')
        while at >= 0:
            found = self.counted(_value_after(tail, at + len(b'"usage"')))
            if found is not None or not sse:
                return found
            at = tail.rfind(b'"usage"', 0, at)
        return None

    def own_compaction(self, headers: Mapping[str, str], rest: str, transcript: Transcript) -> bool:
        """Whether the client marks this as its own compaction call."""
        del rest, transcript
        turn = headers.get("x-codex-turn-metadata", "")
        kind = loads(turn).get("request_kind") if turn else None
        return kind == "compaction" or headers.get("x-deepseek-harness-compact") == "1"

    def _items(self, raws: Sequence[bytes]) -> tuple[Item, ...] | None:
        """All of them, None where one is no item: found at the first, since reading a million takes seconds."""
        if len(raws) > _MOST_ITEMS:
            return None
        found: list[Item] = []
        for raw in raws:
            item = self.item(raw)
            if item is None:
                return None
            found.append(item)
        return tuple(found)

    def _envelope(self, body: Body, model: str, items: tuple[Item, ...], lead: int) -> Envelope:
        return Envelope(
            model=model,
            stream=body.value("stream") is True,
            output=next((count for key in self.form.limits if (count := body.count(key))), None),
            leading=items[:lead],
            rest=tuple(_plain(body.raw(key)) for key in self.form.read_by_model if key in body),
            ids=body.ids(),
            server_history=self.elsewhere(body, items),
            compacts=self.compacts(body, items),
        )


def _plain(raw: bytes) -> Item:
    """A part of the envelope that is no item: only its bytes and their size matter."""
    return Item(raw, hashlib.sha256(raw).digest(), _NO_FACTS)


def _value_after(tail: bytes, at: int) -> object:
    text = tail[at:].decode("utf-8", "replace").lstrip(" \t\r\n:")
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
