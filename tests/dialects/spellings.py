"""One conversation, spelt in each dialect: from the chat messages that the strategies draw."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from proxy.dialects.chat import CHAT
from proxy.dialects.form import Wire
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES
from tests.transcripts import Message

__all__ = ["DIALECTS", "in_messages", "in_responses"]


def in_responses(messages: Sequence[Message]) -> list[Message]:
    """Every call and result an item of its own, reasoning before each step."""
    return [item for at, message in enumerate(messages) for item in _items(at, message)]


def in_messages(messages: Sequence[Message]) -> list[Message]:
    """Results of neighbours in one user message, thinking before each step, system text as users' words."""
    found: list[Message] = []
    for message in messages:
        role, blocks = _blocks(message)
        if not blocks:
            continue
        results = all(block["type"] == "tool_result" for block in blocks)
        if results and found and found[-1]["content"][-1]["type"] == "tool_result":
            found[-1]["content"].extend(blocks)
        else:
            found.append({"role": role, "content": blocks})
    return found


def _items(at: int, message: Message) -> Iterator[Message]:
    role, text = message["role"], message.get("content") or ""
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": text}
        return
    if role != "assistant":
        yield {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        return
    calls = message.get("tool_calls", [])
    if calls or text:
        yield {"type": "reasoning", "id": f"rs_{at}", "summary": [], "encrypted_content": "SEALED"}
    if text:
        yield {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}
    for call in calls:
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _blocks(message: Message) -> tuple[str, list[Message]]:
    role, text = message["role"], message.get("content") or ""
    if role == "tool":
        return "user", [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
    if role != "assistant":
        return "user", [{"type": "text", "text": text}]
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", [])
    ]
    said = [{"type": "text", "text": text}] if text else []
    thought = [{"type": "thinking", "thinking": "hm", "signature": "S"}] if calls or said else []
    return role, [*thought, *said, *calls]


#: Each dialect with how a chat conversation is spelt in it.
DIALECTS: tuple[tuple[Wire, Callable[[Sequence[Message]], list[Message]]], ...] = (
    (CHAT, list),
    (RESPONSES, in_responses),
    (MESSAGES, in_messages),
)
