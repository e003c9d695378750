"""What two spellings of the same content have in common: the normalisation that all dialects share (rule 4.4).

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
from proxy.dialects.parts import REASONING_FIELD, REASONING_PARTS, THINK, Message, raw_parts, text_of

__all__ = ["EMPTY", "IGNORED", "arguments", "content_fields", "hashed", "others"]

#: Fields of messages, content parts and calls that clients add, drop or move between turns.
IGNORED = frozenset({"cache_control", "id", "status", "annotations", "logprobs", "phase"})
_READ_IN_TEXT = IGNORED | {"type", "text"}
#: What counts as a field that is not there.
EMPTY: tuple[object, ...] = (None, "", [], {})
_DATA_URL = re.compile(r"\Adata:([^,]*),(.*)\Z", re.DOTALL)


def content_fields(content: object, *, thinks: bool) -> Iterator[str]:
    """The fields of content in order: adjacent texts joined and stripped, media by their bytes, no reasoning.

    `thinks` leaves out a leading `<think>…</think>` as well (assistant text only).
    """
    texts: list[str] = []
    for part in raw_parts(content):
        if isinstance(part, dict) and part.get("type") in REASONING_PARTS:
            continue
        text = text_of(part)
        texts += () if text is None else (text,)
        rest = _media(part) if text is None else _beside_text(part)
        if rest:
            yield from _text_field(texts, thinks=thinks)
            yield from ("part", rest)
            texts, thinks = [], False
    yield from _text_field(texts, thinks=thinks)


def others(fields: Message, read: frozenset[str]) -> Iterator[tuple[str, object]]:
    """The fields that are neither read by name nor empty nor reasoning, in a fixed order."""
    for key in sorted(fields):
        value = fields[key]
        if key not in read and not key.startswith(REASONING_FIELD) and value not in EMPTY:
            yield key, value


def arguments(text: str) -> str:
    """Tool arguments made canonical, as they stand where they are not JSON."""
    try:
        return canonical(load_unique(text))
    except ValueError:
        return text


def hashed(value: object) -> object:
    """The value with each inline medium replaced by the hash of its bytes."""
    if isinstance(value, dict):
        return {key: hashed(inner) for key, inner in value.items()}
    inline = _DATA_URL.match(value) if isinstance(value, str) else None
    if inline is None:
        return value
    try:
        data = base64.b64decode(inline[2], validate=True)
    except (binascii.Error, ValueError):
        return value
    return {"#media": inline[1], "#sha256": framed((data,)).hex()}  # keys that no JSON has, see `load_unique`


def _text_field(texts: list[str], *, thinks: bool) -> Iterator[str]:
    joined = "".join(texts)
    bare = (THINK.sub("", joined) if thinks else joined).strip()
    if bare:
        yield from ("text", bare)


def _beside_text(part: object) -> str:
    """What a text part says besides its text, mostly nothing."""
    rest = dict(others(part, _READ_IN_TEXT)) if isinstance(part, dict) else {}
    return canonical(rest) if rest else ""


def _media(part: object) -> str:
    """A part that is not text, known by the hash of its bytes where it carries them inline."""
    if not isinstance(part, dict):
        return canonical(part)
    return canonical({key: hashed(value) for key, value in part.items() if key not in IGNORED})
