"""The normalised digest of a chat message: what two spellings of the same message have in common.

What clients add, drop, move or write anew between turns is left out or made canonical; everything
else counts, fields nobody has heard of as well. Every field is framed, each after a word that says
what it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from proxy.core.identity import canonical, framed, load_unique
from proxy.core.transcript import Facts
from proxy.dialects.chat_items import (
    REASONING_FIELD,
    REASONING_PARTS,
    RESULT_ROLES,
    THINK,
    Message,
    answered,
    argument_field,
    calls,
    function_of,
    loads,
    raw_parts,
    text_of,
)

__all__ = ["facts"]

#: Fields of messages, content parts and calls that clients add, drop or move between turns.
_IGNORED = frozenset({"cache_control", "id", "status", "annotations", "logprobs", "phase"})
#: The same and those that are read by name, of a message, a text part, a call, and what is called.
_READ = _IGNORED | {"role", "content", "tool_calls", "function_call", "thinking", "thinking_blocks"}
_READ_IN_TEXT = _IGNORED | {"type", "text"}
_READ_IN_CALL = _IGNORED | {"type", "index"}
_READ_IN_FUNCTION = frozenset({"name"})
_EMPTY: tuple[object, ...] = (None, "", [], {})
_DATA_URL = re.compile(r"\Adata:([^,]*),(.*)\Z", re.DOTALL)


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
    except (ValueError, RecursionError):
        digest = framed(("opaque", raw))
    result = answered(loose)
    return Facts(
        role=role,
        digest=digest,
        opens=tuple(call.id for call in calls(loose)) if role == "assistant" else (),
        answers=(result,) if role in RESULT_ROLES else (),
    )


def _fields(message: dict[str, object]) -> Iterator[str]:
    """The fields that make a message what it is, in a fixed order, none for an empty one."""
    yield from _content_fields(message)
    yield from _call_fields(message)
    for key, value in _others(message, _READ):
        if key == "tool_call_id" and isinstance(value, str):
            yield from ("result", value)
        else:
            yield from ("field", key, canonical(value))


def _content_fields(message: dict[str, object]) -> Iterator[str]:
    texts: list[str] = []
    thinks = message.get("role") == "assistant"
    for part in raw_parts(message.get("content")):
        if isinstance(part, dict) and part.get("type") in REASONING_PARTS:
            continue
        text = text_of(part)
        texts += () if text is None else (text,)
        rest = _media_digest(part) if text is None else _beside_text(part)
        if rest:
            yield from _text_field(texts, thinks=thinks)
            yield from ("part", rest)
            texts, thinks = [], False
    yield from _text_field(texts, thinks=thinks)


def _text_field(texts: list[str], *, thinks: bool) -> Iterator[str]:
    joined = "".join(texts)
    bare = (THINK.sub("", joined) if thinks else joined).strip()
    if bare:
        yield from ("text", bare)


def _call_fields(message: dict[str, object]) -> Iterator[str]:
    listed = message.get("tool_calls")
    for value in listed if isinstance(listed, list) else [listed]:
        if isinstance(value, dict):
            called = "function" if isinstance(value.get("function"), dict) else "custom"
            yield from ("call", canonical(value.get("id")))
            yield from _function_fields(function_of(value), free=called == "custom")
            yield from ("beside", canonical(dict(_others(value, _READ_IN_CALL | {called}))))
        elif value not in _EMPTY:
            yield from ("calls", canonical(value))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield "legacy"
        yield from _function_fields(legacy)
    elif legacy not in _EMPTY:
        yield from ("calls", canonical(legacy))


def _function_fields(function: Message, *, free: bool = False) -> Iterator[str]:
    """Name, arguments and the rest of what is called; arguments of a `free` one are text, never JSON."""
    arguments = function.get(argument_field(function))
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else canonical(arguments)
    elif not free:
        arguments = _canonical_arguments(arguments)
    rest = canonical(dict(_others(function, _READ_IN_FUNCTION | {argument_field(function)})))
    yield from ("function", canonical(function.get("name")), arguments, rest)


def _others(fields: Message, read: frozenset[str]) -> Iterator[tuple[str, object]]:
    """The fields that are neither read by name nor empty nor reasoning, in a fixed order."""
    for key in sorted(fields):
        value = fields[key]
        if key not in read and not key.startswith(REASONING_FIELD) and value not in _EMPTY:
            yield key, value


def _beside_text(part: object) -> str:
    """What a text part says besides its text, mostly nothing."""
    rest = dict(_others(part, _READ_IN_TEXT)) if isinstance(part, dict) else {}
    return canonical(rest) if rest else ""


def _media_digest(part: object) -> str:
    """A part that is not text, known by the hash of its bytes where it carries them inline."""
    if not isinstance(part, dict):
        return canonical(part)
    return canonical({key: _hashed(value) for key, value in part.items() if key not in _IGNORED})


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
    return {"#media": inline[1], "#sha256": framed((data,)).hex()}  # keys that no JSON has, see `load_unique`


def _canonical_arguments(text: str) -> str:
    try:
        return canonical(load_unique(text))
    except ValueError:
        return text
