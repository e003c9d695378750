"""The `messages` dialect: `…/messages`.

A message is a list of blocks. Calls stand in assistant messages, their results in the user message that
follows; tools that the upstream runs itself have both in one message, which is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from proxy.core.counts import count_of
from proxy.core.identity import canonical, framed, load_unique
from proxy.core.meter import Weight
from proxy.core.pictures import whole
from proxy.core.transcript import Facts, Item
from proxy.dialects import Call, Completion, Result, Said, Usage, flaws, order, stream
from proxy.dialects import parts as parts_
from proxy.dialects.body import Body
from proxy.dialects.digest import IGNORED, content_fields, others
from proxy.dialects.form import Form, Wire
from proxy.dialects.parts import Message, dumps, loads, mapping, raw_parts

__all__ = ["MESSAGES", "Messages"]

_FORM = Form(
    items="messages",
    read_by_model=("system", "tools"),
    limits=("max_tokens",),
    kept_for_summary=(
        "model",
        "system",
        "tools",
        "mcp_servers",
        "thinking",
        "metadata",
        "service_tier",
        "anthropic_version",
        "anthropic_beta",
    ),
    gather=stream.messages,
    flaws=flaws.messages,
    sealed=flaws.sealed_blocks,
    no_tools=b'{"type":"none"}',
)
_CALL, _RESULT = "tool_use", "tool_result"
_READ_IN_MESSAGE = IGNORED | {"role", "content"}
_READ_IN_CALL = IGNORED | {"type", "name", "input"}
_READ_IN_RESULT = IGNORED | {"type", "tool_use_id", "content"}
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool"}
_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
#: An edit of `context_management` that only drops thinking, which needs no summary to be safe.
_THINKING_EDIT = "clear_thinking"
#: Characters of sealed thinking for one token, roughly.
_SEALED = 6


class Messages(Wire):
    """Anthropic's Messages API and those who speak it."""

    name = "messages"
    form = _FORM

    def facts(self, raw: bytes) -> Facts | None:
        """Read one message; None where it is none.

        A message that cannot be read exactly (a key named twice, say) is opaque: digested as it stands.
        """
        message = loads(raw)
        role = message.get("role")
        if not isinstance(role, str) or not role:
            return None
        blocks = _blocks(message)
        answers = tuple(_id(block, "tool_use_id") for block in blocks if block.get("type") == _RESULT)
        alone = answers and all(block.get("type") == _RESULT for block in blocks)
        return Facts(
            role="tool" if alone else role,
            digest=_digest(role, raw),
            opens=tuple(_id(b, "id") for b in blocks if b.get("type") == _CALL) if role == "assistant" else (),
            answers=answers if role == "user" else (),
            stays=role == "system" or any(block.get("type") == "compaction" for block in blocks),
            joins=role == "assistant",
        )

    def said(self, raw: bytes) -> Said:
        """What the message says to a reader: no thinking, media as markers."""
        return _said(loads(raw))

    def weigh(self, raw: bytes) -> Weight:
        """Texts and fixed tokens of a message, or the raw text of anything else."""
        message = loads(raw)
        if not isinstance(message.get("role"), str):
            return Weight(texts=(raw.decode("utf-8", "replace"),), fixed=0)
        texts, fixed = [], parts_.PER_MESSAGE
        for block in _blocks(message):
            more, tokens = _weighed(block)
            texts += more
            fixed += tokens
        return Weight(texts=tuple(text for text in texts if text), fixed=fixed)

    def shrink(self, raw: bytes, change: Callable[[str], str]) -> bytes | None:
        """Apply `change` to the texts of tool results; None when nothing changes or there are none."""
        message = loads(raw)
        content = message.get("content")
        if not isinstance(content, list):
            return None
        return parts_.respelled(message, "content", [_shrunk(block, change) for block in content])

    def user(self, text: str) -> bytes:
        """A user message."""
        return dumps({"role": "user", "content": [{"type": "text", "text": text}]})

    def assistant(self, text: str) -> bytes:
        """An assistant message."""
        return dumps({"role": "assistant", "content": [{"type": "text", "text": text}]})

    def faults(self, items: Sequence[Item]) -> Iterator[str]:
        """As in chat; and the first message is a user's, and no call has the id of another."""
        if items and items[0].facts.role == "assistant":
            yield "the first message is the assistant's"
        yield from order.faults(items)
        yield from order.repeated((call for item in items for call in item.facts.opens), "call id used twice")

    def counted(self, usage: object) -> Usage | None:
        """Tokens of a `usage` object: what was read from or written to a cache is part of the prompt."""
        found = mapping(usage)
        prompt = sum(count_of(found.get(key)) or 0 for key in _PROMPT)
        return Usage(prompt=prompt, completion=count_of(found.get("output_tokens")) or 0) if prompt else None

    def completed(self, reply: Message) -> Completion | None:
        """Read a reply; None where it is no assistant message."""
        if reply.get("role") != "assistant" or not isinstance(reply.get("content"), list):
            return None
        said = _said(reply)
        model = reply.get("model")
        return Completion(
            text=said.text,
            finish="tool" if said.calls else _FINISH.get(str(reply.get("stop_reason")), "other"),
            model=model if isinstance(model, str) else "",
            usage=self.counted(reply.get("usage")),
        )

    def compacts(self, body: Body, items: Sequence[Item]) -> bool:
        """Whether the body asks the upstream to compact. Dropping old thinking alone is no compaction."""
        del items
        asked = body.value("context_management")
        edits = mapping(asked).get("edits")
        kinds = [str(mapping(edit).get("type")) for edit in edits] if isinstance(edits, list) else []
        return asked is not None and not (kinds and all(kind.startswith(_THINKING_EDIT) for kind in kinds))


