from __future__ import annotations

import json
import re
import time

import pytest

from proxy.core.overflow import Kind, classify, means_overflow

OVERFLOW = Kind.CONTEXT_WINDOW_EXCEEDED
PROMPT = "prompt is too long: 210000 tokens > 200000 maximum"


def error(message: str, **fields: object) -> dict[str, object]:
    """Build OpenAI's envelope."""
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


@pytest.mark.parametrize(
    "endpoint", ["/v1/embeddings", "/v1/rerank", "/v1/batches", "/v1/files", "/v1/messages/count_tokens"]
)
def test_other_routes_never_overflow(endpoint: str) -> None:
    """What an embeddings endpoint refuses has no history to compact (step 0)."""
    assert classify(status=400, body=error(PROMPT), endpoint=endpoint).rule == "route"
    assert classify(status=400, body=error(PROMPT), endpoint="/v1/chat/completions").kind is OVERFLOW


def test_credit_is_never_an_overflow_whatever_the_code_says() -> None:
    """402 decides before the structured codes (step 4), and so does a 402 inside a 200."""
    body = error("Prompt tokens limit exceeded: 230799 > 91442", code="context_length_exceeded")
    assert classify(status=402, body=body).kind is Kind.RATE_LIMITED
    inside = error("Prompt tokens limit exceeded: 230799 > 91442", code=402)
    verdict = classify(status=200, body=inside, in_band=True)
    assert (verdict.kind, verdict.limit) == (Kind.RATE_LIMITED, None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 422, 429, 500, 503, 504, 529])
def test_a_structured_code_beats_every_other_status(status: int) -> None:
    """The code is evidence enough (step 5)."""
    assert classify(status=status, body=error("no", code="context_length_exceeded")).kind is OVERFLOW


STRONG, WEAK, GRAMMAR = (
    PROMPT,
    "The total length of all messages is too long.",
    "This prompt goes beyond what the window of this model can hold",
)


@pytest.mark.parametrize(
    ("status", "accepted"),
    [
        (400, {STRONG, WEAK, GRAMMAR}),
        (413, {STRONG, WEAK, GRAMMAR}),
        (422, {STRONG, WEAK, GRAMMAR}),
        (429, {STRONG}),
        (404, {STRONG}),
        (500, {STRONG}),
        (503, {STRONG}),
        (401, set()),
        (403, set()),
        (408, set()),
        (499, set()),
        (504, set()),
    ],
)
def test_a_status_demands_a_strength(status: int, accepted: set[str]) -> None:
    """The further a status is from "bad request", the stronger the wording must be (step 8)."""
    seen = {text for text in (STRONG, WEAK, GRAMMAR) if classify(status=status, body=error(text)).kind is OVERFLOW}
    assert seen == accepted


@pytest.mark.parametrize("status", [401, 403])
def test_only_one_wording_makes_a_401_an_overflow(status: int) -> None:
    """Kimi answers an oversized prompt with an authentication error; its 256K is not a number to learn."""
    body = {
        "type": "error",
        "error": {"type": "authentication_error", "message": "k3-256k supports only 256K context."},
    }
    verdict = classify(status=status, body=body)
    assert (verdict.kind, verdict.limit, verdict.requested) == (OVERFLOW, None, None)


def test_a_users_pattern_is_an_overflow_with_its_numbers() -> None:
    """`overflow_patterns` of an upstream decide where no row knows the wording."""
    body = error("E77: kontextbudget gesprengt")
    assert classify(status=500, body=body).kind is Kind.OTHER
    verdict = classify(status=500, body=body, patterns=(re.compile("E77"),))
    assert (verdict.kind, verdict.rule) == (OVERFLOW, "user:E77")


def test_a_users_pattern_sees_beginning_and_end_of_a_long_text() -> None:
    """Eight kibibytes at most: nobody need know which patterns are quadratic."""
    for at, seen in ((0, True), (30_000, False), (59_000, True)):
        text = f"{'word ' * (at // 5)}E77 {'word ' * ((60_000 - at) // 5)}"
        assert (classify(status=500, body=error(text), patterns=(re.compile("E77"),)).kind is OVERFLOW) is seen


def test_what_is_no_overflow_has_its_own_kind() -> None:
    """Output caps, bytes and rates are told apart; only overflows reveal numbers."""
    cap = classify(
        status=400, body=error("max_tokens: 10000 > 4096, which is the maximum allowed number of output tokens")
    )
    large = classify(status=413, body="<html><h1>413 Request Entity Too Large</h1></html>")
    rate = classify(status=429, body=error("Request too large on tokens per min (TPM): Limit 30000, Requested 342389"))
    assert [cap.kind, large.kind, rate.kind] == [Kind.OUTPUT_TOO_LARGE, Kind.PAYLOAD_TOO_LARGE, Kind.RATE_LIMITED]
    assert {verdict.limit for verdict in (cap, large, rate)} == {None}
    assert classify(status=429, body="").kind is Kind.RATE_LIMITED
    assert classify(status=500, body="").kind is Kind.OTHER


