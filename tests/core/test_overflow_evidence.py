from __future__ import annotations

import json
import time

import pytest

from proxy.core.overflow import Kind, classify
from proxy.core.overflow_evidence import Evidence, fold, gather, is_empty_or_html, parse

TEXT = "prompt is too long: 210000 tokens > 200000 maximum"
INNER = json.dumps({"error": {"message": TEXT}})


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": TEXT}},
        {"error": TEXT},
        [{"error": {"message": TEXT}}],
        {"errors": [{"message": TEXT}]},
        {"errors": [TEXT]},
        {"detail": TEXT},
        {"detail": {"message": TEXT}},
        {"detail": [{"loc": ["body"], "msg": TEXT}]},
        {"response": {"error": {"message": TEXT}}},
        {"error_message": TEXT},
        {"error": {"metadata": {"raw": TEXT}}},
        {"error": {"message": "x", "metadata": {"raw": INNER}}},
        {"base_resp": {"status_msg": TEXT}},
        {"message": INNER},
        {"error_code": "BAD_REQUEST", "message": INNER},
        {"Response": {"Error": {"Code": "x", "Message": TEXT}}},
        {"header": {"code": 10907, "message": TEXT}},
        {"error_code": 336003, "error_msg": TEXT},
        {"exception": TEXT},
        {"fault": {"faultstring": TEXT}},
        {"error": {"details": [{"@type": "x", "message": TEXT}]}},
        TEXT,
        f"Error: {TEXT}",
        f"Upstream said: {INNER}",
        f"event: error\ndata: {INNER}\n\n",
        json.dumps(INNER),
        {"error": {"message": "Error code: 400 - {'error': {'message': \"" + TEXT + "\", 'type': 'x'}}"}},
        {"error": {"message": f"litellm.BadRequestError: b'{INNER}'"}},
        {"error": json.dumps({"error": {"message": INNER}})},  # what is wrapped in text is no level of its own
    ],
)
def test_the_text_is_found_in_any_envelope(body: object) -> None:
    """Top-level lists, nested errors, JSON inside text, Python literals inside text (step 2)."""
    verdict = classify(status=400, body=body if isinstance(body, str) else json.dumps(body).encode())
    assert (verdict.kind, verdict.limit, verdict.requested) == (Kind.CONTEXT_WINDOW_EXCEEDED, 200000, 210000)


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"loc": ["body"], "msg": "Input should be a valid list", "type": "list_type", "input": TEXT}]},
        {"detail": [{"msg": "Field required", "input": {"messages": [{"content": TEXT}]}, "ctx": {"error": TEXT}}]},
        {"error": {"message": "Invalid request", "body": {"messages": [{"content": TEXT}]}}},
        {"error": {"message": "messages.2: tool_use ids without tool_result", "ctx": {"error": TEXT}}},
        {"error": {"message": "Invalid JSON: " + json.dumps({"messages": [{"role": "user", "content": TEXT}]})}},
        {"error": {"message": "Bad request: {'role': 'user', 'content': '" + TEXT + "'}"}},
        {"error": {"message": 'Bad request: {"messages": [{"content": "' + TEXT + '"}, {"content": "cut of'}},
        {"error": {"message": f'1 validation error\n [type=literal_error, input_value="{TEXT}", input_type=str]'}},
        {"error": {"message": f"1 validation error\n [type=x, input_value={{'content': '{TEXT}'}}, input_type=dict]"}},
        {"error": {"message": f"Invalid value: '{TEXT}'. Supported values are: 'a', 'b'"}},
        {"error": {"message": "Failed to parse tool call arguments", "failed_generation": TEXT}},
        {"error": {"message": "Invalid request"}, "request": {"prompt": TEXT}},
    ],
)
def test_what_was_only_echoed_is_not_read(body: object) -> None:
    """A validation error may repeat a request that speaks of overflows (step 3)."""
    assert classify(status=400, body=body).kind is Kind.OTHER


def test_nothing_is_read_below_six_levels() -> None:
    """A bound on what a hostile body can cost."""
    body: object = {"message": TEXT}
    for _ in range(5):
        body = {"error": body}
    assert classify(status=400, body=body).kind is Kind.CONTEXT_WINDOW_EXCEEDED
    assert classify(status=400, body={"error": {"error": body}}).kind is Kind.OTHER


def test_codes_numbers_and_statuses_are_gathered() -> None:
    """llama.cpp gives its counts as fields."""
    evidence = Evidence()
    gather({"error": {"code": 400, "type": "x", "message": "m", "n_ctx": 8192, "n_prompt_tokens": 9000}}, evidence, 0)
    assert (evidence.texts, evidence.inner_status) == (["m"], 400)
    assert evidence.codes == [("code", "400"), ("type", "x")]
    assert evidence.numbers == {"limit": 8192, "requested": 9000}


def test_folding_brings_texts_into_one_form() -> None:
    """Case, white space, quotes, thousands separators, typographic apostrophes, prefixes that are no subject."""
    assert (
        fold("The  model\u2019s\n`max`: 1,048,576 tokens \\u003e 256_000") == "the model's max: 1048576 tokens > 256000"
    )
    assert fold("Input validation error: [1, 983616] 1.048.576") == "[1, 983616] 1048576"
    assert fold("used 9,000 of 8,192, 1 of 3, 100 out of 500") == "used 9000 > 8192, 1 of 3, 100 out of 500"
    assert len(fold("x" * 1_000_000)) < 9_000


def test_traditional_characters_are_read_as_simplified_ones() -> None:
    """But not in Japanese, which its kana tell: its own patterns know its spellings."""
    assert fold("請求的內容長度超過上限") == "请求的内容长度超过上限"
    assert fold("入力が長すぎます") == "入力が長すぎます"


@pytest.mark.filterwarnings("error")
def test_a_literal_in_a_text_warns_nobody() -> None:
    """Python would quote the upstream's text on standard error."""
    evidence = Evidence()
    gather({"message": "Error: {'message': 'see C:\\docs', 'code': 'x'}"}, evidence, 0)
    assert evidence.codes == [("code", "x")]


@pytest.mark.parametrize(
    "run", ["9" * 9_000, "token" * 1_800, "max_" * 2_000, ("token" * 40 + " ") * 40, "токен" * 1_800]
)
def test_an_endless_word_makes_no_search_slow(run: str) -> None:
    """The event loop waits for the verdict: before words were cut, these took one to four seconds."""
    began = time.process_time()
    assert classify(status=400, body={"error": {"message": run}}).kind is Kind.OTHER
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", True),
        ("  ", True),
        ("<html>too long</html>", True),
        ("<!DOCTYPE html>", True),
        (None, True),
        ({}, True),
        ("no", False),
        ({"a": 1}, False),
    ],
)
def test_pages_for_people_say_nothing(value: object, expected: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """An nginx page or an empty body is no evidence."""
    assert is_empty_or_html(value) is expected


def test_a_body_is_parsed_where_it_is_json() -> None:
    """Byte order marks, raw newlines in strings, text that only looks like JSON."""
    assert parse(b'\xef\xbb\xbf {"a": "b\nc"}\r\n') == {"a": "b\nc"}
    assert parse("{not json") == "{not json"
    assert parse({"a": 1}) == {"a": 1}
