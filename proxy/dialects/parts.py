"""JSON values, and the parts a message's content is made of: what all dialects spell alike.

A part is text (a string, or an object whose only content is its `text`), reasoning, or something else: media,
a file, what nobody has heard of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from proxy.core.pictures import pixels_of, tiled

__all__ = [
    "CACHE_MARK",
    "MAY_BE_HEAVY",
    "PER_CALL",
    "PER_MESSAGE",
    "REASONING_FIELD",
    "REASONING_PARTS",
    "THINK",
    "Message",
    "changed",
    "dumps",
    "loads",
    "mapping",
    "parse",
    "raw_parts",
    "respelled",
    "said_parts",
    "says_error",
    "text_of",
    "weighed",
]

Message = Mapping[str, object]

#: Where reasoning stands: fields that begin so, parts of these types, and the beginning of a text.
REASONING_FIELD = "reasoning"
REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")
THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
#: What every message and every call costs beyond its text, in tokens.
PER_MESSAGE, PER_CALL = 4, 8

_TEXT_PARTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text", None)
#: Parts that say their text in a field of their own name.
_SPOKEN_PARTS = ("refusal", "thinking", "reasoning")
_IMAGE_PARTS = ("image_url", "input_image", "image", "computer_screenshot")
CACHE_MARK = "cache_control"
#: What a `type` may say in a body where nothing weighs more tokens than bytes: of text, of items, of schemas.
#: Anything else may be a picture, a file, or what nobody has heard of.
_LIGHT = (
    "text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal", "thinking", "redacted_thinking",
    "reasoning", "message", "function", "function_call", "function_call_output", "custom", "custom_tool_call",
    "custom_tool_call_output", "tool_use", "tool_result", "ephemeral", "object", "array", "string", "number",
    "integer", "boolean", "null", "json_schema", "json_object", "enabled", "disabled", "adaptive", "auto", "any",
    "none", "tool",
)  # fmt: skip
MAY_BE_HEAVY = re.compile(rb'"type"\s*:\s*"(?!(?:%s)")' % "|".join(_LIGHT).encode())
_ERROR = re.compile(
    r"(?i)\A[^\w\"]*(?:error|fatal|failed|failure|exception|traceback|panic)\b|\"(?:is_)?error\":\s*(?:true|\")"
)
#: Tokens of things that are not text, as the large providers count them: a picture of unknown size at high and
#: at low detail, a file or a sound.
_IMAGE, _IMAGE_LOW, _MEDIA = 1_105, 85, 1_500


def parse(raw: bytes | str) -> object:
    """The JSON value, None where it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def loads(raw: bytes | str) -> Message:
    """The JSON object, empty where it is none."""
    return mapping(parse(raw))


def mapping(value: object) -> Message:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def dumps(value: object) -> bytes:
    """Compact JSON; text stays readable but for lone surrogates, which only an escape can spell.

    Raises ValueError for an infinite number: a client's `1e999` that cannot be spelled again.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def raw_parts(content: object) -> list[object]:
    """The parts of content, text as a list of one."""
    if content is None:
        return []
    return content if isinstance(content, list) else [content]


def text_of(part: object) -> str | None:
    """The text of a part that is nothing but text, None for everything else."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def said_parts(content: object) -> Iterator[str]:
    """What content says to a reader, part by part: no reasoning, media as `[kind]` markers."""
    for part in raw_parts(content):
        kind = part.get("type") if isinstance(part, dict) else "text"
        if kind in REASONING_PARTS:
            continue
        text = _spoken(part)
        yield text if text is not None else f"[{kind}]"


def changed(content: object, change: Callable[[str], str]) -> object:
    """Content with `change` applied to its texts, the same shape as before."""
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    return [_changed_part(part, change) for part in content]


def respelled(item: Message, field: str, value: object) -> bytes | None:
    """An item with another value in one field, None where it is the same or no JSON can spell it.

    Without cache marks: clients move theirs, an upstream takes four, and one that is stored would add to them.
    """
    if value == item.get(field):
        return None
    try:
        return dumps(_unmarked({**item, field: value}))
    except (ValueError, RecursionError):  # an infinite number, nesting too deep
        return None


def _unmarked(value: object) -> object:
    if isinstance(value, list):
        return [_unmarked(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: _unmarked(own) if key == "content" else own for key, own in value.items() if key != CACHE_MARK}


def says_error(text: str) -> bool:
    """Whether a tool result looks like a failure from its first words or an error field."""
    return bool(_ERROR.search(text[:400]))


def weighed(content: object, picture: Callable[[int, int], int] = tiled) -> tuple[list[str], int]:
    """The texts that content brings into the model's window, and the tokens of all that is not text.

    `picture` gives the tokens of a picture by its width and height.
    """
    texts, fixed = [], 0
    for part in raw_parts(content):
        text = _spoken(part)
        if text is None and mapping(part).get("type") in _LIGHT:
            text = json.dumps(part)  # text that is spelled in no way we know
        texts.append(text or "")
        fixed += 0 if text is not None else _media_tokens(part, picture)
    return texts, fixed


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


def _media_tokens(part: object, picture: Callable[[int, int], int]) -> int:
    if not isinstance(part, dict):
        return 0
    if part.get("type") not in _IMAGE_PARTS:
        return _MEDIA
    detail = part.get("detail") or mapping(part.get("image_url")).get("detail")
    if detail == "low":
        return _IMAGE_LOW
    said = part.get("image_url")
    places = (said, mapping(said).get("url"), mapping(part.get("source")).get("data"))
    pixels = next((found for one in places if isinstance(one, str) and (found := pixels_of(one))), None)
    return picture(*pixels) if pixels else _IMAGE
