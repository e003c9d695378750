"""Numbers of others: whatever an upstream writes where a count is meant, no arithmetic on it fails."""

from __future__ import annotations

import json

import pytest

from proxy.core.counts import MOST, count_of
from proxy.core.overflow import classify
from proxy.core.overflow_frame import fills_window, sent
from proxy.dialects.chat import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES

#: What is no count.
NONE = (
    10**400,
    -(10**400),
    MOST + 1,
    -1,
    2**63,
    True,
    False,
    None,
    1.5,
    1e308,
    float("inf"),
    float("nan"),
    "7",
    [],
    {},
)
DIALECTS = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
PROMPTS = {"chat": "prompt_tokens", "responses": "input_tokens", "messages": "input_tokens"}
REPLIES = {"chat": "completion_tokens", "responses": "output_tokens", "messages": "output_tokens"}


def test_a_count_is_a_whole_number_that_can_be_meant() -> None:
    """From nothing to a thousand million; nothing else is one."""
    assert [count_of(value) for value in (0, 1, MOST)] == [0, 1, MOST]
    assert [count_of(value) for value in NONE] == [None] * len(NONE)


@pytest.mark.parametrize("key", ["n_ctx", "n_prompt_tokens"])
@pytest.mark.parametrize("number", NONE, ids=lambda number: str(number)[:8])
def test_numbers_in_the_fields_of_a_refusal_are_counts_or_ignored(key: str, number: object) -> None:
    """It stays the overflow that it is, with its other number."""
    fields = {"n_ctx": 8_000, "n_prompt_tokens": 9_000, key: number}
    verdict = classify(status=400, body={"error": {"code": "context_length_exceeded", "message": "x", **fields}})
    assert verdict.kind.name == "CONTEXT_WINDOW_EXCEEDED"
    assert (verdict.limit, verdict.requested) == ((None, 9_000) if key == "n_ctx" else (8_000, None))


def test_numbers_in_the_words_of_a_refusal_have_nine_digits_at_most() -> None:
    """Longer ones are no numbers, with or without separators."""
    for digits in ("9" * 400, ",".join(["999"] * 100), "9" * 10):
        for said in (f"maximum context length is {digits} tokens", f"prompt is too long: {digits} tokens > 200000"):
            verdict = classify(
                status=400, body={"error": {"message": f"{said}. your messages resulted in 9000 tokens"}}
            )
            assert all((number or 0) <= MOST for number in (verdict.limit, verdict.requested))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("number", NONE, ids=lambda number: str(number)[:8])
def test_numbers_in_a_usage_are_counts_or_ignored(name: str, number: object) -> None:
    """In a reply that is read whole and at the end of one that was relayed."""
    dialect, prompt, reply = DIALECTS[name], PROMPTS[name], REPLIES[name]
    for usage, expected in (
        ({prompt: number, reply: 5}, None),
        ({prompt: 7, reply: number}, (7, 0)),
        ({prompt: 7, reply: 5}, (7, 5)),
    ):
        for found in (
            dialect.counted(usage),
            dialect.usage(b'{"usage":' + json.dumps(usage).encode() + b"}", sse=False),
        ):
            assert (found and (found.prompt, found.completion)) == expected
    assert sent({prompt: number}) == 0
    assert not fills_window({prompt: number, reply: 0}, 8_192)
