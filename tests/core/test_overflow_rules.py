from __future__ import annotations

import pytest

from proxy.core.overflow import Kind, classify
from proxy.core.overflow_rules import RULES, normalise_code

PROMPT = "prompt is too long: 300000 tokens > 200000 maximum"


def kind_of(message: str, **fields: object) -> Kind:
    """Classify a text in OpenAI's envelope."""
    return classify(status=400, body={"error": {"message": message, **fields}}).kind


@pytest.mark.parametrize(
    "code",
    [
        "context_length_exceeded",
        "ContextLengthExceeded",
        "context-window-exceeded",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
        "max_prompt_tokens_exceeded",
        "exceed_context_size_error",
        "context_exceeded",
        "tokens_limit_reached",
        "prompt_too_long",
        "input_too_long",
        "1261",
        1261,
        "ContextWindowExceededError",
        "context_length_exceeded_error",
        "prompt_tokens_exceeded",
        "max_context_length_exceeded",
        "CONTEXT_OVERFLOW",
        "input_length_exceeded",
        "context_size_exceeded",
        "exceeded_context_window",
    ],
)
@pytest.mark.parametrize("key", ["code", "type", "error_code"])
def test_codes_decide_in_any_spelling(code: object, key: str) -> None:
    """Known codes, and what a gateway would call its own."""
    assert kind_of("no", **{key: code}) is Kind.CONTEXT_WINDOW_EXCEEDED


def test_the_code_3051_counts_only_in_an_error_object() -> None:
    """Mistral's number means something else elsewhere."""
    body = {"message": "no", "code": "3051"}
    assert classify(status=400, body=body).kind is Kind.OTHER
    assert classify(status=400, body=body | {"object": "error"}).kind is Kind.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize(
    "code",
    ["invalid_request_body", "invalid_prompt", "2013", "invalid_request_error", "context_canceled", "input_invalid"],
)
def test_codes_that_stand_for_more_than_one_thing_decide_nothing(code: str) -> None:
    """They need a wording."""
    assert kind_of("no", code=code) is Kind.OTHER
    assert kind_of(PROMPT, code=code) is Kind.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize(
    "fields",
    [
        {"code": "rate_limit_exceeded"},
        {"type": "rate_limit_error"},
        {"type": "tokens"},
        {"code": "insufficient_quota"},
        {"code": "token_quota_exceeded"},
        {"type": "too_many_tokens_error"},
        {"type": "usage_limit_reached"},
        {"type": "budget_exceeded"},
        {"status": "RESOURCE_EXHAUSTED"},
        {"type": "ThrottlingException"},
        {"type": "overloaded_error"},
        {"code": "string_above_max_length"},
        {"code": "array_above_max_length"},
        {"code": "content_filter"},
        {"code": "invalid_api_key"},
        {"code": "model_not_found"},
        {"code": "body_too_large"},
    ],
)
def test_codes_of_other_troubles_beat_every_wording(fields: dict[str, object]) -> None:
    """Structured no comes before the phrases (step 6)."""
    assert kind_of(PROMPT, **fields) is not Kind.CONTEXT_WINDOW_EXCEEDED


