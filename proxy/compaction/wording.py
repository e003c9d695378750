"""What a summariser is told: the pages of `prompts`, put together for each rung, and a transcript between tags.

A transcript stands between tags that carry a token nobody can guess who wrote what is in it, and every tag of ours
inside is made inert: the conversation cannot end its own transcript and speak as someone else.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Part", "folded", "inert", "live"]

_PLACE = re.compile(r"\{(\w+)\}")
_TAG = re.compile(r"<(?=\s*(?:/\s*)?(?:transcript|earlier)-)", re.IGNORECASE)
#: `<` as JSON may spell it inside a text.
_INERT = r"\\u003c"
#: Of this process. A token depends on what it encloses as well: equal requests have equal texts, and are one call.
_SECRET = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a transcript, lines of JSON: the `number`th of `parts`, and the summary of those before it."""

    text: str
    number: int = 1
    parts: int = 1
    earlier: str = ""


def live(tokens: int, language: str) -> str:
    """S1: the conversation stands before this; the summary is to have at most `tokens` tokens."""
    return f"{_page('live')}\n\n{_told(tokens, language)}"


def folded(part: Part, tokens: int, language: str) -> str:
    """S2 and S3: a transcript, or a part of one with the summary of what came before, stands in the text itself."""
    known = f"{part.number}/{part.parts}\n{len(part.earlier)}\n{part.earlier}{part.text}"
    token = hashlib.blake2b(known.encode("utf-8", "surrogatepass"), key=_SECRET, digest_size=8).hexdigest()
    transcript, earlier = f"transcript-{token}", f"earlier-{token}"
    pages = [_page("flat"), *([_page("fold")] if part.parts > 1 else [])]
    filled = _filled(
        "\n\n".join(pages), transcript=transcript, earlier=earlier, part=str(part.number), parts=str(part.parts)
    )
    base = [_between(earlier, inert(json.dumps(part.earlier, ensure_ascii=False)))] if part.parts > 1 else []
    return "\n\n".join((filled, _told(tokens, language), *base, _between(transcript, part.text)))


def inert(line: str) -> str:
    """A line of JSON in which no tag of ours can be read; what it means stays the same."""
    return _TAG.sub(_INERT, line)


def _told(tokens: int, language: str) -> str:
    named = "the language of the conversation" if language == "conversation" else language
    return _filled(_page("summary"), tokens=str(tokens), language=named)


def _between(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _filled(page: str, **values: str) -> str:
    return _PLACE.sub(lambda found: values[found[1]], page)


@cache
def _page(name: str) -> str:
    return files(__package__).joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()
