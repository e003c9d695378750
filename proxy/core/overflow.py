"""Is this answer an overflow? A table of rules and the order in which they decide (rule 8).

The order is `_decide`, its steps are numbered in `docs/rules.md`, the tables are in `overflow_rules`.
Only error fields are read, never content and never echoed input; of a long text the beginning and the
end. Nothing here raises on odd answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from proxy.core.overflow_evidence import Evidence, bounded, clauses, fold, gather, is_empty_or_html, parse
from proxy.core.overflow_frame import ERROR_TYPES, fills_window, finish_reasons, has_error_marker, may_be_error, sent
from proxy.core.overflow_numbers import Numbers, combine, read_numbers
from proxy.core.overflow_rules import RULES, normalise_code
from proxy.core.overflow_strength import Strength, demanded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from re import Pattern

    from proxy.core.overflow_rules import Rules
    from proxy.core.overflow_wording import Phrase

__all__ = ["Kind", "Verdict", "classify", "means_overflow"]

_CREDIT = 402


class Kind(Enum):
    """What a refusal is."""

    CONTEXT_WINDOW_EXCEEDED = "CONTEXT_WINDOW_EXCEEDED"
    OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    RATE_LIMITED = "RATE_LIMITED"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an answer is, the rule that decided, and the numbers it reveals, in tokens.

    `limit_kind` is `input`, `total` or empty where the answer does not tell. `compactable` is false
    where shrinking the history cannot cure it.
    """

    kind: Kind
    rule: str
    limit: int | None = None
    requested: int | None = None
    limit_kind: str = ""
    compactable: bool = True


def classify(
    *,
    status: int,
    body: object,
    event: str | None = None,
    endpoint: str | None = None,
    in_band: bool = False,
    patterns: Sequence[Pattern[str]] = (),
    window: int | None = None,
    headers: Mapping[str, str] | None = None,
    rules: Rules = RULES,
) -> Verdict:
    """Say what an upstream's answer is.

    `body` is the decoded body or the data of one frame: bytes, text or a parsed JSON value. `in_band`
    means that it came inside a 200. `event` is the SSE event name, `endpoint` the path. `patterns`
    are the user's own wordings, `window` the model's, in tokens.
    """
    if endpoint and _OTHER_ROUTE.search(endpoint[:500].lower()):
        return Verdict(kind=Kind.OTHER, rule="route")
    value = parse(body)
    doubted = in_band and not has_error_marker(value, event) and may_be_error(value, event)
    if in_band and not doubted:
        value, finish = _frame(value, event, window)
        if finish is not None:
            return finish
    evidence = Evidence()
    gather(value, evidence, 0)
    for name, text in (headers or {}).items():
        if name.lower() == "x-amzn-errortype":
            evidence.codes.append(("type", text.partition(":")[0]))
    if event and event.lower().endswith("exception"):
        evidence.codes.append(("type", event))
    answer = _Answer(
        status=status, in_band=in_band, doubted=doubted, value=value, evidence=evidence, patterns=tuple(patterns)
    )
    verdict = _decide(answer, rules)
    if doubted and verdict.kind is not Kind.CONTEXT_WINDOW_EXCEEDED:
        return Verdict(kind=Kind.OTHER, rule="no-error")
    return verdict


@dataclass(slots=True, kw_only=True)
class _Answer:
    status: int
    in_band: bool
    doubted: bool  # nothing marks it as an error
    value: object
    evidence: Evidence
    patterns: tuple[Pattern[str], ...]

    @property
    def text(self) -> str:
        return fold("\n".join(self.evidence.texts))


def _decide(answer: _Answer, rules: Rules) -> Verdict:
    """Walk the decision order; the first step that has an opinion decides."""
    if is_empty_or_html(answer.value):
        return _fallback(answer, "empty")
    if _CREDIT in (answer.status, answer.evidence.inner_status if answer.in_band else 0):
        return Verdict(kind=Kind.RATE_LIMITED, rule="status:402")
    text = answer.text
    if rule := _structured_yes(answer.evidence, text, rules):
        return _overflow(rule, answer, text, rules)
    if rule := _users_pattern(answer, text):
        return _overflow(rule, answer, text, rules)
    if verdict := _structured_no(answer.evidence, rules) or _vetoed(text, rules):
        return verdict
    return _by_wording(answer, text, rules)


def _by_wording(answer: _Answer, text: str, rules: Rules) -> Verdict:
    strength = demanded(answer.status, answer.evidence.inner_status, in_band=answer.in_band, doubted=answer.doubted)
    if strength is Strength.FORBIDDEN and rules.forbidden.pattern.search(text):
        return Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule=f"strong:{rules.forbidden.name}")
    if strength.value >= Strength.STRONG.value and (rule := _strong(text, rules)):
        return _overflow(rule, answer, text, rules)
    if strength.value >= Strength.WEAK.value and (phrase := _first(rules.weak, text)):
        return _overflow(f"weak:{phrase.name}", answer, text, rules)
    if strength is Strength.GRAMMAR and (phrase := _first(rules.grammar, clauses(text))):
        return _overflow(f"grammar:{phrase.name}", answer, text, rules)
    return _fallback(answer, "none")


# --- 0, 1 route and frame ---------------------------------------------------------------------------

_OTHER_ROUTE = re.compile(
    r"embed|rerank|batch|/files|moderation|/audio|/images|tokeni[sz]e|count_tokens|fine.?tun|vector_stores"
)


def means_overflow(reason: object) -> bool:
    """Whether a finish or stop reason is one that only an overflow has."""
    return isinstance(reason, str) and _is_yes(normalise_code(reason), RULES)


