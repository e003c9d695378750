"""The `chat` dialect: `…/chat/completions`.

Normalisation for digests follows what real clients change between turns: key order, white space,
`cache_control`, ids, empty against absent content, text against a one-part list, reasoning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

from proxy.core.known import Known
from proxy.core.meter import Weight
from proxy.core.split import elements, fields
from proxy.core.transcript import Envelope, Facts, Item, Transcript
from proxy.dialects import Call, Completion, Result, Said, Usage
from proxy.dialects import chat_items as items_
from proxy.dialects.chat_digest import facts
from proxy.dialects.chat_order import first_problem

__all__ = ["CHAT", "Chat"]

_KNOWN_ITEMS = 50_000
#: A body with more is no conversation; reading it would keep the event loop from everybody else.
_MOST_ITEMS = 50_000
_LEADING = ("system", "developer")
_READ_BY_MODEL = ("tools", "functions", "response_format")
#: Settings that a summary request keeps: they shape the cached prefix or the way the model thinks.
_KEPT_FOR_SUMMARY = (
    "model",
    "tools",
    "functions",
    "parallel_tool_calls",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "enable_thinking",
    "chat_template_kwargs",
    "prompt_cache_key",
    "cache_prompt",
    "user",
    "safety_identifier",
    "service_tier",
)
_NO_FACTS = Facts(role="", digest=b"")
_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool", "function_call": "tool"}


class Chat:
    """Chat completions. Stateless but for a bounded memory of item facts by the items' bytes."""

    name = "chat"

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._known: Known[bytes, Facts] = Known(_KNOWN_ITEMS)

    def split(self, body: bytes, *, model: str = "") -> Transcript | None:
        """Split a body (see `Dialect.split`)."""
        spans = fields(body)
        if spans is None or "messages" not in spans:
            return None
        values = _Values(body, spans)
        raws = elements(values.raw("messages"))
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
            span=spans["messages"],
            envelope=values.envelope(named, known[:lead]),
            items=rest,
            significant=tuple(i for i, item in enumerate(rest) if item.facts.significant),
        )

    def _items(self, raws: Sequence[bytes]) -> tuple[Item, ...] | None:
        """All of them, None where one is no message: found at the first, since reading a million takes seconds."""
        if len(raws) > _MOST_ITEMS:
            return None
        found: list[Item] = []
        for raw in raws:
            item = self.item(raw)
            if item is None:
                return None
            found.append(item)
        return tuple(found)

    def item(self, raw: bytes) -> Item | None:
        """An item with its facts, None where it is not a message."""
        key = hashlib.sha256(raw).digest()
        facts = self._known.get(key)
        if facts is None:
            facts = self.facts(raw)
            if facts is None:
                return None
            self._known.put(key, facts)
        return Item(raw, key, facts)

    def facts(self, raw: bytes) -> Facts | None:
        """Read one message; None where it is none."""
        return facts(raw)

    def said(self, raw: bytes) -> Said:
        """What the message says to a reader: no reasoning, media as markers."""
        message = items_.loads(raw)
        role = str(message.get("role", ""))
        text = items_.visible_text(message)
        if role in items_.RESULT_ROLES:
            result = Result(id=items_.answered(message), text=text, error=items_.says_error(text))
            return Said(role="tool", text="", results=(result,))
        calls = tuple(Call(id=c.id, name=c.name, arguments=c.arguments) for c in items_.calls(message))
        return Said(role=role, text=text, calls=calls)

    def weigh(self, raw: bytes) -> Weight:
        """Texts and fixed tokens of a message, or the raw text of anything else."""
        return items_.weigh(raw)

    def shrink(self, raw: bytes, change: Callable[[str], str]) -> bytes | None:
        """Apply `change` to the texts of a tool result; None when nothing changes or it is no tool result."""
        message = items_.loads(raw)
        if message.get("role") not in items_.RESULT_ROLES:
            return None
        content = items_.changed_content(message.get("content"), change)
        if content == message.get("content"):
            return None
        try:
            return items_.dumps({**message, "content": content})
        except (ValueError, RecursionError):  # a number no JSON can spell again, nesting too deep
            return None

    def user(self, text: str) -> bytes:
        """A user message."""
        return items_.dumps({"role": "user", "content": text})

    def assistant(self, text: str) -> bytes:
        """An assistant message."""
        return items_.dumps({"role": "assistant", "content": text})

    def invalid(self, items: Sequence[Item], given: Sequence[Item] = ()) -> str | None:
        """The first fault in the order of `items` that `given` does not have as well, None for none."""
        return first_problem(items, given)

    def render(self, transcript: Transcript, items: Sequence[Item]) -> bytes:
        """The client's body with these messages; all bytes outside the array stay."""
        start, stop = transcript.span
        raws = [item.raw for item in (*transcript.envelope.leading, *items)]
        return b"".join((transcript.body[:start], b"[", b",".join(raws), b"]", transcript.body[stop:]))

    def summary_request(
        self, transcript: Transcript, items: Sequence[Item], instruction: str, *, max_tokens: int, alone: bool = False
    ) -> bytes:
        """S1: the live prefix as the upstream has it cached, then the instruction as the last user message."""
        spans = fields(transcript.body) or {}
        values = _Values(transcript.body, spans)
        left_out = _READ_BY_MODEL if alone else ()
        kept = {key: values.raw(key) for key in _KEPT_FOR_SUMMARY if key in spans and key not in left_out}
        kept.setdefault("model", items_.dumps(transcript.envelope.model))
        prefix = () if alone else (*(i.raw for i in transcript.envelope.leading), *(i.raw for i in items))
        kept["messages"] = b"[" + b",".join((*prefix, self.user(instruction))) + b"]"
        if "tools" in kept:
            kept["tool_choice"] = b'"none"'
        if "store" in spans:
            kept["store"] = b"false"
        budget = _mapping(values.value("thinking")).get("budget_tokens")
        beyond = budget if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0 else 0
        kept[_limit_field(spans, transcript.envelope.model)] = b"%d" % (max_tokens + beyond)
        return b"{" + b",".join(items_.dumps(key) + b":" + raw for key, raw in kept.items()) + b"}"

    def answer(self, body: bytes) -> Completion | None:
        """Read a whole reply; None where it has no choice with a message."""
        reply = items_.loads(body)
        choices = reply.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        if not isinstance(first, dict) or not isinstance(message, dict):
            return None
        finish = "tool" if items_.calls(message) else _FINISH.get(str(first.get("finish_reason")), "other")
        model = reply.get("model")
        return Completion(
            text=items_.visible_text({**message, "role": "assistant"}),
            finish=finish,
            model=model if isinstance(model, str) else "",
            usage=items_.usage(reply.get("usage")),
        )

    def usage(self, tail: bytes, *, sse: bool) -> Usage | None:
        """The last usage in the end of a reply."""
        at = tail.rfind(b'"usage"')
        while at >= 0:
            found = items_.usage(_value_after(tail, at + len(b'"usage"')))
            if found is not None or not sse:
                return found
            at = tail.rfind(b'"usage"', 0, at)
        return None

    def own_compaction(self, headers: Mapping[str, str], rest: str, transcript: Transcript) -> bool:
        """Whether the client marks this as its own compaction call."""
        del rest, transcript
        turn = headers.get("x-codex-turn-metadata", "")
        kind = items_.loads(turn).get("request_kind") if turn else None
        return kind == "compaction" or headers.get("x-deepseek-harness-compact") == "1"


