from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.overflow import Kind, classify
from proxy.core.overflow_phrases import STRONG, WEAK
from proxy.core.overflow_rules import RULES


def found(row: dict[str, Any], without: str) -> bool:
    """Classify a line with the phrases of one provider left out."""
    rules = replace(
        RULES,
        strong=tuple(phrase for phrase in STRONG if phrase.provider != without),
        weak=tuple(phrase for phrase in WEAK if phrase.provider != without),
    )
    verdict = classify(
        status=row["status"],
        body=row["body"],
        event=row.get("event"),
        in_band=row["delivery"] != "http",
        rules=rules,
    )
    return verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED


def test_every_provider_is_half_known_without_its_own_phrases(
    refusals: list[dict[str, Any]],
) -> None:
    """Leave one provider out: at least half of its overflows are still found by the rest of the rules."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in refusals:
        if row["verdict"] == "CONTEXT_WINDOW_EXCEEDED" and not row.get("ambiguous"):
            rows[row["provider"]].append(row)
    shares = {provider: sum(found(row, provider) for row in own) / len(own) for provider, own in rows.items()}
    total = sum(share * len(rows[provider]) for provider, share in shares.items()) / sum(map(len, rows.values()))
    partly = {provider: round(share, 2) for provider, share in shares.items() if share < 1}
    print(f"\nleave one provider out: {len(shares)} providers, {total:.3f} of their overflows found; partly: {partly}")
    assert [provider for provider, share in shares.items() if share < 0.5] == []


@pytest.mark.parametrize("status", [404, 429, 500, 503])
@pytest.mark.parametrize(
    "text",
    [
        "Please reduce the length of the messages",
        "The total length of all messages is too long",
        "Input token length too long",
        "tokens in request more than max tokens allowed",
        "prompt tokens too long",
        "invalid params, context window exceeds limit (2013)",
        "Prompt 超长",
    ],
)
def test_weak_phrases_need_a_status_that_fits(text: str, status: int) -> None:
    """A sentence without numbers counts on a 400, not on a rate limit or a server's fault."""
    body = {"error": {"message": text}}
    assert classify(status=400, body=body).rule.startswith("weak:")
    assert classify(status=status, body=body).kind is not Kind.CONTEXT_WINDOW_EXCEEDED


def test_every_row_names_its_provider() -> None:
    """Where a wording was seen is how a reader finds its document."""
    assert all(phrase.provider for phrase in (*STRONG, *WEAK))
    assert {phrase.limit_kind for phrase in (*STRONG, *WEAK)} <= {"", "input", "total"}