def _blocks(message: Message) -> list[Message]:
    """The blocks of a message; text as a block of text."""
    parts = raw_parts(message.get("content"))
    return [part if isinstance(part, dict) else {"type": "text", "text": part} for part in parts]


def _said(message: Message) -> Said:
    role, blocks = str(message.get("role", "")), _blocks(message)
    calls = tuple(_call(block) for block in blocks if block.get("type") == _CALL)
    results = tuple(_result(block) for block in blocks if block.get("type") == _RESULT)
    text = "\n".join(parts_.said_parts([block for block in blocks if block.get("type") not in (_CALL, _RESULT)]))
    return Said(role="tool" if results and not text else role, text=text, calls=calls, results=results)


def _id(block: Message, key: str) -> str:
    value = block.get(key)
    return value if isinstance(value, str) else ""


def _call(block: Message) -> Call:
    name = block.get("name")
    return Call(id=_id(block, "id"), name=name if isinstance(name, str) else "", arguments=_text(block.get("input")))


def _result(block: Message) -> Result:
    text = "\n".join(parts_.said_parts(block.get("content")))
    return Result(
        id=_id(block, "tool_use_id"), text=text, error=block.get("is_error") is True or parts_.says_error(text)
    )


def _shrunk(block: object, change: Callable[[str], str]) -> object:
    if not isinstance(block, dict) or block.get("type") != _RESULT or "content" not in block:
        return block
    return {**block, "content": parts_.changed(block["content"], change)}


def _weighed(block: Message) -> tuple[list[str], int]:
    kind = block.get("type")
    if kind == _RESULT:
        return parts_.weighed(block.get("content"), whole)
    if "input" in block:  # a call, the upstream's own tools included
        return [str(block.get("name") or ""), _text(block.get("input"))], parts_.PER_CALL
    sealed = block.get("data") if kind == "redacted_thinking" else None
    if isinstance(sealed, str):
        return [], len(sealed) // _SEALED
    if "content" in block:  # what such a tool brought back
        return [_text(block["content"])], 0
    return parts_.weighed([block], whole)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else canonical(value)
    except ValueError:  # nesting too deep
        return ""


def _digest(role: str, raw: bytes) -> bytes:
    try:
        exact = load_unique(raw)
        fields = list(_fields(role, exact)) if isinstance(exact, dict) else []
    except (ValueError, RecursionError):
        return framed(("opaque", raw))
    return framed((role, *fields)) if fields else b""


def _fields(role: str, message: Mapping[str, object]) -> Iterator[str]:
    """The fields that make a message what it is, in a fixed order, none for an empty one."""
    run: list[object] = []
    for part in raw_parts(message.get("content")):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in (_CALL, _RESULT):
            run.append(part)
            continue
        yield from content_fields(run, thinks=role == "assistant")
        run = []
        yield from _tool_fields(mapping(part))
    yield from content_fields(run, thinks=role == "assistant")
    for key, value in others(message, _READ_IN_MESSAGE):
        yield from ("field", key, canonical(value))


def _tool_fields(block: Message) -> Iterator[str]:
    if block.get("type") == _CALL:
        yield from ("call", canonical(block.get("id")), canonical(block.get("name")), canonical(block.get("input")))
        yield canonical(dict(others(block, _READ_IN_CALL)))
        return
    yield from ("result", canonical(block.get("tool_use_id")))
    yield from content_fields(block.get("content"), thinks=False)
    yield from ("beside", canonical(dict(others(block, _READ_IN_RESULT))))


MESSAGES = Messages()
