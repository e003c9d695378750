"""Sessions as Claude Code has them on the wire, in the shape of the captures: no recording of it may be had.

What is known of it: `?beta=true`, its headers, ids in `metadata.user_id`, system text as blocks, side calls for titles
under the same id, a sub-agent, parallel results in one user message and a reminder behind them, signed thinking, cache
marks that move to the newest blocks, its own compaction under another system prompt.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Item = dict[str, Any]

PATH = "/v1/messages?beta=true"
_MARK = {"type": "ephemeral"}
#: How many of the newest user messages carry a mark.
_MARKED = 2


def _headers(session: str) -> list[list[str]]:
    named = {
        "Accept": "application/json",
        "X-Stainless-Retry-Count": "0",
        "X-Stainless-Timeout": "600",
        "X-Stainless-Lang": "js",
        "X-Stainless-Package-Version": "0.70.0",
        "X-Stainless-Runtime": "node",
        "anthropic-dangerous-direct-browser-access": "true",
        "anthropic-version": "2023-06-01",
        "x-app": "cli",
        "User-Agent": "claude-cli/2.1.197 (external, sdk-cli)",
        "X-Claude-Code-Session-Id": session,
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    }
    return [[name, value] for name, value in named.items()]


def _system(*texts: str) -> list[Item]:
    blocks = [{"type": "text", "text": text} for text in texts]
    return [*blocks[:-1], {**blocks[-1], "cache_control": _MARK}]


_OWN = _system(
    "You are Claude Code, Anthropic's official CLI for Claude.", "[text of 5200 characters, replaced; id c1a0de00]"
)
_TITLE = _system("Analyze if this message indicates a new conversation topic. Extract a 2-3 word title as JSON.")
_SUMMARISER = _system("You are a helpful AI assistant tasked with summarizing conversations.")
_HELPER = _system("You are an agent for Claude Code. Do what was asked, nothing more.")
_TOOLS = [
    {
        "name": name,
        "description": f"[text of 300 characters, replaced; id {name}]",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]},
    }
    for name in ("Read", "Grep", "Task")
]


def _text(text: str) -> Item:
    return {"type": "text", "text": text}


def _step(session: str, *, thinks: str) -> list[Item]:
    thought = {
        "thinking": {"type": "thinking", "thinking": "Two files will tell.", "signature": f"SIG{session}"},
        "redacted_thinking": {"type": "redacted_thinking", "data": f"DATA{session}"},
    }[thinks]
    calls = [
        {"type": "tool_use", "id": f"toolu_{session}_{at}", "name": "Read", "input": {"file_path": f"/p/{at}.py"}}
        for at in range(2)
    ]
    results = [
        {"tool_use_id": call["id"], "type": "tool_result", "content": "     1\timport os", "is_error": False}
        for call in calls
    ]
    reminder = _text("<system-reminder>\nThe todo list is empty.\n</system-reminder>")
    return [
        {"role": "assistant", "content": [thought, _text("I read both."), *calls]},
        {"role": "user", "content": [*results, reminder]},
        {"role": "assistant", "content": [{**thought}, _text("Both import os.")]},
    ]


def _request(session: str, messages: Sequence[Item], *, system: list[Item] = _OWN, **changes: object) -> Item:
    metadata = {"device_id": "d" * 16, "account_uuid": "", "session_id": session}
    body = {
        "model": "mock-model",
        "messages": list(messages),
        "system": system,
        "tools": _TOOLS,
        "metadata": {"user_id": json.dumps(metadata)},
        "max_tokens": 1_500,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
        **changes,
    }
    return {"method": "POST", "path": PATH, "headers": _headers(session), "body": body}


def _aside(session: str, messages: Sequence[Item], system: list[Item]) -> Item:
    """A call beside the session, under its id, without tools and thinking."""
    found = _request(session, messages, system=system, max_tokens=512, temperature=0)
    for field in ("tools", "thinking", "context_management"):
        del found["body"][field]
    return found


def _turns(session: str, task: str, *, thinks: str = "thinking") -> Iterator[list[Item]]:
    """The history as it stands when each of its four requests is made."""
    reminder = "<system-reminder>\nAs you answer, use this context: [text of 900 characters, replaced; id c1a0de01]\n"
    opening = [{"role": "user", "content": [_text(f"{reminder}</system-reminder>"), _text(task)]}]
    step = _step(session, thinks=thinks)
    second = {"role": "user", "content": "And what do they export?"}
    yield opening
    yield [*opening, *step[:2]]
    yield [*opening, *step, second]


def _titled() -> list[Item]:
    """A title call first, then a turn with a step, then another question."""
    session = "5f1d0c6e-0000-4000-8000-000000000001"
    title = _aside(session, [{"role": "user", "content": "What do the two modules import?"}], _TITLE)
    return [title, *(_request(session, items) for items in _turns(session, "What do the two modules import?"))]


def _delegating() -> list[Item]:
    """Thinking that is sealed; a sub-agent with a history of its own under the session's id."""
    session = "5f1d0c6e-0000-4000-8000-000000000002"
    first, *rest = _turns(session, "Compare the two modules.", thinks="redacted_thinking")
    helper = _request(session, [{"role": "user", "content": "Find all callers of both."}], system=_HELPER)
    return [_request(session, first), helper, *(_request(session, items) for items in rest)]


def _compacting() -> list[Item]:
    """Its own summary under another system prompt, then a history that begins with it."""
    session = "5f1d0c6e-0000-4000-8000-000000000003"
    turns = list(_turns(session, "Rename the exported function."))
    done = [*turns[-1], {"role": "assistant", "content": [_text("They export one function.")]}]
    asked = {"role": "user", "content": "Your task is to create a detailed summary of the conversation so far."}
    again = "This session is being continued from a previous conversation that ran out of context."
    return [
        *(_request(session, items) for items in turns),
        _aside(session, [*done, asked], _SUMMARISER),
        _request(session, [{"role": "user", "content": [_text(f"{again}\nA summary."), _text("Go on.")]}]),
    ]


SESSIONS: dict[str, Callable[[], list[Item]]] = {
    "claude-code-2.1_title_and_tools (generated)": _titled,
    "claude-code-2.1_subagent_thinking_shed (generated)": _delegating,
    "claude-code-2.1_own_compaction (generated)": _compacting,
}
#: Whose client sends the thinking of its newest step alone.
_SHEDS = "thinking_shed"


def as_sent(name: str, items: Sequence[Item]) -> list[Item]:
    """A history as the client spells it now: marks on the newest user messages, text as text elsewhere."""
    found = [copy.deepcopy(one) for one in items]
    if _SHEDS in name:
        newest = max((at for at, one in enumerate(found) if one["role"] == "assistant"), default=0)
        found = [one if at == newest else _without_thinking(one) for at, one in enumerate(found)]
    users = [one for one in found if one["role"] == "user"]
    for one in users:
        content = one["content"]
        if isinstance(content, list) and len(content) == 1 and content[0]["type"] == "text":
            one["content"] = content[0]["text"]
    for one in users[-_MARKED:]:
        blocks = [_text(one["content"])] if isinstance(one["content"], str) else one["content"]
        one["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": _MARK}]
    return found


def _without_thinking(one: Item) -> Item:
    if one["role"] != "assistant":
        return one
    return {**one, "content": [block for block in one["content"] if "thinking" not in block["type"]]}
