"""The three APIs as an agent and its upstream spell them: bodies, replies, refusals, and what an upstream rejects.

Everything here is written from the APIs' documentation and shares nothing with `proxy.dialects`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tests.e2e import agent
from tests.e2e.scribe import INSTRUCTION

Json = dict[str, Any]


class Api(ABC):
    """One API. `path` follows the base URL; `field` holds the conversation."""

    name: ClassVar[str]
    path: ClassVar[str]
    field: ClassVar[str]

    @abstractmethod
    def opening(self) -> list[Json]:
        """The task, and system text where that is an item."""

    @abstractmethod
    def step(self, number: int) -> list[Json]:
        """One step: reasoning, two parallel calls, their results, a closing sentence, the user's next words."""

    @abstractmethod
    def body(self, model: str, items: Sequence[Json], *, stream: bool) -> Json:
        """A request."""

    @abstractmethod
    def refusal(self, asked: int, limit: int) -> Json:
        """What the upstream says to a prompt that is too long (status 400)."""

    @abstractmethod
    def whole(self, text: str, prompt: int) -> Json:
        """A reply."""

    @abstractmethod
    def frames(self, text: str, prompt: int) -> Iterator[bytes]:
        """The same as a stream."""

    @abstractmethod
    def problem(self, body: Json) -> str | None:
        """Why the upstream would reject these items, None where it would not."""

    @abstractmethod
    def texts(self, item: Json) -> str:
        """All text of an item."""

    def history(self, steps: int) -> list[Json]:
        """The whole conversation after so many steps."""
        return [*self.opening(), *(item for number in range(1, steps + 1) for item in self.step(number))]

    def asks_for_summary(self, body: Json) -> bool:
        """Whether Carryon made this request itself."""
        return self.texts(body[self.field][-1]).startswith(INSTRUCTION)


def _output(number: int, call: str) -> str:
    return agent._source(number * 2 + (call == "b"), 1_500)


def _arguments(number: int, call: str) -> Json:
    return {"path": f"billing/module_{number}_{call}.py"}


