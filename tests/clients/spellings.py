"""How a model that may call tools speaks three APIs: what it reads of a request, what it answers, whole or streamed.

Written from the APIs' documentation; nothing of `proxy` is used.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.e2e.apis import ChatApi, MessagesApi, ResponsesApi

Json = dict[str, Any]

#: What Claude Code puts among its user's words.
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call."""

    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model says: text, or one call. `number` makes ids unique, `prompt` is the prompt's size in tokens."""

    model: str
    number: int
    prompt: int
    text: str = ""
    call: Call | None = None

    @property
    def completion(self) -> int:
        """Its own size in tokens."""
        return (len(self.text) + len(json.dumps(self.call.arguments) if self.call else "")) // 4 + 1


class Spelling(ABC):
    """One API."""

    name: ClassVar[str]
    field: ClassVar[str]

    @abstractmethod
    def newest(self, body: Json) -> tuple[str, str]:
        """Whose the newest item is (`user`, `tool` or another word) and its text."""

    @abstractmethod
    def results(self, body: Json) -> dict[str, str]:
        """The tool outputs by call id."""

    @abstractmethod
    def refusal(self, asked: int, limit: int) -> Json:
        """What it answers, with status 400, to a prompt that is too long."""

    @abstractmethod
    def invalid(self, problem: str) -> Json:
        """What it answers, with status 400, to a request that breaks its rules."""

    @abstractmethod
    def whole(self, reply: Reply, body: Json) -> Json:
        """The reply to a request that asks for no stream."""

    @abstractmethod
    def frames(self, reply: Reply, body: Json) -> Iterator[bytes]:
        """The same as server-sent events."""

    def tools(self, body: Json) -> set[str]:
        """The names of the tools it may call."""
        return {str((tool.get("function") or tool).get("name")) for tool in body.get("tools") or ()}


