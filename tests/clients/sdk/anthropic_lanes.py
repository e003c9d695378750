"""The anthropic SDK, streamed and not, with thinking, and a cache mark that moves to the newest block."""

from __future__ import annotations

import json
from typing import Any

from anthropic import AsyncAnthropic

from tests.clients.sdk import lanes
from tests.clients.sdk.lanes import Seat

TOOL: Any = {"name": "read_page", "description": lanes.DESCRIPTION, "input_schema": lanes.SCHEMA}
MARK = {"type": "ephemeral"}


async def whole(seat: Seat, prompt: str) -> str:
    """Whole messages."""

    async def ask(client: AsyncAnthropic, settings: Any) -> Any:
        return await client.messages.create(**settings)

    return await _turn(seat, prompt, ask)


async def streamed(seat: Seat, prompt: str) -> str:
    """The SDK's own accumulator over a stream."""

    async def ask(client: AsyncAnthropic, settings: Any) -> Any:
        async with client.messages.stream(**settings) as stream:
            return await stream.get_final_message()

    return await _turn(seat, prompt, ask)


async def _turn(seat: Seat, prompt: str, ask: Any) -> str:
    history = seat.load()
    history.append({"role": "user", "content": [{"type": "text", "text": prompt}]})
    async with AsyncAnthropic(api_key=seat.key) as client:
        while True:
            message = await ask(client, _settings(seat, history))
            said = json.loads(message.model_dump_json(include={"role", "content"}, exclude_none=True))
            history.append(said)
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                seat.save(history)
                return "".join(block.text for block in message.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": lanes.read_page(**call.input)}
                for call in calls
            ]
            history.append({"role": "user", "content": results})


def _settings(seat: Seat, history: list[Any]) -> Any:
    *before, last = history
    *blocks, newest = last["content"]
    return {
        "model": seat.model,
        "system": [{"type": "text", "text": lanes.SYSTEM, "cache_control": MARK}],
        "messages": [*before, {**last, "content": [*blocks, {**newest, "cache_control": MARK}]}],
        "tools": [TOOL],
        "max_tokens": 2_048,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
    }


LANES = {"anthropic": whole, "anthropic-streamed": streamed}

if __name__ == "__main__":
    lanes.main(LANES)