@pytest.mark.parametrize(("messages", "completion", "cured"), [(8000, 32000, False), (36000, 4000, True)])
def test_compaction_cures_only_where_the_output_leaves_room(messages: int, completion: int, *, cured: bool) -> None:
    """Input plus output over the window is an overflow; with the window full of output no history helps."""
    text = (
        "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens "
        f"({messages} in the messages, {completion} in the completion)."
    )
    verdict = classify(status=400, body=error(text))
    assert (verdict.kind, verdict.requested, verdict.compactable) == (OVERFLOW, 40000, cured)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
            "input",
        ),
        (PROMPT, "input"),
        ("The input token count (140000) exceeds the maximum number of tokens allowed (131072).", "input"),
        ("This model's maximum prompt length is 131072 but the request contains 136973 tokens.", "input"),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "total",
        ),
        ("The input (61709 tokens) is longer than the model's context length (40960 tokens).", "total"),
    ],
)
def test_the_kind_of_limit_is_told(text: str, kind: str) -> None:
    """`input` counts the prompt, `total` prompt and output."""
    assert classify(status=400, body=error(text)).limit_kind == kind


def test_an_empty_length_finish_is_an_overflow_only_in_a_full_window() -> None:
    """Without output and with usage at 99 % of the window; without a known window it is a truncation."""
    body = {
        "choices": [{"delta": {}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 32500, "completion_tokens": 0},
    }
    assert classify(status=200, body=body, in_band=True, window=32768).kind is OVERFLOW
    assert classify(status=200, body=body, in_band=True, window=65536).kind is Kind.OTHER
    assert classify(status=200, body=body, in_band=True).kind is Kind.OTHER


def test_content_is_never_read() -> None:
    """A model may speak about overflows, whole or in a delta."""
    for body in (
        {"choices": [{"message": {"content": PROMPT}, "finish_reason": "stop"}]},
        {"choices": [{"delta": {"content": PROMPT}}]},
        {"type": "message", "content": [{"type": "text", "text": PROMPT}], "stop_reason": "end_turn"},
        {"object": "response", "error": None, "output": [{"content": [{"text": PROMPT}]}], "instructions": PROMPT},
        PROMPT,
    ):
        assert classify(status=200, body=body, in_band=True).kind is Kind.OTHER


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PROMPT, "strong:too-long-than"),
        ("输入内容过长", "weak:zh-input-length"),
        ("This prompt goes beyond what the window of this model can hold", ""),  # grammar is too little
        ("Rate limit reached: prompt is too long: 210000 tokens > 200000 maximum per minute", ""),
    ],
)
@pytest.mark.parametrize("envelope", ["bare", "header", "Response"])
def test_what_nothing_marks_needs_a_known_wording(text: str, rule: str, envelope: str) -> None:
    """Inside a 200 an unknown envelope is an error only if it is an overflow; else it is as if nobody had looked."""
    error = {"message": text}
    body = {"bare": error, "header": {"header": {"code": 7, **error}}, "Response": {"Response": {"Error": error}}}
    verdict = classify(status=200, body=body[envelope], in_band=True)
    assert (verdict.kind is OVERFLOW) is bool(rule)
    assert verdict.rule == (rule if rule and not rule.endswith("than") else verdict.rule)
    assert rule or verdict.rule == "no-error"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("model_context_window_exceeded", True),
        ("length", False),
        ("max_tokens", False),
        ("stop", False),
        (None, False),
        (7, False),
    ],
)
def test_finish_reasons_that_only_an_overflow_has(reason: object, expected: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """Anthropic and z.ai end with a reason of their own."""
    assert means_overflow(reason) is expected


@pytest.mark.parametrize(
    "body",
    [b"\xff\xfe{", "{", '{"error":', "[" * 100_000, '{"error":' * 50_000, "\ufeff", object(), b"", None, [[]], {1: 2}],
)
def test_broken_bodies_are_classified(body: object) -> None:
    """Broken JSON, broken UTF-8, absurd nesting."""
    for in_band in (False, True):
        assert classify(status=400, body=body, in_band=in_band).kind in Kind


HOSTILE = {
    "subjects": "prompt " * 150_000,
    "digits": "1,234" * 200_000,
    "numbers": "12345 " * 170_000,
    "quoted keys": '"text":"' * 130_000,
    "apostrophes": "'content':'" * 90_000,
    "braces": "{" * 1_000_000,
    "objects": '{"a":' * 200_000,
    "echoes": "input_value=" * 80_000,
    "output caps": "max_tokens " * 90_000,
    "escapes": '\\"' * 500_000,
    "white space": " " * 1_000_000,
    "sums": "input and the " * 70_000,
    "literals": "{'a': " + "-" * 900_000 + "1}",
    "one word": "a" * 1_000_000,
    "chinese": "上下文" * 330_000,
    "mixture": "the input tokens of the prompt exceed 12345 ( > " * 21_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_hostile_text_takes_less_than_a_second(name: str) -> None:
    """No pattern backtracks without bound, and only so much of a text is examined."""
    text = HOSTILE[name]
    for body in (text, json.dumps({"error": {"message": text}}).encode(), {"errors": [{"message": text}] * 50}):
        began = time.perf_counter()
        classify(status=400, body=body)
        assert time.perf_counter() - began < 1
