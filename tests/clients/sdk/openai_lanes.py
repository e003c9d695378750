"""The openai SDK: chat and responses, streamed and not, with a plain loop over tool calls."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI

from tests.clients.sdk import lanes
from tests.clients.sdk.lanes import Seat

CHAT_TOOL: Any = {
    "type": "function",
    "function": {"name": "read_page", "description": lanes.DESCRIPTION, "parameters": lanes.SCHEMA},
}
TOOL: Any = {
    "type": "function",
    "name": "read_page",
    "description": lanes.DESCRIPTION,
    "parameters": lanes.SCHEMA,
    "strict": False,
}


async def chat(seat: Seat, prompt: str) -> str:
    """Whole completions."""

    async def ask(client: AsyncOpenAI, messages: Any) -> Any:
        return await client.chat.completions.create(model=seat.model, messages=messages, tools=[CHAT_TOOL])

    return await _chat(seat, prompt, ask)


async def chat_streamed(seat: Seat, prompt: str) -> str:
    """The SDK's own accumulator over a stream."""

    async def ask(client: AsyncOpenAI, messages: Any) -> Any:
        options: Any = {"include_usage": True}
        async with client.chat.completions.stream(
            model=seat.model, messages=messages, tools=[CHAT_TOOL], stream_options=options
        ) as stream:
            return await stream.get_final_completion()

    return await _chat(seat, prompt, ask)


async def _chat(seat: Seat, prompt: str, ask: Any) -> str:
    history = seat.load() or [{"role": "system", "content": lanes.SYSTEM}]
    history.append({"role": "user", "content": prompt})
    async with AsyncOpenAI(api_key=seat.key) as client:
        while True:
            message = (await ask(client, history)).choices[0].message
            kept = {"role", "content", "tool_calls"}
            history.append(json.loads(message.model_dump_json(include=kept, exclude_none=True)))
            for call in history[-1].get("tool_calls", ()):
                call["function"].pop("parsed_arguments", None)
                text = lanes.read_page(**json.loads(call["function"]["arguments"]))
                history.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            if not message.tool_calls:
                seat.save(history)
                return message.content or ""


async def responses(seat: Seat, prompt: str) -> str:
    """Whole responses."""

    async def ask(client: AsyncOpenAI, items: Any) -> Any:
        return await client.responses.create(**_settings(seat), input=items)

    return await _responses(seat, prompt, ask)


async def responses_streamed(seat: Seat, prompt: str) -> str:
    """The SDK's own accumulator over a stream."""

    async def ask(client: AsyncOpenAI, items: Any) -> Any:
        async with client.responses.stream(**_settings(seat), input=items) as stream:
            return await stream.get_final_response()

    return await _responses(seat, prompt, ask)


def _settings(seat: Seat) -> Any:
    return {
        "model": seat.model,
        "instructions": lanes.SYSTEM,
        "tools": [TOOL],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


async def _responses(seat: Seat, prompt: str, ask: Any) -> str:
    history = seat.load()
    history.append({"role": "user", "content": prompt})
    async with AsyncOpenAI(api_key=seat.key) as client:
        while True:
            response = await ask(client, history)
            history += [_item(item) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            for call in calls:
                text = lanes.read_page(**json.loads(call.arguments))
                history.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
            if not calls:
                seat.save(history)
                return str(response.output_text)


def _item(item: Any) -> Any:
    found = json.loads(item.model_dump_json(exclude_none=True))
    found.pop("parsed_arguments", None)
    return found


LANES = {
    "openai-chat": chat,
    "openai-chat-streamed": chat_streamed,
    "openai-responses": responses,
    "openai-responses-streamed": responses_streamed,
}

if __name__ == "__main__":
    lanes.main(LANES)