class ChatApi(Api):
    """`/chat/completions`."""

    name, path, field = "chat", "/chat/completions", "messages"

    def opening(self) -> list[Json]:
        """System text and task."""
        return [{"role": "system", "content": agent.SYSTEM}, {"role": "user", "content": agent.TASK}]

    def step(self, number: int) -> list[Json]:
        """One step."""
        calls = [
            {
                "id": f"call_{number}_{call}",
                "type": "function",
                "function": {"name": "read_file", "arguments": json.dumps(_arguments(number, call))},
            }
            for call in "ab"
        ]
        results = [
            {"role": "tool", "tool_call_id": f"call_{number}_{call}", "content": _output(number, call)} for call in "ab"
        ]
        return [
            {"role": "assistant", "content": None, "reasoning_content": f"Thinking {number}.", "tool_calls": calls},
            *results,
            {"role": "assistant", "content": f"Module {number} is done."},
            {"role": "user", "content": f"Go on after module {number}."},
        ]

    def body(self, model: str, items: Sequence[Json], *, stream: bool) -> Json:
        """A request."""
        return {"model": model, "messages": list(items), "tools": agent.TOOLS, "stream": stream, "max_tokens": 100}

    def refusal(self, asked: int, limit: int) -> Json:
        """As OpenAI says it."""
        said = (
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in {asked} tokens."
        )
        return {
            "error": {
                "message": said,
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        }

    def whole(self, text: str, prompt: int) -> Json:
        """A reply."""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
        return {"id": "r", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": usage}

    def frames(self, text: str, prompt: int) -> Iterator[bytes]:
        """Three chunks and the end."""
        for delta, finish in (({"role": "assistant", "content": ""}, None), ({"content": text}, None), ({}, "stop")):
            yield _data({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        yield b"data: [DONE]\n\n"

    def problem(self, body: Json) -> str | None:
        """Results directly after their calls, every call answered."""
        waiting: set[str] = set()
        for item in body["messages"]:
            if item["role"] == "tool":
                if item["tool_call_id"] not in waiting:
                    return f"a result without its call: {item['tool_call_id']}"
                waiting.remove(item["tool_call_id"])
                continue
            if waiting:
                return f"calls without results: {waiting}"
            waiting = {call["id"] for call in item.get("tool_calls") or ()}
        return f"calls without results: {waiting}" if waiting else None

    def texts(self, item: Json) -> str:
        """Its content."""
        return item.get("content") or ""


class ResponsesApi(Api):
    """`/responses`."""

    name, path, field = "responses", "/responses", "input"

    def opening(self) -> list[Json]:
        """The task; system text is `instructions`."""
        return [_message("user", "input_text", agent.TASK)]

    def step(self, number: int) -> list[Json]:
        """One step."""
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{number}_{call}",
                "call_id": f"call_{number}_{call}",
                "name": "read_file",
                "arguments": json.dumps(_arguments(number, call)),
                "status": "completed",
            }
            for call in "ab"
        ]
        results = [
            {"type": "function_call_output", "call_id": f"call_{number}_{call}", "output": _output(number, call)}
            for call in "ab"
        ]
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"ENC{number}" * 20}
        after = {"type": "reasoning", "id": f"rt_{number}", "summary": [], "encrypted_content": f"END{number}" * 20}
        said = _message("assistant", "output_text", f"Module {number} is done.") | {"id": f"msg_{number}"}
        return [
            thought,
            *calls,
            *results,
            after,
            said,
            _message("user", "input_text", f"Go on after module {number}."),
        ]

    def body(self, model: str, items: Sequence[Json], *, stream: bool) -> Json:
        """A request as Codex makes it."""
        tools = [{"type": "function", **tool["function"]} for tool in agent.TOOLS]
        return {
            "model": model,
            "instructions": agent.SYSTEM,
            "input": list(items),
            "tools": tools,
            "stream": stream,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 100,
        }

    def refusal(self, asked: int, limit: int) -> Json:
        """As OpenAI says it."""
        said = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return {
            "error": {
                "message": said,
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }
        }

    def whole(self, text: str, prompt: int) -> Json:
        """A reply."""
        said = {"type": "message", "id": "msg_r", "role": "assistant", "status": "completed"}
        said["content"] = [{"type": "output_text", "text": text, "annotations": []}]
        usage = {"input_tokens": prompt, "output_tokens": 5, "total_tokens": prompt + 5}
        return {
            "id": "resp_r",
            "object": "response",
            "status": "completed",
            "model": "m-1",
            "output": [said],
            "usage": usage,
        }

    def frames(self, text: str, prompt: int) -> Iterator[bytes]:
        """Its events, numbered."""
        whole = self.whole(text, prompt)
        started = {**whole, "status": "in_progress", "output": [], "usage": None}
        (said,) = whole["output"]
        part = {"item_id": "msg_r", "output_index": 0, "content_index": 0}
        events: list[Json] = [
            {"type": "response.created", "response": started},
            {"type": "response.in_progress", "response": started},
            {"type": "response.output_item.added", "output_index": 0, "item": {**said, "content": []}},
            {
                "type": "response.content_part.added",
                **part,
                "part": {"type": "output_text", "text": "", "annotations": []},
            },
            {"type": "response.output_text.delta", **part, "delta": text},
            {"type": "response.output_text.done", **part, "text": text},
            {"type": "response.content_part.done", **part, "part": said["content"][0]},
            {"type": "response.output_item.done", "output_index": 0, "item": said},
            {"type": "response.completed", "response": whole},
        ]
        for number, event in enumerate(events):
            yield b"event: " + event["type"].encode() + b"\n" + _data({**event, "sequence_number": number})

    def problem(self, body: Json) -> str | None:
        """Calls and outputs paired, reasoning with the item it led to, and the other way round."""
        items = body["input"]
        waiting: set[str] = set()
        for at, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "function_call":
                waiting.add(item["call_id"])
            elif kind == "function_call_output":
                if item["call_id"] not in waiting:
                    return f"an output without its call: {item['call_id']}"
                waiting.remove(item["call_id"])
            elif kind == "reasoning":
                following = items[at + 1] if at + 1 < len(items) else {}
                if following.get("type") != "function_call" and following.get("role") != "assistant":
                    return f"reasoning without what it led to: {item['id']}"
            if kind == "function_call" and at and items[at - 1].get("type") == "function_call_output":
                return f"a call without its reasoning: {item['id']}"
        return f"calls without outputs: {waiting}" if waiting else None

    def texts(self, item: Json) -> str:
        """Its content or output."""
        content = item.get("content") or item.get("output") or ""
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class MessagesApi(Api):
    """`/messages`."""

    name, path, field = "messages", "/messages?beta=true", "messages"

    def opening(self) -> list[Json]:
        """The task; system text is `system`."""
        return [{"role": "user", "content": agent.TASK}]

    def step(self, number: int) -> list[Json]:
        """One step."""
        calls = [
            {
                "type": "tool_use",
                "id": f"toolu_{number}_{call}",
                "name": "read_file",
                "input": _arguments(number, call),
            }
            for call in "ab"
        ]
        results = [
            {"type": "tool_result", "tool_use_id": f"toolu_{number}_{call}", "content": _output(number, call)}
            for call in "ab"
        ]
        thought = {"type": "thinking", "thinking": f"Thinking {number}.", "signature": f"SIG{number}" * 9}
        said = {"type": "text", "text": f"Now module {number}."}
        return [
            {"role": "assistant", "content": [thought, said, *calls]},
            {"role": "user", "content": results},
            {"role": "assistant", "content": [{"type": "text", "text": f"Module {number} is done."}]},
            {"role": "user", "content": [{"type": "text", "text": f"Go on after module {number}."}]},
        ]

    def body(self, model: str, items: Sequence[Json], *, stream: bool) -> Json:
        """A request as Claude Code makes it."""
        tools = [
            {"name": one["function"]["name"], "description": "d", "input_schema": one["function"]["parameters"]}
            for one in agent.TOOLS
        ]
        system = [{"type": "text", "text": agent.SYSTEM, "cache_control": {"type": "ephemeral"}}]
        return {
            "model": model,
            "system": system,
            "messages": list(items),
            "tools": tools,
            "stream": stream,
            "max_tokens": 100,
        }

    def refusal(self, asked: int, limit: int) -> Json:
        """As Anthropic says it."""
        said = f"prompt is too long: {asked} tokens > {limit} maximum"
        return {"type": "error", "error": {"type": "invalid_request_error", "message": said}, "request_id": "req_1"}

    def whole(self, text: str, prompt: int) -> Json:
        """A reply."""
        usage = {"input_tokens": 10, "cache_read_input_tokens": prompt - 10, "output_tokens": 5}
        content = [{"type": "text", "text": text}]
        return {
            "id": "msg_r",
            "type": "message",
            "role": "assistant",
            "model": "m-1",
            "content": content,
            "stop_reason": "end_turn",
            "usage": usage,
        }

    def frames(self, text: str, prompt: int) -> Iterator[bytes]:
        """Its events."""
        whole = self.whole(text, prompt)
        events: list[Json] = [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
        for event in events:
            yield b"event: " + event["type"].encode() + b"\n" + _data(event)

    def problem(self, body: Json) -> str | None:
        """A user first; after a step all its results, first in the next message; no empty text."""
        merged: list[tuple[str, list[Json]]] = []
        for item in body["messages"]:
            content = (
                item["content"] if isinstance(item["content"], list) else [{"type": "text", "text": item["content"]}]
            )
            if merged and merged[-1][0] == item["role"]:
                merged[-1][1].extend(content)
            else:
                merged.append((item["role"], list(content)))
        if not merged or merged[0][0] != "user":
            return "the first message is not a user's"
        waiting: set[str] = set()
        for role, content in merged:
            if any(block["type"] == "text" and not block["text"].strip() for block in content):
                return "an empty text block"
            results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
            if set(results) != waiting or len(results) != len(waiting):
                return f"results {results} for calls {waiting}"
            if any(block["type"] != "tool_result" for block in content[: len(results)]):
                return "results that do not come first"
            waiting = {block["id"] for block in content if role == "assistant" and block["type"] == "tool_use"}
        return f"calls without results: {waiting}" if waiting else None

    def texts(self, item: Json) -> str:
        """Its text and the text of its results."""
        content = item["content"]
        if isinstance(content, str):
            return content
        return "".join(str(block.get("text") or block.get("content") or "") for block in content)


def _message(role: str, kind: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _data(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


APIS: tuple[Api, ...] = (ChatApi(), ResponsesApi(), MessagesApi())
