"""Reading one chat message: its normalised digest, its texts, its calls and results."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from proxy.core.identity import canonical, framed, load_unique
from proxy.core.meter import Weight
from proxy.core.transcript import Facts
from proxy.dialects import Usage

__all__ = ["answered", "calls", "changed_content", "dumps", "facts", "loads", "parse", "says_error", "usage", "visible_text", "weigh"]

Message = Mapping[str, object]

#: Fields of a message that clients add, drop or move between turns.
_IGNORED = frozenset(
    {"cache_control", "id", "status", "annotations", "logprobs", "phase", "thinking", "thinking_blocks", "role", "content"}
)
_IGNORED_PREFIX = "reasoning"
_IGNORED_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_READ_CALLS = frozenset({"tool_calls", "function_call", "tool_call_id"})
_THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_DATA_URL = re.compile(r"\Adata:([^,]*),(.*)\Z", re.DOTALL)
_ERROR = re.compile(r"(?i)\A\W*(?:error|fatal|failed|failure|exception|traceback|panic)\b|\"(?:is_)?error\":\s*(?:true|\")")
#: Tokens of things that are not text, as the large providers count them: a picture at high and at low
#: detail, a file or a sound; and what every message and call costs beyond its text.
_IMAGE, _IMAGE_LOW, _MEDIA = 1_105, 85, 1_500
_PER_MESSAGE, _PER_CALL = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    id: str
    name: str
    arguments: str


def parse(raw: bytes | str) -> object:
    """The JSON value, None where it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def loads(raw: bytes | str) -> Message:
    """The JSON object, empty where it is none."""
    value = parse(raw)
    return value if isinstance(value, dict) else {}


