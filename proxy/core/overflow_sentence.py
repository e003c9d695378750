"""The one exception for content: a first delta that is nothing but the sentence of an overflow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proxy.core.overflow_evidence import fold
from proxy.core.overflow_rules import RULES

if TYPE_CHECKING:
    from proxy.core.overflow_rules import Rules

__all__ = ["is_overflow_sentence"]

_SENTENCE_WORDS = 5
_TAIL = re.compile(r"[,. ]*(?:(?:please )?try increasing (?:it|the context size)(?: or enable context shift)?[. ]*)?")
_HEAD = re.compile(r"(?:error: ?)?(?:the |your |this )?(?:error: ?)?")


def is_overflow_sentence(text: str, rules: Rules = RULES) -> bool:
    """Whether a first delta is, as a whole, the sentence of an overflow (LocalAI streams its error as content)."""
    folded = fold(text).strip(" .!")
    if not _SENTENCE_WORDS <= len(folded.split()) <= 10 * _SENTENCE_WORDS:
        return False
    return any((match := phrase.pattern.search(folded)) and _covers(match.span(), folded) for phrase in rules.strong)


def _covers(span: tuple[int, int], text: str) -> bool:
    return bool(_HEAD.fullmatch(text[: span[0]]) and _TAIL.fullmatch(text[span[1] :]))
