"""Of a large JSON text only what decides is read; of a small one everything."""

from __future__ import annotations

import json

import pytest

from proxy.core import skim as skimming
from proxy.core.overflow import Kind, classify
from proxy.core.skim import MUCH, SMALL, legible, skim

LONG = "x" * SMALL
MANY = [{}] * SMALL
TOO_LONG = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"anything": [1, {"a": 2}]}, {"anything": [1, {"a": 2}]}),
        ({"error": {"message": "no"}, "echo": LONG}, {"error": {"message": "no"}}),
        ({"echo": MANY, "error": {"message": "no", "echo": MANY}}, {"error": {"message": "no"}}),
        ({"error": {"message": LONG}}, {"error": {"message": LONG}}),
        (
            {"type": "response.failed", "response": {"error": {"code": 1}, "tools": MANY}},
            {"type": "response.failed", "response": {"error": {"code": 1}}},
        ),
        ({"detail": [{"msg": "no", "input": MANY}]}, {"detail": [{"msg": "no"}]}),
        ({"choices": MANY}, {"choices": [MUCH]}),
        ({"choices": [{"delta": {"x": LONG}, "index": 0}]}, {"choices": [{"delta": MUCH}]}),
        (
            {"choices": [{"message": {"content": LONG}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}},
            {"choices": [{"finish_reason": "stop", "message": MUCH}], "usage": {"prompt_tokens": 1}},
        ),
        ({"content": [{"text": LONG}, {}], "stop_reason": "x"}, {"stop_reason": "x", "content": MUCH}),
        ([{"error": {"message": "no"}, "echo": LONG}], [{"error": {"message": "no"}}]),
        (MANY, [MUCH]),
        (LONG, LONG),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_what_decides_is_seen(value: object, seen: object) -> None:
    """Errors, reasons and usage; the rest is there, or there is much of it."""
    assert skim(json.dumps(value)) == seen


@pytest.mark.parametrize(
    "text",
    ["{", "", '{"a":' + "[" * SMALL, '{"a":"' + LONG, '{"a":"\\ud800' + LONG + '"}', "{" + LONG + "}", "data " + LONG],
    ids=lambda text: text[:20],
)
def test_what_cannot_be_read_is_nothing(text: str) -> None:
    """Small or large: it never raises."""
    assert skim(text) is None


def test_of_a_large_text_no_more_values_are_made_than_of_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many fields decide, and however deep they lie: what is parsed is bounded, but for single texts."""
    parsed: list[int] = []
    inner = skimming._parsed

    def noted(text: str | bytes) -> object:
        parsed.append(0 if text[:1] in (b'"', '"') else len(text))
        return inner(text)

    monkeypatch.setattr(skimming, "_parsed", noted)
    much = {name: [1] * 30_000 for name in skimming._FIELDS}
    skim(json.dumps({**much, "error": {**much, "error": much}, "response": {**much, "response": much}}))
    assert 0 < sum(parsed) <= SMALL


@pytest.mark.parametrize("fill", ["x" * SMALL, "{" * SMALL, "é" * SMALL], ids=["text", "broken", "wide"])
def test_a_large_text_that_is_no_json_is_classified_by_its_ends(fill: str) -> None:
    """The sentence at its beginning counts, and nobody tries to parse what is between."""
    seen = legible(f"{{ {TOO_LONG} {fill}")
    assert isinstance(seen, str)
    assert len(seen) < SMALL
    assert classify(status=400, body=seen).kind is Kind.CONTEXT_WINDOW_EXCEEDED
    assert legible(TOO_LONG) == TOO_LONG


def test_a_large_error_is_classified_like_a_small_one() -> None:
    """What it echoes does not hide it."""
    error = {"error": {"message": TOO_LONG, "code": "context_length_exceeded", "echo": MANY}, "input": LONG}
    verdict = classify(status=200, body=legible(json.dumps(error)), in_band=True)
    assert (verdict.kind, verdict.limit) == (Kind.CONTEXT_WINDOW_EXCEEDED, 8192)