def dumps(value: object) -> bytes:
    """Compact JSON; text stays readable but for lone surrogates, which only an escape can spell."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def facts(raw: bytes) -> Facts | None:
    """What is known of a message; None where the bytes are no object with a role.

    A message that cannot be read exactly (a key named twice, say) is opaque: digested as it stands.
    """
    loose = loads(raw)
    role = loose.get("role")
    if not isinstance(role, str) or not role:
        return None
    try:
        exact = load_unique(raw)
        fields = list(_fields(exact)) if isinstance(exact, dict) else []
        digest = framed((role, *fields)) if fields else b""
    except ValueError:
        digest = framed(("opaque", raw))
    result = answered(loose)
    return Facts(
        role=role,
        digest=digest,
        opens=tuple(call.id for call in calls(loose)) if role == "assistant" else (),
        answers=(result,) if role in ("tool", "function") else (),
    )


def calls(message: Message) -> tuple[_Call, ...]:
    """The tool calls of a message in order, the legacy `function_call` among them (its id is its name)."""
    listed = message.get("tool_calls")
    found = [_call(value) for value in listed if isinstance(value, dict)] if isinstance(listed, list) else []
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        found.append(_call({"id": legacy.get("name"), "function": legacy}))
    return tuple(found)


def answered(message: Message) -> str:
    """The id of the call a result answers; a legacy function result answers by name."""
    value = message.get("tool_call_id") or message.get("name")
    return value if isinstance(value, str) else ""


def visible_text(message: Message) -> str:
    """All text of a message for a reader: without reasoning, media as `[kind]` markers."""
    role = message.get("role")
    texts = [text if text is not None else f"[{kind}]" for kind, text in _parts(message.get("content"))]
    refusal = message.get("refusal")
    whole = "\n".join((*texts, refusal)) if isinstance(refusal, str) and refusal else "\n".join(texts)
    return _THINK.sub("", whole) if role == "assistant" else whole


def says_error(text: str) -> bool:
    """Whether a tool result looks like a failure from its first words or an error field."""
    return bool(_ERROR.search(text[:400]))


def changed_content(content: object, change: Callable[[str], str]) -> object:
    """Content with `change` applied to its texts, the same shape as before."""
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    return [
        {**part, "text": change(part["text"])} if isinstance(part, dict) and isinstance(part.get("text"), str) else part
        for part in content
    ]


def usage(value: object) -> Usage | None:
    """Prompt and completion tokens of a `usage` object, None where it has none."""
    if not isinstance(value, dict):
        return None
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    if not isinstance(prompt, int) or isinstance(prompt, bool) or prompt <= 0:
        return None
    return Usage(prompt=prompt, completion=completion if isinstance(completion, int) else 0)


def weigh(raw: bytes) -> Weight:
    """Texts and fixed tokens of a message; the text itself for anything that is no message."""
    message = loads(raw)
    if not isinstance(message.get("role"), str):
        return Weight(texts=(raw.decode("utf-8", "replace"),), fixed=0)
    texts, fixed = [], _PER_MESSAGE
    for part in _raw_parts(message.get("content")):
        text = _text_of(part)
        texts.append(text or "")
        fixed += 0 if text is not None else _media_tokens(part)
    for call in calls(message):
        texts += [call.name, call.arguments]
        fixed += _PER_CALL
    texts += [value for key, value in message.items() if isinstance(value, str) and key.startswith(_IGNORED_PREFIX)]
    return Weight(texts=tuple(text for text in texts if text), fixed=fixed)


def _fields(message: dict[str, object]) -> Iterator[str]:
    """The fields that make a message what it is, in a fixed order, none for an empty one."""
    yield from _content_fields(message)
    found = calls(message)
    for call in found:
        yield from ("call", call.id, call.name, _canonical_arguments(call.arguments))
    for key in sorted(message):
        value = message[key]
        if value in (None, "", [], {}) or key in _IGNORED or key.startswith(_IGNORED_PREFIX):
            continue
        if key == "tool_call_id" and isinstance(value, str):
            yield from ("result", value)
        elif key not in _READ_CALLS:
            yield from ("field", key, canonical(value))


def _content_fields(message: dict[str, object]) -> Iterator[str]:
    role, joined = message.get("role"), ""
    for part in _raw_parts(message.get("content")):
        if isinstance(part, dict) and part.get("type") in _IGNORED_PARTS:
            continue
        text = _text_of(part)
        if text is not None:
            joined += text
            continue
        yield from _text_field(joined, role)
        joined = ""
        yield from ("media", _media_digest(part))
    yield from _text_field(joined, role)


def _text_field(text: str, role: object) -> Iterator[str]:
    bare = (_THINK.sub("", text) if role == "assistant" else text).strip()
    if bare:
        yield from ("text", bare)


def _raw_parts(content: object) -> list[object]:
    if content is None:
        return []
    return content if isinstance(content, list) else [content]


def _parts(content: object) -> Iterator[tuple[str, str | None]]:
    for part in _raw_parts(content):
        kind = part.get("type") if isinstance(part, dict) else "text"
        if kind not in _IGNORED_PARTS:
            yield str(kind), _text_of(part)


def _text_of(part: object) -> str | None:
    """The text of a part that is nothing but text, None for everything else."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") in ("text", "input_text", None):
        return str(part["text"])
    return None


def _media_digest(part: object) -> str:
    """A part that is not text, known by the hash of its bytes where it carries them inline."""
    if not isinstance(part, dict):
        return canonical(part)
    return canonical({key: _hashed(value) for key, value in part.items() if key != "cache_control"})


def _hashed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _hashed(inner) for key, inner in value.items()}
    inline = _DATA_URL.match(value) if isinstance(value, str) else None
    if inline is None:
        return value
    try:
        data = base64.b64decode(inline[2], validate=True)
    except (binascii.Error, ValueError):
        return value
    return {"media": inline[1], "sha256": framed((data,)).hex()}


def _media_tokens(part: object) -> int:
    if not isinstance(part, dict):
        return 0
    if part.get("type") != "image_url":
        return _MEDIA
    image = part.get("image_url")
    return _IMAGE_LOW if isinstance(image, dict) and image.get("detail") == "low" else _IMAGE


def _call(value: Mapping[str, object]) -> _Call:
    function = value.get("function")
    inner: Mapping[str, object] = function if isinstance(function, dict) else {}
    arguments = inner.get("arguments")
    return _Call(
        id=str(value.get("id") or ""),
        name=str(inner.get("name") or ""),
        arguments=arguments if isinstance(arguments, str) else canonical(arguments) if arguments is not None else "",
    )


def _canonical_arguments(text: str) -> str:
    try:
        return canonical(load_unique(text))
    except (ValueError, ArithmeticError):
        return text
