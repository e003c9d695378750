"""S1: ask the conversation's own model for a summary on its live prefix, and judge what comes back.

Whether the request fits is arithmetic done before the call; a reply that is not plainly a summary is
none. Nothing of a bad reply is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from proxy.compaction.lexicon import REFUSAL
from proxy.dialects import Completion

__all__ = ["LEAST_SHARE", "Ask", "Room", "accepted", "instruction", "planned"]

#: A share under this many tokens is too small for a model's summary.
LEAST_SHARE = 512
#: What a waiting client waits for, in tokens of summary.
_WHILE_WAITING = 2_048
#: Room for reasoning beyond the summary, where the window leaves it.
_REASONING = 8_192
#: The model is told less than it may use: few count well.
_TOLD = 0.8

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a summary request may use, in tokens.

    `surface` is what the carrier leaves for the summary and `most` the policy's limit; `head` is what it
    replaces, `prefix` what is sent (the envelope and the head), `window` what the summariser takes.
    """

    surface: int
    most: int
    head: int
    prefix: int
    window: int

    @property
    def share(self) -> int:
        """What the summary's text may take while a client waits."""
        return max(0, min(self.most, self.surface, self.head // 4, _WHILE_WAITING))


def planned(room: Room, language: str, count: Callable[[str], int]) -> Ask | None:
    """The request for a summary; None where a model is not worth asking or where it would not fit."""
    share = room.share
    if share < LEAST_SHARE:
        return None
    text = instruction(int(share * _TOLD), language)
    left = room.window - room.prefix - count(text) - share
    return Ask(text=text, max_tokens=share + min(_REASONING, left), share=share) if left >= 0 else None


def instruction(tokens: int, language: str) -> str:
    """What the model is asked, for a summary of at most `tokens` tokens."""
    named = "the language of the conversation" if language == "conversation" else language
    return _prompt().replace("{tokens}", str(tokens)).replace("{language}", named)


def accepted(answer: Completion | None, asked: str, head: Iterable[str]) -> str | None:
    """The text of a reply that is a summary, else None. Its size is for the caller to check.

    `asked` is the instruction and `head` the texts it was to summarise: a copy of either is no summary.
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


@cache
def _prompt() -> str:
    return files(__package__).joinpath("prompts", "summary.md").read_text(encoding="utf-8").strip()
