from __future__ import annotations

import pytest

from proxy.core.overflow import Verdict, classify
from proxy.core.overflow_evidence import fold
from proxy.core.overflow_numbers import Numbers, combine, read_numbers

PARTS = (
    "maximum context length is 40960 tokens. However, you requested 100 output tokens and "
    "your prompt contains at least 40861 input tokens"
)


def refusal(text: str, status: int = 400) -> Verdict:
    """Classify a text as an HTTP refusal."""
    return classify(status=status, body={"error": {"message": text}})


@pytest.mark.parametrize(
    ("text", "limit", "requested"),
    [
        ("invalid params, context window exceeds limit (2013)", None, None),  # an error code
        ("AiError: 5021: the prompt exceeds the context window limit (7968) tokens", 7968, None),
        ("Error code: 400 - prompt is too long for gpt-4o-2024-08-06", None, None),
        ("failed to decode at pos 16384: the context window is full", None, None),
        ("prompt too long; exceeded max context length by 100918 tokens", None, None),  # an excess
        (
            "too many tokens: size limit exceeded by 19296 tokens. The limit for this model is 132000 tokens.",
            132000,
            151296,
        ),
        ("The prompt is too long: 184829, model maximum context length: 131071", 131071, 184829),  # the limit second
        ("input token count (81881) exceeds the maximum number of tokens allowed (65536).", 65536, 81881),
        ("prompt of 300000 tokens exceeds the 256K context window", None, 300000),  # 256K is not defined
        ("prompt exceeds the 1M tokens context window", None, None),
        ("Prompt has 5,958,968 tokens, but the configured context size is 256,000 tokens", 256000, 5958968),
        ("Prompt has 1.048.577 tokens, maximum context length 1.048.576", 1048576, 1048577),
        ("prompt length (72417.0) should not exceed max_num_tokens (69632)", 69632, 72417),
        ("you requested about 42832 tokens, maximum context length is 32768 tokens", 32768, 42832),  # an estimate
        (PARTS, 40960, 40961),
        ("input length and `max_tokens` exceed context limit: 143653 + 64000 > 200000", 200000, 207653),
        ("request (9000 tokens) exceeds the context size (8192 tokens), 99.5% full, build 1234-abc", 8192, 9000),
        ("prompt exceeds the maximum context length: 9000 tokens (max 8192)", 8192, 9000),  # which is which: the larger
        ("prompt exceeds the maximum context length: 8192 tokens (gateway limit 9000)", 8192, None),
        ("prompt too long: the maximum is 131072 tokens (limit of this deployment: 128000)", 131072, None),
        ("your prompt is too long, 9000 tokens were counted, the limit is 8192", 8192, 9000),
        ("context limit of the prompt passed: 9000 of 8192 tokens", 8192, 9000),
        ("your messages add up to 9000 tokens; the limit is 8192 tokens", 8192, 9000),
        ("输入token数70000超过了模型支持的最大token数65536", 65536, 70000),  # no space beside a number
        ("der Prompt überschreitet das Kontextfenster von 8192 Tokens", 8192, None),
        ("输入token过长 错误码1261", None, None),
        ("the prompt of 5000 tokens exceeds the maximum context length of 8192 tokens", 8192, None),  # contradictory
    ],
)
def test_numbers_are_what_their_words_say(text: str, limit: int | None, requested: int | None) -> None:
    """Codes, excesses, positions, "256K", separators, order: each trap of the corpus."""
    verdict = refusal(text)
    assert (verdict.limit, verdict.requested) == (limit, requested)


@pytest.mark.parametrize(
    "text",
    [
        "Request too large on tokens per min (TPM): Limit 30000, Requested 342389",
        "max_tokens: 10000 > 4096, which is the maximum allowed number of output tokens",
        "Request payload size exceeds the limit: 20971520 bytes.",
        "This request of 50000 tokens exceeds your credits, limit 30000 tokens",
    ],
)
def test_nothing_is_learnt_from_a_veto(text: str) -> None:
    """A rate or a cap must never become a window."""
    verdict = refusal(text)
    assert (verdict.limit, verdict.requested, verdict.limit_kind) == (None, None, "")


def test_fields_of_the_error_beat_its_text() -> None:
    """llama.cpp counts in fields."""
    body = {
        "error": {"message": "the request exceeds the available context size", "n_ctx": 256, "n_prompt_tokens": 1407}
    }
    verdict = classify(status=400, body=body)
    assert (verdict.limit, verdict.requested) == (256, 1407)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"limit": "100", "requested": "150", "output": None}, (100, 150, None)),
        ({"limit": "100", "requested": "150", "output": "60"}, (100, 150, 60)),
        ({"limit": "100", "input": "90", "output": "60"}, (100, 150, 60)),
        ({"limit": "100", "excess": "7"}, (100, 107, None)),
        ({"excess": "7"}, (None, None, None)),
        ({"limit": "100", "requested": "90"}, (100, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_captured_groups_become_numbers(groups: dict[str, str | None], expected: tuple[int | None, ...]) -> None:
    """Parts are added, an excess goes on top, a request within the limit is none."""
    numbers = combine(groups, "total")
    assert (numbers.limit, numbers.requested, numbers.output) == expected


def test_a_text_of_nothing_but_numbers_says_nothing() -> None:
    """No words, no roles; and no more than a few numbers are looked at."""
    assert read_numbers(fold("12345 " * 1000)) == Numbers()
