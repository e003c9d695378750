"""What a summary may take, whether asking for it fits, and whether a reply is one: arithmetic first, then judgement.

A reply that is not plainly a summary is none. Nothing of a bad reply is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.compaction.lexicon import REFUSAL
from proxy.dialects import Completion

__all__ = ["LEAST_SHARE", "TOLD", "Ask", "accepted", "planned", "share"]

#: A share under this many tokens is too small for a model's summary.
LEAST_SHARE = 512
#: What a waiting client waits for, in tokens of summary.
_WHILE_WAITING = 2_048
#: Room for reasoning beyond the summary, where the window leaves it.
_REASONING = 8_192
#: The model is told less than it may use: few count well.
TOLD = 0.8

_LEAST_CHARS = 200
_HEADING = re.compile(r"^#{1,6}[ \t]*\S", re.MULTILINE)
_MOST_HEADINGS = 6
_THINK = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_ERROR = re.compile(
    r"\W*(?:error\b|\{\s*\"?(?:error|detail|message|object)\"?\s*:|<!doctype|<html|internal server error|bad gateway"
    r"|service unavailable|upstream|traceback|(?:context|request|prompt)[^\n]{0,60}(?:too long|exceed|maximum)"
    r"|rate limit|too many requests|unauthori[sz]ed|invalid api key)",
    re.IGNORECASE,
)
_CALL = re.compile(
    r"\W*(?:<?\|?(?:tool_calls?|function_calls?|invoke)\b|\{\s*\"(?:name|tool|tool_calls|function)\"\s*:)",
    re.IGNORECASE,
)
#: Shorter texts are no evidence that the model copied.
_ECHO = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A summary request that fits: what to say, its limit field, and what the text may take, in tokens."""

    text: str
    max_tokens: int
    share: int


def share(*, surface: int, most: int, head: int, waits: bool) -> int:
    """Tokens of a summary: of what the carrier leaves (`surface`), the policy's limit and a fourth of the head."""
    return max(0, min(most, surface, head // 4, _WHILE_WAITING if waits else most))


def planned(text: str, *, share: int, prefix: int, window: int, count: Callable[[str], int]) -> Ask | None:
    """The request that says `text` after `prefix` tokens to a model with this window; None where it would not fit."""
    left = window - prefix - count(text) - share
    return Ask(text=text, max_tokens=share + min(_REASONING, left), share=share) if left >= 0 else None


def accepted(answer: Completion | None, asked: str, head: Iterable[str]) -> str | None:
    """The text of a reply that is a summary, else None. Its size is for the caller to check.

    `asked` is all that the request said and `head` the texts it was to summarise: a copy of either is no summary.
    """
    if answer is None or answer.finish != "stop":
        return None
    text = _THINK.sub("", answer.text).strip()
    if text.startswith("<think") or REFUSAL.match(text) or _ERROR.match(text) or _CALL.match(text):
        return None
    if len(_HEADING.findall(text)) < _MOST_HEADINGS and len(text) < _LEAST_CHARS:
        return None
    return None if _echoes(text, asked, head) else text


def _echoes(text: str, asked: str, head: Iterable[str]) -> bool:
    """Whether the text is a copy: part of one text of the head, or the instruction, or begins as it does."""
    bare = _bare(text)
    order = _bare(asked)
    if bare in order or bare.startswith(order[:_ECHO]):
        return True
    return len(bare) >= _ECHO and any(len(one) >= len(bare) and bare in _bare(one) for one in head)


def _bare(text: str) -> str:
    return " ".join(text.split())
