"""Bodies no client should send to Responses and Messages: their conversations, and what can be wrong only there."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from tests.e2e.bodies import CHAT, WORDS, Corpus, Json, has_role, odd, put, spelt

__all__ = ["CORPORA", "MESSAGES", "RESPONSES"]

_MARK = {"cache_control": {"type": "ephemeral"}}
_PNG = "data:image/png;base64,AAAA"


# -- Responses --------------------------------------------------------------------------------------------------------


def _response_step(number: int) -> list[Json]:
    call = {"id": f"f{number}", "call_id": f"c{number}", "name": "read", "arguments": '{"path":"a.py"}'}
    return [
        {"type": "function_call", **call, "status": "completed"},
        {"type": "function_call_output", "call_id": f"c{number}", "output": f"{number} {WORDS * 120}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Step {number}."}]},
        {"role": "user", "content": f"Go on with {number}. {WORDS * 120}"},
    ]


_RESPONSE: Json = {
    "model": "hostile-1",
    "instructions": "You are careful.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend it."}], "name": "one"},
        {
            "type": "reasoning",
            "id": "r1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "E",
        },
        *(item for number in range(1, 5) for item in _response_step(number)),
        {"type": "custom_tool_call", "call_id": "k", "name": "patch", "input": "*** Begin", "id": "ct"},
        {"type": "custom_tool_call_output", "call_id": "k", "output": [{"type": "input_text", "text": "done"}]},
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "computer_call", "call_id": "cc", "action": {"type": "click", "x": 1}, "pending_safety_checks": []},
        {
            "type": "computer_call_output",
            "call_id": "cc",
            "output": {"type": "computer_screenshot", "image_url": _PNG},
        },
        {"type": "mcp_approval_request", "id": "ma", "name": "n", "server_label": "s", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "ma", "approve": True},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "And this."},
                {"type": "input_image", "image_url": _PNG, "detail": "low"},
            ],
        },
    ],
    "stream": False,
    "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "max_output_tokens": 10,
    "temperature": 1.0,
    "n": 1,
    "include": ["reasoning.encrypted_content"],
    "metadata": {"user_id": '{"session_id":"s"}', "session_id": "s"},
    "client_metadata": {"thread_id": "t"},
    "user": "u",
    "prompt_cache_key": "k",
    "store": False,
}
_INPUT: list[Json] = _RESPONSE["input"]


def _with(*items: object, before: int = 6) -> bytes:
    """The conversation with other items in its head."""
    return spelt({**_RESPONSE, "input": [*_INPUT[:before], *items, *_INPUT[before:]]})


def _untouched_responses() -> Iterator[tuple[str, bytes]]:
    """No list of items, or a history that lies elsewhere: passed on, once."""
    whole = spelt(_RESPONSE)
    for value in ('"Mend it."', "7", "null", "true", "{}", '{"0":{"role":"user","content":"a"}}'):
        yield f"input is {value}", whole.replace(spelt(_INPUT), value.encode())
    for item in (
        "null",
        "7",
        '"text"',
        "[]",
        "{}",
        '{"type":null}',
        '{"type":""}',
        '{"type":"message"}',
        '{"role":""}',
    ):
        yield f"an item is {item}", whole.replace(spelt(_INPUT[1]), item.encode())
    yield "no model", spelt({key: value for key, value in _RESPONSE.items() if key != "model"})
    yield "no input", spelt({key: value for key, value in _RESPONSE.items() if key != "input"})
    yield "only a prompt by id", spelt({"model": "hostile-1", "prompt": {"id": "pmpt_1", "variables": {"a": "b"}}})
    yield "messages instead of input", whole.replace(b'"input":', b'"messages":', 1)
    for value in ('"resp_1"', "7", "{}", "[]", "false", '""'):
        for key in ("previous_response_id", "conversation"):
            yield f"{key} is {value}", whole[:-1] + b', "%s": %s}' % (key.encode(), value.encode())
    yield "a conversation by its object", spelt({**_RESPONSE, "conversation": {"id": "conv_1"}})
    yield "a reference to an item", _with({"type": "item_reference", "id": "f1"})
    yield "a reference to an item without its id", _with({"type": "item_reference"})


def _own_responses() -> Iterator[tuple[str, bytes]]:
    call, output, thought = _INPUT[3], _INPUT[4], _INPUT[2]
    for value in (7, None, "", [], {}, True, "c1", "\x00", "x" * 10_000):
        yield f"call_id of a call is {value!r:.20}", _with({**call, "call_id": value})
        yield f"call_id of an output is {value!r:.20}", _with({**output, "call_id": value})
        yield f"call_id of both is {value!r:.20}", _with({**call, "call_id": value}, {**output, "call_id": value})
    yield "an output before its call", _with({**output, "call_id": "z"}, {**call, "call_id": "z"})
    yield "a call twice", _with(call, call)
    yield "an output twice", _with(output, output)
    yield (
        "outputs in another order",
        _with(*({**call, "call_id": name} for name in "xyz"), *({**output, "call_id": name} for name in "zxy")),
    )
    yield "a hundred parallel calls, one answered", _with(*({**call, "call_id": f"p{n}"} for n in range(100)), output)
    for at in (0, 1, 4, 5, len(_INPUT)):
        yield f"reasoning at {at}", _with(thought, before=at)
    yield "reasoning ten times in a row", _with(*[thought] * 10)
    yield "nothing but reasoning", spelt({**_RESPONSE, "input": [thought] * 5})
    yield "reasoning without its seal", _with({"type": "reasoning", "summary": []})
    yield from ((f"a summary of {value}", body) for value, body in odd(_RESPONSE, ("input", 2, "summary")))
    yield from ((f"a seal of {value}", body) for value, body in odd(_RESPONSE, ("input", 2, "encrypted_content")))
    yield "a megabyte of seal", spelt(put(_RESPONSE, ("input", 2, "encrypted_content"), "A" * 1_000_000))
    for kind in ("", "x", "message ", "function_call_output_output", "_call", "_output", "reasoning_call"):
        yield f"type {kind!r}", _with({"type": kind, "role": "user"})
        yield f"type {kind!r} with a call_id", _with({"type": kind, "role": "user", "call_id": "c9"})
    yield from ((f"output {value}", body) for value, body in odd(_RESPONSE, ("input", 4, "output")))
    yield from (
        (f"a part of an output {value}", body)
        for value, body in odd(put(_RESPONSE, ("input", 4, "output"), [0]), ("input", 4, "output", 0))
    )
    yield (
        "outputs inside outputs",
        spelt(put(_RESPONSE, ("input", 4, "output"), [[["x"]], {"output": [{"output": "x"}]}])),
    )
    yield "a compaction amid", _with({"type": "compaction", "id": "cmp", "encrypted_content": "E"})
    yield "compactions only", spelt({**_RESPONSE, "input": [{"type": "compaction", "encrypted_content": "E"}] * 9})
    yield "a trigger amid", _with({"type": "compaction_trigger"})
    yield "a trigger at the end", _with({"type": "compaction_trigger"}, before=len(_INPUT))
    yield "an approval nobody asked for", _with({"type": "mcp_approval_response", "approval_request_id": "zz"})
    yield "instructions in a list", spelt({**_RESPONSE, "instructions": [_INPUT[1]]})
    yield "a prompt by id beside", spelt({**_RESPONSE, "prompt": {"id": "pmpt_1", "version": 7}})
    yield "a role and a call in one", _with({**call, "role": "user", "content": "a"})
    yield "an empty message", _with({"type": "message", "role": "user", "content": []})
    yield "ids that stand twice", _with({**call, "call_id": "new"}, {**output, "call_id": "new"})


# -- Messages ---------------------------------------------------------------------------------------------------------


def _message_step(number: int) -> list[Json]:
    call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": "a.py"}}
    thought = {"type": "thinking", "thinking": f"hm {number}", "signature": "S"}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number} {WORDS * 120}"}
    return [
        {"role": "assistant", "content": [thought, {"type": "text", "text": f"Step {number}."}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": f"Done with {number}."},
        {"role": "user", "content": f"Go on with {number}. {WORDS * 120}"},
    ]


_MESSAGE: Json = {
    "model": "hostile-1",
    "system": [{"type": "text", "text": "You are careful.", **_MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Mend it."}], "name": "one"},
        *(message for number in range(1, 5) for message in _message_step(number)),
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "E"},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]},
                {"type": "tool_use", "id": "x1", "name": "read", "input": {}},
                {"type": "tool_use", "id": "x2", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "x2",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no"}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "x1",
                    "content": [{"type": "image", "source": {"data": "AAAA"}}],
                },
                {"type": "text", "text": "Both."},
            ],
        },
        {"role": "assistant", "content": "Fine."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this.", **_MARK},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ],
        },
    ],
    "stream": False,
    "tools": [{"name": "read", "input_schema": {"type": "object"}, **_MARK}],
    "tool_choice": {"type": "auto"},
    "max_tokens": 10,
    "temperature": 1.0,
    "n": 1,
    "stop_sequences": ["x"],
    "thinking": {"type": "enabled", "budget_tokens": 5},
    "metadata": {"user_id": '{"session_id":"s"}', "session_id": "s"},
    "user": "u",
    "service_tier": "auto",
}
_TALK: list[Json] = _MESSAGE["messages"]


def _saying(role: str, content: object, before: int = 4) -> bytes:
    """The conversation with another message in its head."""
    said = {"role": role, "content": content}
    return spelt({**_MESSAGE, "messages": [*_TALK[:before], said, *_TALK[before:]]})


def _untouched_messages() -> Iterator[tuple[str, bytes]]:
    whole = spelt(_MESSAGE)
    for value in ('"Mend it."', "7", "null", "{}", '{"role":"user","content":"a"}'):
        yield f"messages is {value}", whole.replace(spelt(_TALK), value.encode())
    for item in (
        "null",
        "7",
        '"text"',
        "[]",
        "{}",
        '{"content":"a"}',
        '{"role":null}',
        '{"role":""}',
        '{"role":["user"]}',
    ):
        yield f"a message is {item}", whole.replace(spelt(_TALK[0]), item.encode())
    for key in ("model", "messages"):
        yield f"no {key}", spelt({name: value for name, value in _MESSAGE.items() if name != key})
    yield "input instead of messages", whole.replace(b'"messages":', b'"inputs":', 1)
    yield "a model of another type", whole.replace(b'"hostile-1"', b'{"id":"hostile-1"}')


def _own_messages() -> Iterator[tuple[str, bytes]]:
    thought, _, use = _TALK[1]["content"]
    (result,) = _TALK[2]["content"]
    text = {"type": "text", "text": "a"}
    for system in ("You are careful.", 7, {}, [[]], ["a"], [text] * 100, [{"type": "text", "text": "", **_MARK}], None):
        yield f"system is {system!r:.40}", spelt({**_MESSAGE, "system": system})
    for value in (7, None, "", [], {}, "c1", "\x00"):
        yield f"id of a call is {value!r}", _saying("assistant", [{**use, "id": value}])
        yield f"tool_use_id is {value!r}", _saying("user", [{**result, "tool_use_id": value}])
    yield "a call without its id", _saying("assistant", [{"type": "tool_use", "name": "read", "input": {}}])
    yield "a result without its id", _saying("user", [{"type": "tool_result", "content": "x"}])
    yield "a call twice", _saying("assistant", [use, use])
    yield "a result twice", _saying("user", [result, result])
    yield "a result behind text", spelt(put(_MESSAGE, ("messages", 2, "content"), [text, result]))
    yield "a result of the assistant", _saying("assistant", [result])
    yield "a call of the user", _saying("user", [use])
    yield "a call of the system", _saying("system", [use])
    yield "half of the results", spelt(put(_MESSAGE, ("messages", 18, "content"), [{**result, "tool_use_id": "x1"}]))
    for name, content in {
        "a list in a list": [["x"], [["y"]]],
        "a result in a result": [{**result, "content": [{**result, "content": "x"}]}],
        "a call in a result": [use],
        "texts of no text": [{"type": "text"}, {"type": "text", "text": 7}, {"type": "text", "text": None}],
        "a list of strings": ["x", "y"],
        "an object": {"type": "text", "text": "x"},
        "a number": 7,
        "nothing": None,
        "an empty list": [],
        "a document": [{"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}],
        "5,000 texts": [text] * 5_000,
    }.items():
        yield f"a result of {name}", spelt(put(_MESSAGE, ("messages", 2, "content", 0, "content"), content))
        yield f"content of {name}", _saying("user", content)
        yield f"an assistant's content of {name}", _saying("assistant", content)
    for name, block in {
        "without its signature": {"type": "thinking", "thinking": "hm"},
        "without text": {"type": "thinking", "signature": "S"},
        "of another type": {"type": "thinking", "thinking": {}, "signature": []},
        "redacted without data": {"type": "redacted_thinking"},
        "redacted, of another type": {"type": "redacted_thinking", "data": {}},
    }.items():
        yield f"thinking {name}", _saying("assistant", [block, text])
        yield f"thinking {name}, of the user", _saying("user", [block, text])
        yield f"thinking {name}, alone", _saying("assistant", [block])
    yield "thinking behind a call", _saying("assistant", [text, use, thought])
    for kind in (None, 7, [], {}, "", "x", "tool_use ", "text\x00", "server_tool_use", "web_search_tool_result"):
        yield f"a block of type {kind!r}", _saying("assistant", [{"type": kind, "id": "q", "text": "x", "input": {}}])
    for role in ("assistant", "system", "tool", "developer", "x"):
        yield (
            f"two of {role} at the beginning",
            spelt({**_MESSAGE, "messages": [{"role": role, "content": "a"}] * 2 + _TALK}),
        )
        yield f"{role} at the end", _saying(role, "a", before=len(_TALK))
    yield "marks on everything", spelt(_marked(_MESSAGE))
    yield "a mark on a message", spelt(put(_MESSAGE, ("messages", 0, "cache_control"), {"type": "ephemeral"}))
    yield from (
        (f"a mark of {value}", body) for value, body in odd(_MESSAGE, ("messages", 0, "content", 0, "cache_control"))
    )
    yield "an empty text with a mark", _saying("user", [{"type": "text", "text": "", **_MARK}])
    yield "a compaction amid", _saying("assistant", [{"type": "compaction", "content": "c", **_MARK}])
    for edits in ([], [{}], ["x"], [{"type": "clear_thinking_20251015"}], [{"type": "compact_20260112"}], {}, 7):
        yield f"edits {edits!r}", spelt({**_MESSAGE, "context_management": {"edits": edits}})
    yield "no max_tokens", spelt({key: value for key, value in _MESSAGE.items() if key != "max_tokens"})
    yield from ((f"thinking of {value}", body) for value, body in odd(_MESSAGE, ("thinking", "budget_tokens")))


def _marked(body: Json) -> Json:
    """A mark on every block of every list there is."""
    made = copy.deepcopy(body)
    for blocks in (made["system"], made["tools"], *(one["content"] for one in made["messages"])):
        for block in blocks if isinstance(blocks, list) else ():
            block.update(_MARK)
    return made


RESPONSES = Corpus(
    name="responses",
    path=b"/v1/responses",
    field="input",
    conversation=_RESPONSE,
    first=1,
    call=3,
    alike=range(7, 19),
    role=(b'"type": "message", "role": "', b"assistant", b'", "content"'),
    result=b'"call_id": "c1", "output"',
    arguments=b'{\\"path\\":\\"a.py\\"}',
    keys=("role", "content", "type", "call_id", "output"),
    parts=("input", 1, "content"),
    handed=("input", 3, "arguments"),
    calls=("input",),
    one=("input", 3),
    is_item=lambda item: has_role(item) or (isinstance(item.get("type"), str) and item["type"] not in ("", "message")),
)
MESSAGES = Corpus(
    name="messages",
    path=b"/v1/messages?beta=true",
    field="messages",
    conversation=_MESSAGE,
    first=0,
    call=1,
    alike=range(5, 17),
    role=(b'"role": "', b"assistant", b'", "content": "Done'),
    result=b'"tool_use_id": "c1"',
    arguments=b'{"path": "a.py"}',
    keys=("role", "content", "type"),
    parts=("messages", 0, "content"),
    handed=("messages", 1, "content", 2, "input"),
    calls=("messages", 1, "content"),
    one=("messages", 1, "content", 2),
    is_item=has_role,
)
_RESPONSES_PASSED, _MESSAGES_PASSED = dict(_untouched_responses()), dict(_untouched_messages())
RESPONSES = replace(
    RESPONSES, own={**_RESPONSES_PASSED, **dict(_own_responses())}, untouched=frozenset(_RESPONSES_PASSED)
)
MESSAGES = replace(MESSAGES, own={**_MESSAGES_PASSED, **dict(_own_messages())}, untouched=frozenset(_MESSAGES_PASSED))
CORPORA = (CHAT, RESPONSES, MESSAGES)
