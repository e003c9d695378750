"""pydantic-ai-ai on chat and responses, streamed and not; its messages are kept as its own JSON."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.sdk import lanes
from tests.clients.sdk.lanes import Seat


async def chat(seat: Seat, prompt: str) -> str:
    """Chat."""
    return await _turn(seat, prompt, OpenAIChatModel, stream=False)


async def chat_streamed(seat: Seat, prompt: str) -> str:
    """Chat, streamed."""
    return await _turn(seat, prompt, OpenAIChatModel, stream=True)


async def responses(seat: Seat, prompt: str) -> str:
    """Responses."""
    return await _turn(seat, prompt, OpenAIResponsesModel, stream=False)


async def responses_streamed(seat: Seat, prompt: str) -> str:
    """Responses, streamed."""
    return await _turn(seat, prompt, OpenAIResponsesModel, stream=True)


async def _turn(seat: Seat, prompt: str, model: Any, *, stream: bool) -> str:
    provider = OpenAIProvider(api_key=seat.key)
    agent: Any = Agent(model(seat.model, provider=provider), instructions=lanes.SYSTEM, tools=[lanes.read_page])
    history = ModelMessagesTypeAdapter.validate_python(seat.load())
    if stream:
        async with agent.run_stream(prompt, message_history=history) as result:
            said = await result.get_output()
    else:
        result = await agent.run(prompt, message_history=history)
        said = result.output
    seat.save(ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json"))
    return str(said)


LANES = {
    "pydantic-ai-chat": chat,
    "pydantic-ai-chat-streamed": chat_streamed,
    "pydantic-ai-responses": responses,
    "pydantic-ai-responses-streamed": responses_streamed,
}

if __name__ == "__main__":
    lanes.main(LANES)
