"""The `responses` dialect: `…/responses` and `…/responses/compact`.

An item is a message, a call, a result, reasoning, or something only the upstream can read. Calls and results
are told by how their types end, so that kinds of tools nobody has heard of are paired as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.core.counts import count_of
from proxy.core.identity import canonical, framed, load_unique
from proxy.core.meter import Weight
from proxy.core.transcript import Facts, Item, Transcript
from proxy.dialects import Call, Completion, Result, Said, Usage, flaws, order, stream
from proxy.dialects import parts as parts_
from proxy.dialects.body import Body
from proxy.dialects.digest import IGNORED, arguments, content_fields, hashed, others
from proxy.dialects.form import Form, Wire
from proxy.dialects.parts import Message, dumps, loads, mapping

__all__ = ["RESPONSES", "Responses"]

_FORM = Form(
    items="input",
    read_by_model=("instructions", "tools", "text"),
    limits=("max_output_tokens",),
    kept_for_summary=(
        "model",
        "instructions",
        "tools",
        "parallel_tool_calls",
        "prompt",
        "reasoning",
        "chat_template_kwargs",
        "prompt_cache_key",
        "prompt_cache_retention",
        "user",
        "safety_identifier",
        "service_tier",
    ),
    gather=stream.responses,
    flaws=flaws.responses,
    sealed=flaws.sealed_items,
    stores=True,
)
#: Beside what all dialects ignore: a note of one client's to itself.
_IGNORED = IGNORED | {"type", "internal_chat_message_metadata_passthrough"}
_READ_IN_MESSAGE = _IGNORED | {"role", "content"}
#: Where a call holds what is handed over, the first that is there; and where a result holds what came back.
_HANDED_OVER = ("arguments", "input", "action", "actions", "operation")
_CAME_BACK = ("output", "tools")
#: Items of the assistant's side that are no part of a step.
_APART = ("compaction", "compaction_trigger")
_STEADY = ("system", "developer")
_FINISH = {"completed": "stop", "incomplete": "other"}
#: Characters of encrypted reasoning for one token, roughly: base64 of about four characters each.
_ENCRYPTED = 6


class _Pair(NamedTuple):
    """The call an item opens and the one it answers, by id; empty for none."""

    opens: str = ""
    answers: str = ""


class Responses(Wire):
    """OpenAI's Responses API and those who speak it."""

    name = "responses"
    form = _FORM

    def facts(self, raw: bytes) -> Facts | None:
        """Read one input item; None where it is none.

        An item that cannot be read exactly (a key named twice, say) is opaque: digested as it stands.
        """
        item = loads(raw)
        kind, role = _kind(item), _role(item)
        if not role:
            return None
        pair = _pair(item)
        return Facts(
            role=role,
            digest=b"" if kind == "reasoning" else _digest(kind, role, raw),
            opens=(pair.opens,) if pair.opens else (),
            answers=(pair.answers,) if pair.answers else (),
            stays=role in _STEADY or kind == "compaction",
            joins=role == "assistant" and kind not in _APART,
        )

    def said(self, raw: bytes) -> Said:
        """What the item says to a reader: no reasoning, media as markers."""
        item = loads(raw)
        kind, role, pair = _kind(item), _role(item), _pair(item)
        if kind == "message":
            text = "\n".join(parts_.said_parts(item.get("content")))
            return Said(role=role, text=parts_.THINK.sub("", text) if role == "assistant" else text)
        if pair.answers or role == "tool":
            text = "\n".join(parts_.said_parts(_came_back(item)))
            result = Result(id=pair.answers, text=text, error=parts_.says_error(text))
            return Said(role="tool", text="", results=(result,))
        if pair.opens:
            call = Call(id=pair.opens, name=_called(item, kind), arguments=_text(_handed_over(item)))
            return Said(role=role, text="", calls=(call,))
        return Said(role=role, text="" if kind == "reasoning" else f"[{kind}]")

    def weigh(self, raw: bytes) -> Weight:
        """Texts and fixed tokens of an item, or the raw text of anything else."""
        item = loads(raw)
        if not _role(item):
            return Weight(texts=(raw.decode("utf-8", "replace"),), fixed=0)
        texts, fixed = parts_.weighed(item.get("content"))
        fixed += parts_.PER_MESSAGE
        more, media = parts_.weighed(item.get("summary") if _kind(item) == "reasoning" else _came_back(item))
        texts += more
        fixed += media
        if _pair(item).opens:
            texts += [_called(item, _kind(item)), _text(_handed_over(item))]
            fixed += parts_.PER_CALL
        sealed = item.get("encrypted_content")
        fixed += len(sealed) // _ENCRYPTED if isinstance(sealed, str) else 0
        return Weight(texts=tuple(text for text in texts if text), fixed=fixed)

    def shrink(self, raw: bytes, change: Callable[[str], str]) -> bytes | None:
        """Apply `change` to the texts of a result; None when nothing changes or it is no result."""
        item = loads(raw)
        if not _pair(item).answers or "output" not in item:
            return None
        return parts_.respelled(item, "output", parts_.changed(item["output"], change))

    def user(self, text: str) -> bytes:
        """A user message."""
        return dumps({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    def assistant(self, text: str) -> bytes:
        """An assistant message."""
        return dumps({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})

    def faults(self, items: Sequence[Item]) -> Iterator[str]:
        """Calls and results that lack each other, reasoning that stands alone, ids that stand twice."""
        yield from order.loose(items)
        yield from order.repeated(map(_named, items), "item id used twice")

    def apart(self, items: Sequence[Item]) -> Iterator[str]:
        """Items with an id that stand without reasoning: an upstream knows by the id whether they came with it."""
        thought = False
        for item in items:
            thought = item.facts.joins and (thought or not item.facts.significant)
            if item.facts.joins and not thought and (name := _named(item)):
                yield f"an item without its reasoning: {name}"

    def counted(self, usage: object) -> Usage | None:
        """Tokens of a `usage` object."""
        found = mapping(usage)
        prompt, completion = count_of(found.get("input_tokens")), count_of(found.get("output_tokens"))
        return Usage(prompt=prompt, completion=completion or 0) if prompt else None

    def completed(self, reply: Message) -> Completion | None:
        """Read a reply; None where it has no output."""
        output = reply.get("output")
        if not isinstance(output, list):
            return None
        items = [mapping(item) for item in output]
        texts = [text for item in items if _kind(item) == "message" for text in parts_.said_parts(item.get("content"))]
        finish = _FINISH.get(str(reply.get("status") or "completed"), "other")
        if mapping(reply.get("incomplete_details")).get("reason") == "max_output_tokens":
            finish = "length"
        if any(_kind(item).endswith("_call") for item in items):
            finish = "tool"
        model = reply.get("model")
        return Completion(
            text=parts_.THINK.sub("", "\n".join(texts)),
            finish=finish,
            model=model if isinstance(model, str) else "",
            usage=self.counted(reply.get("usage")),
        )

    def limit_field(self, body: Body, model: str) -> str:
        """The client's own limit field; none beside a stream without one: backends that only stream refuse it."""
        named = any(key in body for key in self.form.limits)
        return super().limit_field(body, model) if named or body.value("stream") is not True else ""

    def elsewhere(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the history, or a part of it, lies at the server."""
        referred = any(b"item_reference" in item.raw and _kind(loads(item.raw)) == "item_reference" for item in items)
        return referred or any(body.value(key) is not None for key in ("previous_response_id", "conversation"))

    def compacts(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the body asks the upstream to compact."""
        return super().compacts(body, items) or bool(items and _kind(loads(items[-1].raw)) == "compaction_trigger")

    def own_compaction(self, headers: Mapping[str, str], rest: str, transcript: Transcript) -> bool:
        """Whether the client marks this as its own compaction call, or asks the upstream for one."""
        return rest == "responses/compact" or super().own_compaction(headers, rest, transcript)


def _named(item: Item) -> str:
    """The id that the upstream gave an item, empty for none."""
    name = loads(item.raw).get("id") if b'"id"' in item.raw else None
    return name if isinstance(name, str) else ""


def _kind(item: Message) -> str:
    """An item's type; one without is a message."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if isinstance(item.get("role"), str) else ""


def _role(item: Message) -> str:
    """Who speaks in an item: the role of a message, `tool` for what comes back from one, else the assistant."""
    role = item.get("role")
    if isinstance(role, str) and role:
        return role
    kind = _kind(item)
    if not kind or kind == "message":
        return ""
    return "tool" if _answers(kind) else "assistant"


def _answers(kind: str) -> bool:
    return kind.endswith("_output") or kind == "mcp_approval_response"


def _pair(item: Message) -> _Pair:
    """What an item opens or answers. A tool that the upstream runs itself has neither: its item is whole."""
    kind = _kind(item)
    named = item.get("call_id")
    if kind.startswith("mcp_approval"):
        named = item.get("id" if kind == "mcp_approval_request" else "approval_request_id")
    elif kind == "local_shell_call_output":
        named = named or item.get("id")
    if not isinstance(named, str) or not named:
        return _Pair()
    if _answers(kind):
        return _Pair(answers=named)
    return _Pair(opens=named) if kind.endswith("_call") or kind == "mcp_approval_request" else _Pair()


def _digest(kind: str, role: str, raw: bytes) -> bytes:
    try:
        exact = load_unique(raw)
        fields = list(_fields(kind, role, exact)) if isinstance(exact, dict) else []
    except (ValueError, RecursionError):
        return framed(("opaque", raw))
    pair = _pair(exact) if isinstance(exact, dict) else _Pair()
    return framed((kind, role, pair.opens, pair.answers, *fields)) if fields else b""


def _fields(kind: str, role: str, item: Mapping[str, object]) -> Iterator[str]:
    """The fields that make an item what it is, in a fixed order, none for an empty message."""
    if kind == "message":
        yield from content_fields(item.get("content"), thinks=role == "assistant")
        for key, value in others(item, _READ_IN_MESSAGE):
            yield from ("field", key, canonical(value))
        return
    yield "item"
    for key, value in others(item, _IGNORED):
        if key == "arguments" and isinstance(value, str):
            yield from ("field", key, arguments(value))
        elif key == "output":
            yield "output"
            yield from content_fields(value, thinks=False)
        else:
            yield from ("field", key, canonical(hashed(value)))


def _handed_over(item: Message) -> object:
    return next((item[key] for key in _HANDED_OVER if item.get(key) is not None), None)


def _came_back(item: Message) -> object:
    if not _answers(_kind(item)):
        return None
    return next((item[key] for key in _CAME_BACK if item.get(key) is not None), None)


def _called(item: Message, kind: str) -> str:
    name = item.get("name")
    return name if isinstance(name, str) else kind.removesuffix("_call")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else canonical(value)
    except ValueError:  # nesting too deep
        return ""


RESPONSES = Responses()