class _Values:
    """The top-level values of one body, parsed only when asked for."""

    def __init__(self, body: bytes, spans: Mapping[str, tuple[int, int]]) -> None:
        self._body, self._spans = body, spans

    def raw(self, key: str) -> bytes:
        start, stop = self._spans[key]
        return self._body[start:stop]

    def value(self, key: str) -> object:
        return items_.parse(self.raw(key)) if key in self._spans else None

    def text(self, key: str) -> str:
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def count(self, key: str) -> int | None:
        value = self.value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def envelope(self, model: str, leading: tuple[Item, ...]) -> Envelope:
        return Envelope(
            model=model,
            stream=self.value("stream") is True,
            output=self.count("max_completion_tokens") or self.count("max_tokens"),
            leading=leading,
            rest=tuple(_plain(self.raw(key)) for key in _READ_BY_MODEL if key in self._spans),
            ids=self.ids(),
            server_history=self.value("previous_response_id") is not None,
            compacts=self.value("context_management") is not None or self.value("truncation") == "auto",
        )

    def ids(self) -> tuple[str, ...]:
        metadata = _mapping(self.value("metadata"))
        user = metadata.get("user_id")
        conversation = self.value("conversation")
        found = (
            _mapping(conversation).get("id") if isinstance(conversation, dict) else conversation,
            _mapping(self.value("client_metadata")).get("thread_id"),
            self.value("session_id"),
            self.value("prompt_cache_key"),
            metadata.get("session_id"),
            items_.loads(user).get("session_id") if isinstance(user, str) else None,
        )
        return tuple(value for value in found if isinstance(value, str))


def _plain(raw: bytes) -> Item:
    """A part of the envelope that is no message: only its bytes and their size matter."""
    return Item(raw, hashlib.sha256(raw).digest(), _NO_FACTS)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _limit_field(spans: Mapping[str, object], model: str) -> str:
    """The client's own limit field; models that refuse `max_tokens` get the newer name."""
    named = next((key for key in ("max_completion_tokens", "max_tokens") if key in spans), None)
    return named or ("max_completion_tokens" if model.startswith(("o1", "o3", "o4", "gpt-5")) else "max_tokens")


def _value_after(tail: bytes, at: int) -> object:
    text = tail[at:].decode("utf-8", "replace").lstrip(" \t\r\n:")
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


CHAT = Chat()
