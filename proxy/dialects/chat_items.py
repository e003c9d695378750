"""Reading one chat message: its texts, its calls and results, its weight."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from proxy.core.identity import canonical
from proxy.core.meter import Weight
from proxy.dialects import Usage

__all__ = [
    "REASONING_FIELD",
    "REASONING_PARTS",
    "RESULT_ROLES",
    "THINK",
    "Message",
    "answered",
    "argument_field",
    "calls",
    "changed_content",
    "dumps",
    "function_of",
    "loads",
    "parse",
    "raw_parts",
    "says_error",
    "text_of",
    "usage",
    "visible_text",
    "weigh",
]

Message = Mapping[str, object]

#: Where reasoning stands: fields that begin so, parts of these types, and the beginning of a text.
REASONING_FIELD = "reasoning"
REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")
THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
RESULT_ROLES = ("tool", "function")
#: Fields of a message besides content and calls that the model reads, by how they begin.
_ALSO_READ = (REASONING_FIELD, "refusal")
#: Parts that say their text in a field of their own name.
_SPOKEN_PARTS = ("refusal", "thinking", "reasoning")
_ERROR = re.compile(
    r"(?i)\A[^\w\"]*(?:error|fatal|failed|failure|exception|traceback|panic)\b|\"(?:is_)?error\":\s*(?:true|\")"
)
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
    """Compact JSON; text stays readable but for lone surrogates, which only an escape can spell.

    Raises ValueError for an infinite number: a client's `1e999` that cannot be spelled again.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


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
    return THINK.sub("", whole) if role == "assistant" else whole


def says_error(text: str) -> bool:
    """Whether a tool result looks like a failure from its first words or an error field."""
    return bool(_ERROR.search(text[:400]))


def changed_content(content: object, change: Callable[[str], str]) -> object:
    """Content with `change` applied to its texts, the same shape as before."""
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    return [_changed_part(part, change) for part in content]


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
    for part in raw_parts(message.get("content")):
        text = _spoken(part)
        texts.append(text or "")
        fixed += 0 if text is not None else _media_tokens(part)
    for call in calls(message):
        texts += [call.name, call.arguments]
        fixed += _PER_CALL
    texts += [value for key, value in message.items() if isinstance(value, str) and key.startswith(_ALSO_READ)]
    return Weight(texts=tuple(text for text in texts if text), fixed=fixed)


def raw_parts(content: object) -> list[object]:
    """The parts of content, text as a list of one."""
    if content is None:
        return []
    return content if isinstance(content, list) else [content]


def _parts(content: object) -> Iterator[tuple[str, str | None]]:
    for part in raw_parts(content):
        kind = part.get("type") if isinstance(part, dict) else "text"
        if kind not in REASONING_PARTS:
            yield str(kind), text_of(part)


def text_of(part: object) -> str | None:
    """The text of a part that is nothing but text, None for everything else."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type") not in ("text", "input_text", None):
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _spoken(part: object) -> str | None:
    """The text a part brings into the model's window, None where it is not text."""
    kind = part.get("type") if isinstance(part, dict) else None
    said = part.get(kind) if isinstance(part, dict) and isinstance(kind, str) and kind in _SPOKEN_PARTS else None
    return said if isinstance(said, str) else text_of(part)


def _changed_part(part: object, change: Callable[[str], str]) -> object:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        return part
    return {**part, "text": change(text)} if isinstance(part, dict) else change(text)


def _media_tokens(part: object) -> int:
    if not isinstance(part, dict):
        return 0
    if part.get("type") != "image_url":
        return _MEDIA
    image = part.get("image_url")
    return _IMAGE_LOW if isinstance(image, dict) and image.get("detail") == "low" else _IMAGE


def _call(value: Mapping[str, object]) -> _Call:
    function = function_of(value)
    arguments = function.get(argument_field(function))
    return _Call(
        id=str(value.get("id") or ""),
        name=str(function.get("name") or ""),
        arguments=arguments if isinstance(arguments, str) else "" if arguments is None else _readable(arguments),
    )


def function_of(call: Message) -> Message:
    """What a call calls: a function, or a custom tool whose input is free text."""
    found = (call.get("function"), call.get("custom"))
    return next((value for value in found if isinstance(value, dict)), {})


def argument_field(function: Message) -> str:
    """The field that holds what is handed over: `input` for custom tools."""
    return "arguments" if "arguments" in function else "input"


def _readable(value: object) -> str:
    try:
        return canonical(value)
    except ValueError:
        return ""