def test_the_word_tokens_is_a_rate_limit_only_as_a_type() -> None:
    """OpenAI's `type: tokens`; a parameter or reason may be called the same."""
    assert kind_of(PROMPT, reason="tokens") is Kind.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        # rates
        ("This request exceeds the limit of 30000 tokens per minute", Kind.RATE_LIMITED),
        ("Request too large on tokens per min (TPM). Maximum context length is 1000000 tokens.", Kind.RATE_LIMITED),
        ("Too many tokens, please wait before trying again.", Kind.RATE_LIMITED),
        ("Too many tokens per day, please wait", Kind.RATE_LIMITED),
        ("Input tokens exceed the limit of your tier: 30000 TPM", Kind.RATE_LIMITED),
        ("prompt tokens exceed limit, try again in 20s", Kind.RATE_LIMITED),
        ("Concurrent prompts exceed the maximum of 5", Kind.RATE_LIMITED),
        ("请求频率超过限制 请稍后重试", Kind.RATE_LIMITED),
        ("Les tokens dépassent la limite par minute", Kind.RATE_LIMITED),
        ("Die Tokens überschreiten das Limit pro Minute", Kind.RATE_LIMITED),
        # money
        ("Prompt tokens limit exceeded: 230799 > 91442. Add credits to continue.", Kind.RATE_LIMITED),
        ("Input tokens exceed your quota", Kind.RATE_LIMITED),
        ("You requested up to 32000 tokens, but can only afford 27342", Kind.RATE_LIMITED),
        ("Insufficient balance: this prompt of 50000 tokens exceeds the remaining 100", Kind.RATE_LIMITED),
        ("Token budget exceeded: input 500 > 400", Kind.RATE_LIMITED),
        ("Token limit exceeded for your plan", Kind.RATE_LIMITED),
        ("余额不足 输入 token 超过限额", Kind.RATE_LIMITED),
        # busy and cancelled
        ("maximum context length: context deadline exceeded", Kind.OTHER),
        ("input exceeds context length: context canceled", Kind.OTHER),
        ("The prompt is too long for the overloaded engine", Kind.OTHER),
        # memory
        ("Prompt too large for available memory: context exceeds 77GB", Kind.OTHER),
        ("CUDA out of memory: input length 20000 exceeds what fits", Kind.OTHER),
        ("Input tokens exceed KV cache capacity", Kind.OTHER),
        # output caps
        ("max_tokens: 10000 > 4096, which is the maximum allowed number of output tokens", Kind.OUTPUT_TOO_LARGE),
        (
            "max_tokens is too large: 8000. This model supports at most 4096 completion tokens, you provided 8000.",
            Kind.OUTPUT_TOO_LARGE,
        ),
        (
            "`max_tokens` must be <= `8192`, the maximum value for `max_tokens` is less than the `context_window`",
            Kind.OUTPUT_TOO_LARGE,
        ),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", Kind.OUTPUT_TOO_LARGE),
        ("Range of max_tokens should be [1, 8192]", Kind.OUTPUT_TOO_LARGE),
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower value.",
            Kind.OUTPUT_TOO_LARGE,
        ),
        ("it has a maxOutputTokens value of 100000 but the supported range is from 1 to 8193", Kind.OUTPUT_TOO_LARGE),
        (
            "too many tokens: max tokens must be at most 4096, the maximum output length - received 8000.",
            Kind.OUTPUT_TOO_LARGE,
        ),
        ("max_tokens cannot exceed the configured model output limit of 16384", Kind.OUTPUT_TOO_LARGE),
        # other units
        ("Request payload size exceeds the limit: 20971520 bytes.", Kind.PAYLOAD_TOO_LARGE),
        ("Input is 1095225 bytes, over the 1085435 byte limit. Shorten the conversation.", Kind.PAYLOAD_TOO_LARGE),
        ("prompt too long: maximum 20000 characters", Kind.OTHER),
        ("Too many images in the input: 25 > 20 maximum", Kind.PAYLOAD_TOO_LARGE),
        ("messages.0.content.1: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", Kind.PAYLOAD_TOO_LARGE),
        ("Number of messages exceeds the maximum of 2048 messages", Kind.OTHER),
        ("Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576", Kind.OTHER),
        ("Invalid 'tools': array too long. Expected an array with maximum length 128, got 325", Kind.OTHER),
        ("input is too large to process. increase the physical batch size", Kind.OTHER),
        # policy
        ("Your prompt was flagged: it exceeds what our safety policy allows", Kind.OTHER),
        ("Your organization must be verified to use long context prompts larger than 200k.", Kind.OTHER),
    ],
)
def test_vetoes_beat_the_wordings(text: str, kind: Kind) -> None:
    """What counts something else, or is about something else, is no overflow (step 7)."""
    verdict = classify(status=400, body={"error": {"message": text}})
    assert (verdict.kind, verdict.limit) == (kind, None)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens plus prompt length cannot exceed 8192. Please try again with lower max_tokens or shorter prompt",
        "input length and `max_tokens` exceed context limit: 143653 + 64000 > 200000",
        "'max_tokens' is too large: 16384. The maximum context length is 65536 and your request has 52189 input tokens",
        "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 6204 `inputs` tokens and 2047 `max_new_tokens`",
        "max_tokens must be at least 1, got -186.",
        "Prompt of 12000 tokens (48000 characters) exceeds the context window of 8192 tokens",
        "Total tokens of image and text exceed max message tokens.",
        "Input too long: 90000 tokens (360000 bytes), limit 65536 tokens",
    ],
)
def test_a_veto_yields_where_the_prompt_is_counted_too(text: str) -> None:
    """Input and output share a window; tokens beside bytes are still tokens."""
    assert kind_of(text) is Kind.CONTEXT_WINDOW_EXCEEDED


def test_no_table_says_a_thing_twice() -> None:
    """A code is either yes or no, and names are unique within a table."""
    yes, no = {row.value for row in RULES.yes}, {row.value for row in RULES.no if not row.only}
    assert not yes & no
    assert not any(RULES.yes_form.match(value) for value in no)
    assert all(value == normalise_code(value) for value in yes | no)
    for table in (RULES.vetoes, RULES.strong, RULES.weak, RULES.grammar):
        names = [row.name for row in table]
        assert len(names) == len(set(names))
