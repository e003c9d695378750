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
from proxy.core.split import crowded, elements, fields
from proxy.core.transcript import Envelope, Facts, Item, Transcript
from proxy.dialects import Completion, Usage
from proxy.dialects.body import Body
from proxy.dialects.flaws import Flaws, beyond
from proxy.dialects.parts import Message, dumps, loads, mapping
from proxy.dialects.stream import Gather, whole

__all__ = ["Form", "Wire"]

_KNOWN_ITEMS = 50_000
#: Characters of role and ids beyond which an item is read anew each time: what is remembered is bounded by count.
_SHORT = 1_024
#: A body with more items, or JSON values in all, is no conversation; reading it would keep others waiting.
_MOST_ITEMS, _MOST_VALUES = 20_000, 200_000
#: How many places in the end of a stream are tried for its usage, and how long one is.
_USAGES, _LONGEST_USAGE = 16, 1 << 14
_LEADING = ("system", "developer")
#: A summary is streamed where the client streams: some upstreams do nothing else, and no proxy tires of a long silence.
_STREAMED = ("stream", "stream_options")
_NO_FACTS = Facts(role="", digest=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a dialect spells a request; all but the last are top-level keys of the body.

    `items` holds the conversation. `read_by_model` are the other keys whose text the model reads. `limits`
    name the requested output, the best first. `kept_for_summary` are settings that a summary request
    keeps beside `stream`: they shape the cached prefix or the way the model thinks. `gather` puts the events
    of a streamed reply together. `flaws` and `sealed` read one item (see `proxy.dialects.flaws`). `stores` is
    whether the upstream keeps replies unless told otherwise. `no_tools` is the `tool_choice` that forbids calls.
    """

    items: str
    read_by_model: tuple[str, ...]
    limits: tuple[str, ...]
    kept_for_summary: tuple[str, ...]
    gather: Gather
    flaws: Flaws
    sealed: Flaws
    stores: bool = False
    no_tools: bytes = b'"none"'


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

    def apart(self, items: Sequence[Item]) -> Iterator[str]:
        """What stands without that which it came with: a client may have dropped it, a replacement may not."""
        del items
        yield from ()

    @abstractmethod
    def counted(self, usage: object) -> Usage | None:
        """Prompt and completion tokens of a `usage` object, None where it has none."""

    @abstractmethod
    def completed(self, reply: Message) -> Completion | None:
        """Read the value of a whole reply, None where it is none."""

    def elsewhere(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the history lies at the server (rule 4.7)."""
        del items
        return body.value("previous_response_id") is not None

    def compacts(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the body asks the upstream to compact (rule 4.8)."""
        del items
        return body.value("context_management") is not None or body.value("truncation") == "auto"

    def limit_field(self, body: Body, model: str) -> str:
        """The key that limits the output of a request of ours: the client's own where it named one; empty for none."""
        del model
        return next((key for key in self.form.limits if key in body), self.form.limits[0])

    # -- what all do alike ----------------------------------------------------------------------------------

    def split(self, body: bytes, *, model: str = "") -> Transcript | None:
        """Split a body (see `Dialect.split`)."""
        spans = None if crowded(body, _MOST_VALUES) else fields(body)
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
            if sum(map(len, (facts.role, *facts.opens, *facts.answers))) <= _SHORT:
                self._known.put(key, facts)
        return Item(raw, key, facts)

    def invalid(self, items: Sequence[Item], given: Sequence[Item] = ()) -> str | None:
        """The first fault of `items` that is not in `given` as well, None for none.

        A client's own oddity (a call it never answers) is the client's to send; only what a replacement
        would add is a fault of ours. With `given`, so is what only a client may send.
        """
        ours, theirs = Counter(self.faults(items)), Counter(self.faults(given))
        new, gone = beyond(items, given), beyond(given, items)
        ours.update(self._flaws(new, sealed=bool(given)))
        theirs.update(self._flaws(gone, sealed=bool(given)))
        if given:
            ours.update(self.apart(items))
            theirs.update(self.apart(given))
        return next(iter(ours - theirs), None)

    def render(self, transcript: Transcript, items: Sequence[Item]) -> bytes:
        """The client's body with these items; all bytes outside the array stay."""
        start, stop = transcript.span
        raws = [item.raw for item in (*transcript.envelope.leading, *items)]
        return b"".join((transcript.body[:start], b"[", b",".join(raws), b"]", transcript.body[stop:]))

    def summary_request(
        self,
        transcript: Transcript,
        items: Sequence[Item],
        instruction: str,
        *,
        max_tokens: int,
        alone: bool = False,
        model: str = "",
    ) -> bytes:
        """S1: the live prefix as the upstream has it cached, then the instruction as the last user item.

        Another `model` than the conversation's gets none of its settings: they were chosen for that one.
        """
        form = self.form
        body = Body(transcript.body, fields(transcript.body) or {})
        settings = Body(b"", {}) if model else body
        left_out = form.read_by_model if alone else ()
        own = [key for key in form.kept_for_summary if not model or key in form.read_by_model]
        keys = (*own, *_STREAMED)
        kept = {"model": dumps(model)} if model else {}
        kept |= {key: body.raw(key) for key in keys if key in body and key not in left_out}
        kept.setdefault("model", dumps(transcript.envelope.model))
        prefix = () if alone else (*(i.raw for i in transcript.envelope.leading), *(i.raw for i in items))
        kept[form.items] = b"[" + b",".join((*prefix, self.user(instruction))) + b"]"
        if "tools" in kept:
            kept["tool_choice"] = form.no_tools
        if form.stores or "store" in body:
            kept["store"] = b"false"
        budget = mapping(settings.value("thinking")).get("budget_tokens")
        beyond = budget if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0 else 0
        if limit := self.limit_field(settings, model or transcript.envelope.model):
            kept[limit] = b"%d" % (max_tokens + beyond)
        return b"{" + b",".join(dumps(key) + b":" + raw for key, raw in kept.items()) + b"}"

    def answer(self, body: bytes) -> Completion | None:
        """Read a whole reply, streamed or not."""
        return self.completed(whole(body, self.form.gather))

    def usage(self, tail: bytes, *, sse: bool) -> Usage | None:
        """The last usage in the end of a reply."""
        at = len(tail)
        for _ in range(_USAGES if sse else 1):
            at = tail.rfind(b'"usage"', 0, at)
            found = None if at < 0 else self.counted(_value_after(tail, at + len(b'"usage"')))
            if found is not None or at < 0:
                return found
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

    def _flaws(self, items: Sequence[Item], *, sealed: bool) -> Iterator[str]:
        for value in (loads(item.raw) for item in items):
            yield from self.form.flaws(value)
            yield from self.form.sealed(value) if sealed else ()

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
    text = tail[at : at + _LONGEST_USAGE].decode("utf-8", "replace").lstrip(" \t\r\n:")
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