def said(content: object) -> str:
    """All text of a content, however it is spelt."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(said(part) for part in content)
    if isinstance(content, dict):
        return said(content.get("text") or content.get("content") or "")
    return ""


def _data(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _event(value: Json) -> bytes:
    return b"event: " + value["type"].encode() + b"\n" + _data(value)


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


class Chat(Spelling):
    """`/chat/completions`."""

    name, field = "chat", "messages"

    def newest(self, body: Json) -> tuple[str, str]:
        """The last message."""
        last = body["messages"][-1]
        return last["role"], said(last.get("content"))

    def results(self, body: Json) -> dict[str, str]:
        """Messages of the role `tool`."""
        return {one["tool_call_id"]: said(one["content"]) for one in body["messages"] if one["role"] == "tool"}

    def refusal(self, asked: int, limit: int) -> Json:
        """As OpenAI says it."""
        return ChatApi().refusal(asked, limit)

    def invalid(self, problem: str) -> Json:
        """As OpenAI says it."""
        return {"error": {"message": problem, "type": "invalid_request_error", "param": "messages", "code": None}}

    def whole(self, reply: Reply, body: Json) -> Json:
        """A completion."""
        choice = {"index": 0, "message": self._message(reply), "finish_reason": self._finish(reply), "logprobs": None}
        return {**self._head(reply, "chat.completion"), "choices": [choice], "usage": self._usage(reply)}

    def frames(self, reply: Reply, body: Json) -> Iterator[bytes]:
        """Chunks; the usage where it was asked for."""
        head = self._head(reply, "chat.completion.chunk")
        for delta, finish in (*((delta, None) for delta in self._deltas(reply)), ({}, self._finish(reply))):
            yield _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _data({**head, "choices": [], "usage": self._usage(reply)})
        yield b"data: [DONE]\n\n"

    def _deltas(self, reply: Reply) -> Iterator[Json]:
        yield {"role": "assistant", "content": "" if reply.text else None}
        if reply.call is None:
            yield from ({"content": half} for half in _halves(reply.text))
            return
        (call,) = self._message(reply)["tool_calls"]
        opened, rest = _halves(call["function"]["arguments"])
        yield {"tool_calls": [{"index": 0, **call, "function": {**call["function"], "arguments": opened}}]}
        yield {"tool_calls": [{"index": 0, "function": {"arguments": rest}}]}

    def _message(self, reply: Reply) -> Json:
        if reply.call is None:
            return {"role": "assistant", "content": reply.text}
        function = {"name": reply.call.name, "arguments": json.dumps(reply.call.arguments)}
        calls = [{"id": reply.call.id, "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def _finish(self, reply: Reply) -> str:
        return "tool_calls" if reply.call else "stop"

    def _head(self, reply: Reply, kind: str) -> Json:
        return {"id": f"chatcmpl-{reply.number}", "object": kind, "created": 1_800_000_000, "model": reply.model}

    def _usage(self, reply: Reply) -> Json:
        return {
            "prompt_tokens": reply.prompt,
            "completion_tokens": reply.completion,
            "total_tokens": reply.prompt + reply.completion,
        }


class Responses(Spelling):
    """`/responses`. Where encrypted reasoning is asked for, each call comes with some."""

    name, field = "responses", "input"

    def newest(self, body: Json) -> tuple[str, str]:
        """The last input item."""
        if isinstance(body["input"], str):
            return "user", body["input"]
        last = body["input"][-1]
        if last.get("type") == "function_call_output":
            return "tool", said(last["output"])
        return last.get("role") or str(last.get("type")), said(last.get("content"))

    def results(self, body: Json) -> dict[str, str]:
        """Items of the type `function_call_output`."""
        items = body["input"] if isinstance(body["input"], list) else []
        return {one["call_id"]: said(one["output"]) for one in items if one.get("type") == "function_call_output"}

    def refusal(self, asked: int, limit: int) -> Json:
        """As OpenAI says it: without a number."""
        return ResponsesApi().refusal(asked, limit)

    def invalid(self, problem: str) -> Json:
        """As OpenAI says it."""
        return {"error": {"message": problem, "type": "invalid_request_error", "param": "input", "code": None}}

    def whole(self, reply: Reply, body: Json) -> Json:
        """A response."""
        return self._response(reply, body, "completed", self._output(reply, body))

    def frames(self, reply: Reply, body: Json) -> Iterator[bytes]:
        """Numbered events."""
        for number, event in enumerate(self._events(reply, body)):
            yield _event({**event, "sequence_number": number})

    def _events(self, reply: Reply, body: Json) -> Iterator[Json]:
        started = self._response(reply, body, "in_progress", [])
        yield {"type": "response.created", "response": started}
        yield {"type": "response.in_progress", "response": started}
        for at, item in enumerate(self._output(reply, body)):
            yield {"type": "response.output_item.added", "output_index": at, "item": self._begun(item)}
            yield from self._deltas(item, {"item_id": item["id"], "output_index": at})
            yield {"type": "response.output_item.done", "output_index": at, "item": item}
        yield {"type": "response.completed", "response": self.whole(reply, body)}

    def _begun(self, item: Json) -> Json:
        empty: Json = {"function_call": {"arguments": ""}, "message": {"content": []}}.get(item["type"], {})
        return {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}

    def _deltas(self, item: Json, where: Json) -> Iterator[Json]:
        if item["type"] == "function_call":
            for half in _halves(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **where, "delta": half}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **where, **done}
        elif item["type"] == "message":
            part, where = item["content"][0], {**where, "content_index": 0}
            yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
            for half in _halves(part["text"]):
                yield {"type": "response.output_text.delta", **where, "delta": half, "logprobs": []}
            yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **where, "part": part}

    def _output(self, reply: Reply, body: Json) -> list[Json]:
        number = reply.number
        if reply.call is None:
            part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            return [
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            ]
        call = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": reply.call.id,
            "name": reply.call.name,
            "arguments": json.dumps(reply.call.arguments),
            "status": "completed",
        }
        thought = {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": [],
            "encrypted_content": f"gAAAA{number:x}" * 30,
        }
        return [thought, call] if "reasoning.encrypted_content" in (body.get("include") or ()) else [call]

    def _response(self, reply: Reply, body: Json, status: str, output: list[Json]) -> Json:
        usage = {
            "input_tokens": reply.prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.prompt + reply.completion,
        }
        return {
            "id": f"resp_{reply.number}",
            "object": "response",
            "created_at": 1_800_000_000,
            "status": status,
            "model": reply.model,
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": output,
            "usage": usage if status == "completed" else None,
        }


class Messages(Spelling):
    """`/messages`. Where thinking is on, each call comes with some."""

    name, field = "messages", "messages"

    def newest(self, body: Json) -> tuple[str, str]:
        """The last message; `tool` where it holds results."""
        last = body["messages"][-1]
        blocks = last["content"] if isinstance(last["content"], list) else [{"type": "text", "text": last["content"]}]
        kind = "tool" if any(block["type"] == "tool_result" for block in blocks) else last["role"]
        return kind, _REMINDER.sub("", said([block for block in blocks if block["type"] == "text"]))

    def results(self, body: Json) -> dict[str, str]:
        """Blocks of the type `tool_result`."""
        lists = (one["content"] for one in body["messages"] if isinstance(one["content"], list))
        blocks = (block for blocks in lists for block in blocks if block["type"] == "tool_result")
        return {block["tool_use_id"]: said(block.get("content")) for block in blocks}

    def refusal(self, asked: int, limit: int) -> Json:
        """As Anthropic says it."""
        return MessagesApi().refusal(asked, limit)

    def invalid(self, problem: str) -> Json:
        """As Anthropic says it."""
        return {"type": "error", "error": {"type": "invalid_request_error", "message": problem}, "request_id": "req_1"}

    def whole(self, reply: Reply, body: Json) -> Json:
        """A message."""
        return {
            **self._head(reply),
            "content": self._content(reply, body),
            "stop_reason": self._stop(reply),
            "usage": self._usage(reply),
        }

    def frames(self, reply: Reply, body: Json) -> Iterator[bytes]:
        """Its events."""
        started = {
            **self._head(reply),
            "content": [],
            "stop_reason": None,
            "usage": {**self._usage(reply), "output_tokens": 1},
        }
        yield _event({"type": "message_start", "message": started})
        for at, block in enumerate(self._content(reply, body)):
            opened, deltas = self._opened(block)
            yield _event({"type": "content_block_start", "index": at, "content_block": opened})
            for delta in deltas:
                yield _event({"type": "content_block_delta", "index": at, "delta": delta})
            yield _event({"type": "content_block_stop", "index": at})
        end = {"stop_reason": self._stop(reply), "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": end, "usage": {"output_tokens": reply.completion}})
        yield _event({"type": "message_stop"})

    def _opened(self, block: Json) -> tuple[Json, list[Json]]:
        if block["type"] == "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": half} for half in _halves(block["text"])]
        if block["type"] == "tool_use":
            halves = _halves(json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": half} for half in halves]
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]

    def _content(self, reply: Reply, body: Json) -> list[Json]:
        if reply.call is None:
            return [{"type": "text", "text": reply.text}]
        call = {"type": "tool_use", "id": reply.call.id, "name": reply.call.name, "input": reply.call.arguments}
        thought = {"type": "thinking", "thinking": f"Page {reply.number}.", "signature": f"EqQB{reply.number:x}" * 20}
        return [thought, call] if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive") else [call]

    def _stop(self, reply: Reply) -> str:
        return "tool_use" if reply.call else "end_turn"

    def _head(self, reply: Reply) -> Json:
        return {
            "id": f"msg_{reply.number}",
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "stop_sequence": None,
        }

    def _usage(self, reply: Reply) -> Json:
        return {
            "input_tokens": reply.prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": reply.completion,
        }


SPELLINGS = {f"/v1/{path}": spelling for path, spelling in (
    ("chat/completions", Chat()), ("responses", Responses()), ("messages", Messages())
)}  # fmt: skip
