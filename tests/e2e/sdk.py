"""One agent on each API, by the SDK its users have: the same conversation, spelt as the SDK's users spell it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import anthropic
import openai

from tests.dialects.spellings import in_messages, in_responses
from tests.e2e.agent import SYSTEM, TOOLS, Message
from tests.e2e.llama import MODEL
from tests.e2e.recorder import TURN

__all__ = ["AGENTS", "Agent", "Said"]

#: Output tokens per turn: what costs time here is reading, not writing.
LIMIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answered turn: its text, its prompt tokens as the server counted them, and Carryon's headers."""

    text: str
    prompt: int
    headers: Mapping[str, str]

    @property
    def action(self) -> str:
        """What Carryon did."""
        return self.headers.get("x-carryon-action", "")

    @property
    def generation(self) -> int:
        """The generation of the surface that was applied, 0 for none."""
        return int(self.headers.get("x-carryon-generation", "0"))


class Agent(ABC):
    """A real client; `refusal` is what it raises when the server says that a prompt is too long."""

    name: ClassVar[str]
    refusal: ClassVar[type[Exception]]
    _client: Any

    @abstractmethod
    def __init__(self, base_url: str) -> None:
        """Make the client; no retries of its own."""

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def ask(self, history: list[Message], *, stream: bool, turn: str) -> Said:
        """Send one turn; raises what the client raises."""
        started = time.monotonic()
        said = await (self._streamed if stream else self._whole)(history, {TURN: turn})
        print(
            f"{self.name:9} turn {turn:>9} {'stream' if stream else 'whole':6} prompt={said.prompt:5}"
            f" action={said.action:14} generation={said.generation}"
            f" tokens=({said.headers.get('x-carryon-tokens', '')}) {time.monotonic() - started:5.1f} s"
        )
        return said

    @abstractmethod
    async def _whole(self, history: list[Message], headers: dict[str, str]) -> Said: ...

    @abstractmethod
    async def _streamed(self, history: list[Message], headers: dict[str, str]) -> Said: ...


class ChatAgent(Agent):
    """The `openai` SDK's chat completions."""

    name, refusal = "chat", openai.BadRequestError

    def __init__(self, base_url: str) -> None:
        """Make the client."""
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key="sk-local", max_retries=0, timeout=280)

    def _request(self, history: list[Message]) -> dict[str, Any]:
        return {
            "model": MODEL, "messages": history, "tools": TOOLS, "max_tokens": LIMIT, "temperature": 0, "seed": 1
        }  # fmt: skip

    async def _whole(self, history: list[Message], headers: dict[str, str]) -> Said:
        create = self._client.chat.completions.with_raw_response.create
        raw = await create(**self._request(history), extra_headers=headers)
        answer = raw.parse()
        text = answer.choices[0].message.content or ""
        return Said(text=text, prompt=answer.usage.prompt_tokens, headers=raw.headers)

    async def _streamed(self, history: list[Message], headers: dict[str, str]) -> Said:
        usage = {"stream_options": {"include_usage": True}}
        create = self._client.chat.completions.with_raw_response.create
        raw = await create(**self._request(history), stream=True, **usage, extra_headers=headers)
        pieces, prompt = [], 0
        async for chunk in raw.parse():
            pieces += [choice.delta.content or "" for choice in chunk.choices]
            prompt = chunk.usage.prompt_tokens if chunk.usage else prompt
        return Said(text="".join(pieces), prompt=prompt, headers=raw.headers)


class ResponsesAgent(Agent):
    """The `openai` SDK's responses. Reasoning is left out: this server takes back only what it wrote itself."""

    name, refusal = "responses", openai.BadRequestError

    def __init__(self, base_url: str) -> None:
        """Make the client."""
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key="sk-local", max_retries=0, timeout=280)

    def _request(self, history: list[Message]) -> dict[str, Any]:
        items = [item for item in in_responses(history[1:]) if item["type"] != "reasoning"]
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        return {
            "model": MODEL,
            "instructions": SYSTEM,
            "input": items,
            "tools": tools,
            "max_output_tokens": LIMIT,
            "temperature": 0,
            "store": False,
        }

    async def _whole(self, history: list[Message], headers: dict[str, str]) -> Said:
        create = self._client.responses.with_raw_response.create
        raw = await create(**self._request(history), extra_headers=headers)
        answer = raw.parse()
        return Said(text=answer.output_text, prompt=answer.usage.input_tokens, headers=raw.headers)

    async def _streamed(self, history: list[Message], headers: dict[str, str]) -> Said:
        create = self._client.responses.with_raw_response.create
        raw = await create(**self._request(history), stream=True, extra_headers=headers)
        pieces, prompt = [], 0
        async for event in raw.parse():
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            elif event.type == "response.completed":
                prompt = event.response.usage.input_tokens
        return Said(text="".join(pieces), prompt=prompt, headers=raw.headers)


class MessagesAgent(Agent):
    """The `anthropic` SDK's messages. Thinking is left out: this server would read it as text."""

    name, refusal = "messages", anthropic.BadRequestError

    def __init__(self, base_url: str) -> None:
        """Make the client, whose base URL has no version in it."""
        self._client = anthropic.AsyncAnthropic(
            base_url=base_url.removesuffix("/v1"), api_key="sk-local", max_retries=0, timeout=280
        )

    def _request(self, history: list[Message]) -> dict[str, Any]:
        messages = in_messages(history[1:])
        for message in messages:
            message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
        tools = [
            {"name": one["function"]["name"], "description": "d", "input_schema": one["function"]["parameters"]}
            for one in TOOLS
        ]
        return {"model": MODEL, "system": SYSTEM, "messages": messages, "tools": tools, "max_tokens": LIMIT}

    async def _whole(self, history: list[Message], headers: dict[str, str]) -> Said:
        create = self._client.messages.with_raw_response.create
        raw = await create(**self._request(history), extra_headers=headers)
        answer = await raw.parse()
        text = "".join(block.text for block in answer.content if block.type == "text")
        return Said(text=text, prompt=_prompt(answer.usage), headers=raw.headers)

    async def _streamed(self, history: list[Message], headers: dict[str, str]) -> Said:
        create = self._client.messages.with_raw_response.create
        raw = await create(**self._request(history), stream=True, extra_headers=headers)
        pieces, prompt = [], 0
        async for event in await raw.parse():
            if event.type == "message_start":
                prompt = _prompt(event.message.usage)
            elif event.type == "content_block_delta":
                pieces.append(event.delta.text)
        return Said(text="".join(pieces), prompt=prompt, headers=raw.headers)


def _prompt(usage: Any) -> int:
    return int(usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0))


AGENTS: tuple[type[Agent], ...] = (ChatAgent, ResponsesAgent, MessagesAgent)
