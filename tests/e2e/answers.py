"""What upstreams say, by name: overflows in every shape, what is none, and overflows after content has gone out."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import brotli

from tests.e2e.deliveries import JSON, WINDOW, Answer, Header, delta, says, streams

ROLE = delta(role="assistant", content="")
USAGE = {"id": "r", "choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 0}}
FULL = {"prompt_tokens": WINDOW - 50, "completion_tokens": 0, "total_tokens": WINDOW - 50}
SENTENCE = "request (14225 tokens) exceeds the available context size (8192 tokens), try increasing it"
TEXT = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
NO_NUMBERS = "Your input exceeds the context window of this model. Please adjust your input and try again."
CODE = {"error": {"message": "zu lang — 上下文", "type": "invalid_request_error", "code": "context_length_exceeded"}}
ENVELOPE = {"error": {"message": TEXT, "type": "invalid_request_error", "param": "messages", "code": None}}
#: What clients go by after a refusal, and what no client knows.
HINTS: tuple[Header, ...] = (
    (b"x-should-retry", b"false"),
    (b"Retry-After", b"7"),
    (b"retry-after-ms", b"7000"),
    (b"x-request-id", b"req_1"),
    (b"X_Under", b"score"),
    (b"x-twice", b"1"),
    (b"X-Twice", b"2"),
)


def _plain(answer: Answer, kind: bytes, status: int = 0) -> Answer:
    """The same under another content type, or (empty) none, and perhaps with another status."""
    rest = tuple(header for header in answer.headers if header[0].lower() != b"content-type")
    headers = ((b"Content-Type", kind), *rest) if kind else rest
    return replace(answer, headers=headers, status=status or answer.status)


GOOD = says(
    {
        "id": "r1",
        "note": "上",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "aye"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 250, "completion_tokens": 1, "total_tokens": 251},
    }
)
GOOD_STREAM = streams(": hello", ROLE, delta(content="aye 上"), delta("stop"), USAGE, end="\r\n", done=True)


def _whole(reason: str, usage: object = None) -> Answer:
    message = {"role": "assistant", "content": ""}
    return says({"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage})


#: An overflow that comes before any content, as a refusal or as JSON inside a 200.
REFUSED = {
    "400 with a code": says(CODE, 400, *HINTS),
    "400 with numbers": says(ENVELOPE, 400, *HINTS),
    "400 of llama.cpp": says(
        {
            "error": {
                "code": 400,
                "message": SENTENCE,
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14225,
                "n_ctx": 8192,
            }
        },
        400,
    ),
    "400 as text": _plain(says(f"Error: {NO_NUMBERS}", 400), b"text/plain"),
    "400 without a content type": _plain(says(CODE, 400), b""),
    "400 as events": _plain(streams("event: error\n" + f"data: {json.dumps(CODE)}"), b"text/event-stream", 400),
    "400 encoded twice before": replace(
        says(CODE, 400),
        body=gzip.compress(brotli.compress(json.dumps(CODE).encode()), mtime=0),
        headers=(*JSON, (b"Content-Encoding", b"br, x-gzip")),
    ),
    "401 of Kimi": says(
        {"error": {"type": "authentication_error", "message": "k3-256k supports only 256K context."}}, 401
    ),
    "404 of an MLX proxy": says({"error": {"message": TEXT}}, 404),
    "413 of GitHub Models": says(
        {
            "error": {
                "code": "tokens_limit_reached",
                "message": "Request body too large for m model. Max size: 8000 tokens.",
            }
        },
        413,
        *HINTS,
    ),
    "422 of TGI": says(
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. "
            "Given: 8100 `inputs` tokens and 151 `max_new_tokens`",
            "error_type": "validation",
        },
        422,
    ),
    "429 of a gateway": says({"error": {"message": "Your input exceeds the model's context window."}}, 429, *HINTS),
    "500 of LocalAI": says({"error": {"code": 500, "message": f"rpc error: {SENTENCE}", "type": ""}}, 500),
    "503 of LiteLLM": says(
        {"error": {"message": f"litellm.ContextWindowExceededError: {NO_NUMBERS}", "code": "503"}}, 503, *HINTS
    ),
    "JSON error in a 200": says(CODE),
    "list of one error in a 200": says([ENVELOPE]),
    "flat error in a 200": says({"object": "error", "message": TEXT, "type": "BadRequestError", "code": 400}),
    "error_message in a 200": says({"choices": None, "error_type": "validation", "error_message": json.dumps(CODE)}),
    "error_type and message in a 200": says({"choices": None, "error_type": "validation_error", "message": TEXT}),
    "base_resp in a 200": says(
        {"id": "0", "choices": None, "base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}
    ),
    "detail in a 200": says({"detail": NO_NUMBERS}),
    "Response.Error in a 200": says({"Response": {"Error": {"Code": "InvalidParameter", "Message": "输入过长"}}}),
    "header.code in a 200": says({"header": {"code": 10907, "message": "token数量超过上限", "sid": "s", "status": 2}}),
    "bare message in a 200": says({"message": "Input is too long for requested model."}),
    "error in a 200 without a content type": _plain(says(CODE), b""),
    "error in a 200 as text": _plain(says(CODE), b"text/plain; charset=utf-8"),
    "error in a 200 called a stream": _plain(says(CODE), b"text/event-stream"),
    "finish reason in a 200": _whole("model_context_window_exceeded"),
    "empty length in a 200, window full": _whole("length", FULL),
}

_BEFORE = (": OPENROUTER PROCESSING", "retry: 3000", ROLE, USAGE, ": ping 上")
#: The same inside a stream.
STREAMED = {
    "error frame first": streams(CODE),
    "error frame after what commits nothing": streams(*_BEFORE, ENVELOPE),
    "error frame with CRLF": streams(*_BEFORE, ENVELOPE, end="\r\n", done=True),
    "error frame with CR": streams(*_BEFORE, CODE, end="\r"),
    "error frame, no blank line": replace(streams(ROLE, CODE), body=streams(ROLE, CODE).body.rstrip(b"\n")),
    "error frame over several lines": streams(
        "\n".join(f"data: {line}" for line in json.dumps(CODE, indent=1).split("\n"))
    ),
    "error event": streams(ROLE, "event: error\n" + f"data: {json.dumps({'message': TEXT})}"),
    "error event as text": streams(ROLE, f"event: error\ndata: {NO_NUMBERS}"),
    "error event in two lines": streams("event: error\ndata: Error: This request was refused\ndata: " + NO_NUMBERS),
    "legacy error field": streams("error: " + json.dumps({"code": 500, "message": SENTENCE})),
    "error chunk with choices": streams(
        ROLE, {**CODE, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}
    ),
    "flat error frame": streams({"message": TEXT, "type": "invalid_request_error", "code": 400, "object": "error"}),
    "choices null and error_message": streams(
        ROLE, {"choices": None, "error_type": "validation_error", "error_message": json.dumps(ENVELOPE)}
    ),
    "list of one error frame": streams([ENVELOPE]),
    "header.code frame": streams({"header": {"code": 10907, "message": "token数量超过上限", "status": 2}}),
    "bare message frame": streams({"message": "Input is too long for requested model."}),
    "text as a delta, then the error": streams(
        ROLE, delta(content=SENTENCE), {"error": {"code": 500, "message": SENTENCE}}
    ),
    "text as a delta, then the end": streams(
        delta(role="assistant", content=f"Error: {SENTENCE}."), delta("stop"), done=True
    ),
    "text as a delta, then nothing": streams(delta(content=SENTENCE)),
    "finish reason": streams(*_BEFORE, delta("model_context_window_exceeded"), done=True),
    "empty length, window full": streams(ROLE, {**delta("length"), "usage": FULL}, done=True),
    "empty length, usage behind it": streams(ROLE, delta("length"), {**USAGE, "usage": FULL}, done=True),
    "a stream called JSON": _plain(streams(*_BEFORE, CODE, done=True), b"application/json"),
    "a stream called text": _plain(streams(ROLE, CODE), b"text/plain"),
    "a stream called nothing": _plain(streams(ROLE, CODE), b""),
}

_RATE = {
    "error": {"message": "Request too large on tokens per min (TPM): Limit 30000, Requested 42389.", "type": "tokens"}
}
#: No overflow, or not ours to cure: handed on as it came, never asked again.
PASSED = {
    "429": says(_RATE, 429, *HINTS),
    "429 that speaks of tokens": says({"error": {"message": "Too many tokens, please wait"}}, 429, *HINTS),
    "413 for tokens per minute": says(_RATE, 413, *HINTS),
    "402 for credit": says({"error": {"message": "Prompt tokens limit exceeded: 230799 > 91442", "code": 402}}, 402),
    "400 of another kind": says({"error": {"message": "roles must alternate", "code": "invalid_prompt"}}, 400, *HINTS),
    "400 for the output": says({"error": {"message": "max_tokens is too large: 10000 > 4096"}}, 400),
    "400 that echoes": says({"detail": [{"msg": "Input should be 'user'", "input": TEXT, "loc": ["body", 0]}]}, 422),
    "413 page": _plain(says("<html><h1>413 Request Entity Too Large</h1></html>", 413), b"text/html"),
    "400 empty": says("", 400),
    "503 empty": says("", 503, *HINTS),
    "500 with a weak phrase": says({"error": {"message": "upstream said: prompt token too long"}}, 500, *HINTS),
    "504 with a strong phrase": says(
        CODE["error"]["message"] + "maximum context length: context deadline exceeded", 504
    ),
    "529": says({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529, *HINTS),
    "200": GOOD,
    "200 with a rate": says(_RATE, 200, *HINTS),
    "200 with a code of success": says({"header": {"code": 0, "message": "Success"}, "payload": {"text": TEXT}}),
    "200 that quotes": says(
        {"choices": [{"message": {"role": "assistant", "content": SENTENCE}, "finish_reason": "stop"}]}
    ),
    "200 cut short with content": says(
        {
            "choices": [{"message": {"content": "a"}, "finish_reason": "length"}],
            "usage": {**FULL, "completion_tokens": 1},
        }
    ),
    "200, more counted than the window holds": says(
        {**json.loads(GOOD.body), "usage": {"prompt_tokens": 11_000, "completion_tokens": 1}}
    ),
    "200, hardly anything counted": says(
        {**json.loads(GOOD.body), "usage": {"prompt_tokens": 400, "completion_tokens": 1}}
    ),
    "200 that is no JSON": says("{not json 上", 200),
    "200 empty": says("", 200),
    "200 of another type": _plain(says("上, said as text: " + TEXT, 200), b"text/plain"),
}
PASSED_STREAMS = {
    "stream": GOOD_STREAM,
    "stream with a rate": streams(*_BEFORE, _RATE, done=True),
    "stream that quotes": streams(
        ROLE, delta(content=SENTENCE), delta(content=" means that"), delta("stop"), done=True
    ),
    "stream, empty length": streams(ROLE, delta("length"), USAGE, done=True),
    "stream of an unknown event": streams("event: x-own\ndata: " + json.dumps({"about": TEXT}), done=True),
    "stream of nothing": streams(done=True),
    "stream called JSON": _plain(GOOD_STREAM, b"application/json"),
    "stream that is cut": replace(GOOD_STREAM, body=GOOD_STREAM.body[:150]),
}

_CONTENT = (ROLE, delta(content="The tide 上"))
#: An overflow behind content: it passes, and the next request of that transcript is packed first (rule 9.3).
AFTER_CONTENT = {
    "an error frame": streams(*_CONTENT, CODE, done=True),
    "an error frame and the end": streams(*_CONTENT, ENVELOPE, end="\r\n"),
    "an error event": streams(*_CONTENT, "event: error\ndata: " + json.dumps({"message": TEXT})),
    "a finish reason": streams(*_CONTENT, delta("model_context_window_exceeded"), done=True),
    "behind reasoning": streams(delta(reasoning_content="Hm"), {"choices": None, "error_message": TEXT}, done=True),
    "behind a tool call": streams(delta(tool_calls=[{"index": 0, "id": "t"}]), CODE),
    "header.code": streams(*_CONTENT, {"header": {"code": 10907, "message": "token数量超过上限"}}),
}