def _frame(value: object, event: str | None, window: int | None) -> tuple[object, Verdict | None]:
    """Reduce an in-band value to its error; else the verdict of its finish reason."""
    if isinstance(value, str):
        return value, None if event in ERROR_TYPES or not value else Verdict(kind=Kind.OTHER, rule="no-error")
    if not has_error_marker(value, event):
        return value, _finish(value, window)
    if isinstance(value, dict) and isinstance(response := value.get("response"), dict):
        return {"error": response.get("error") or value.get("error")}, None
    return value, None


def _finish(value: object, window: int | None) -> Verdict:
    reasons = list(finish_reasons(value))
    if any(means_overflow(reason) for reason in reasons):
        return Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="finish:context")
    if "length" in reasons and isinstance(value, dict) and fills_window(value.get("usage"), window):
        return Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="finish:length", requested=sent(value.get("usage")))
    return Verdict(kind=Kind.OTHER, rule="finish" if reasons else "no-error")


# --- 5 to 8 ---------------------------------------------------------------------------------------


def _is_yes(code: str, rules: Rules) -> bool:
    return any(code == row.value for row in rules.yes) or bool(rules.yes_form.match(code))


def _structured_yes(evidence: Evidence, text: str, rules: Rules) -> str:
    for _, code in evidence.codes:
        normal = normalise_code(code)
        if _is_yes(normal, rules) or (normal == "3051" and evidence.object_error):
            return f"code:{code.lower()}"
    return "code:ContextWindowExceededError" if rules.yes_text.search(text) else ""


def _users_pattern(answer: _Answer, text: str) -> str:
    raw = bounded("\n".join([*answer.evidence.texts, *(code for _, code in answer.evidence.codes)]))
    return next(
        (f"user:{pattern.pattern}" for pattern in answer.patterns if pattern.search(raw) or pattern.search(text)), ""
    )


def _structured_no(evidence: Evidence, rules: Rules) -> Verdict | None:
    for key, code in evidence.codes:
        normal = normalise_code(code)
        for row in rules.no:
            if normal == row.value and row.only in ("", key):
                return Verdict(kind=Kind(row.kind), rule=f"no-code:{code.lower()}")
    return None


def _vetoed(text: str, rules: Rules) -> Verdict | None:
    for veto in rules.vetoes:
        if veto.pattern.search(text) and not (veto.unless and veto.unless.search(text)):
            return Verdict(kind=Kind(veto.kind), rule=f"veto:{veto.name}")
    return None


def _strong(text: str, rules: Rules) -> str:
    if word := _code_in_text(text, rules):
        return f"strong:{word}"
    if phrase := _first(rules.strong, text):
        return f"strong:{phrase.name}"
    return "grammar:numbers" if _numbers_violate(text) else ""


_CODE_WORD = re.compile(r"\b[a-z]{3,12}(?:_[a-z]{3,12}){2,5}\b")


def _code_in_text(text: str, rules: Rules) -> str:
    """Find a code that a gateway put into its message."""
    words = (word[0] for word in _CODE_WORD.finditer(text))
    return next((word for word in words if _is_yes(normalise_code(word), rules)), "")


def _first(phrases: Sequence[Phrase], text: str) -> Phrase | None:
    return next((phrase for phrase in phrases if phrase.pattern.search(text)), None)


_ABOUT_PROMPT = re.compile(
    r"context|prompt|input|messages?\b|conversation|n_ctx|max_model_len|上下文|输入|プロンプト|入力|입력|token"
)
_COUNTS = re.compile(r"token|length|context|n_ctx|size|长度|トークン|토큰")


def _numbers_violate(text: str) -> bool:
    """Whether the text states a limit and something larger that was sent: comparing them is the verb."""
    if not (_ABOUT_PROMPT.search(text) and _COUNTS.search(text)):
        return False
    numbers = read_numbers(text)
    return numbers.limit is not None and numbers.requested is not None


# --- what an overflow reveals ---------------------------------------------------------------------


def _overflow(rule: str, answer: _Answer, text: str, rules: Rules) -> Verdict:
    phrase = _first(rules.strong, text) or _first(rules.weak, text)
    numbers = _numbers_of(phrase, text)
    limit = answer.evidence.numbers.get("limit", numbers.limit)
    requested = answer.evidence.numbers.get("requested", numbers.requested)
    room = limit - numbers.output if limit is not None and numbers.output is not None else None
    cured = room is None or limit is None or room >= min(1_024, limit // 16)
    return Verdict(
        kind=Kind.CONTEXT_WINDOW_EXCEEDED,
        rule=rule,
        limit=limit,
        requested=requested,
        limit_kind=numbers.limit_kind if limit is not None else "",
        compactable=cured and (phrase is None or phrase.compactable),
    )


def _numbers_of(phrase: Phrase | None, text: str) -> Numbers:
    if phrase is None:
        return read_numbers(text)
    if not phrase.numbers:
        return Numbers()
    match = phrase.pattern.search(text)
    captured = match.groupdict() if match else {}
    read = read_numbers(text)
    if not any(captured.values()):
        return read
    own = combine(captured, phrase.limit_kind)
    agree = own.limit in (None, read.limit)
    return replace(
        own,
        limit=own.limit or read.limit,
        requested=own.requested or (read.requested if agree else None),
        output=own.output or (read.output if agree else None),
        limit_kind=own.limit_kind or read.limit_kind,
    )


_FALLBACKS = {413: Kind.PAYLOAD_TOO_LARGE, 429: Kind.RATE_LIMITED}


def _fallback(answer: _Answer, rule: str) -> Verdict:
    return Verdict(kind=_FALLBACKS.get(answer.status, Kind.OTHER), rule=rule)
