"""The judge of the real clients' traffic: what it passes, and each thing it must not pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.validity import problem
from tests.e2e.apis import APIS, Api

Json = dict[str, Any]


def _said(role: str, content: Any, **more: Any) -> Json:
    return {"role": role, "content": content, **more}


_CALL = {"id": "c1", "type": "function", "function": {"name": "read_page", "arguments": "{}"}}
_ASKS = _said("assistant", None, tool_calls=[_CALL])
_GIVES = _said("tool", "text", tool_call_id="c1")
_CALLS = {"type": "function_call", "call_id": "c1", "name": "read_page", "arguments": "{}"}
_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "text"}
_THOUGHT = {"type": "reasoning", "id": "r1", "summary": []}
_USES = _said("assistant", [{"type": "tool_use", "id": "c1", "name": "read_page", "input": {}}])
_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "text"}
_TEXT = {"type": "text", "text": "go on"}
_MARKED = {**_TEXT, "cache_control": {"type": "ephemeral"}}
_USER = _said("user", "go on")


def test_a_whole_conversation_of_each_api_passes() -> None:
    """System text, parallel calls, reasoning, late remarks: nothing is found."""
    for api in APIS:
        _passes(api)


def _passes(api: Api) -> None:
    assert problem(api.name, api.body("m", api.history(5), stream=False)) is None


@pytest.mark.parametrize(
    ("name", "items", "found"),
    [
        ("chat", [], "no messages"),
        ("chat", [_USER, _GIVES], "a result without a call"),
        ("chat", [_USER, _ASKS, _USER], "calls without results"),
        ("chat", [_USER, _ASKS], "the last calls have no results"),
        ("chat", [_USER, _ASKS, _GIVES, _ASKS, _GIVES], "used twice"),
        ("chat", [_said("user", "")], "empty"),
        ("chat", [_said("friend", "go on")], "role friend"),
        ("responses", [], "no input"),
        ("responses", [_USER, _OUTPUT], "an output without a call"),
        ("responses", [_USER, _CALLS], "calls without outputs"),
        ("responses", [_CALLS, _OUTPUT, _CALLS, _OUTPUT], "used twice"),
        ("responses", [_THOUGHT, _USER], "reasoning without the item"),
        ("responses", [_said("user", [])], "empty"),
        ("responses", [{"type": "unheard_of"}], "type unheard_of"),
        ("messages", [], "no messages"),
        ("messages", [_said("assistant", "hello")], "not the user's"),
        ("messages", [_USER, _USES, _USER], "1 calls before it, 0 results"),
        ("messages", [_USER, _USES], "the last calls have no results"),
        ("messages", [_said("user", [_RESULT])], "0 calls before it, 1 results"),
        ("messages", [_USER, _USES, _said("user", [_TEXT, _RESULT])], "a result after other content"),
        ("messages", [_said("user", [{"type": "text", "text": " "}])], "empty"),
        ("messages", [_said("user", [_MARKED] * 5)], "5 cache marks"),
    ],
)
def test_what_an_upstream_would_reject_is_found(name: str, items: list[Json], found: str) -> None:
    """One broken conversation for each rule."""
    field = "input" if name == "responses" else "messages"
    assert found in str(problem(name, {field: items, "max_tokens": 1}))
