"""openai-agents: its own runner and its own SQLite session, on responses (its default) and chat, streamed and not."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.clients.sdk import lanes
from tests.clients.sdk.lanes import Seat


async def responses(seat: Seat, prompt: str) -> str:
    """The default."""
    return await _turn(seat, prompt, OpenAIResponsesModel, stream=False)


async def responses_streamed(seat: Seat, prompt: str) -> str:
    """The default, streamed."""
    return await _turn(seat, prompt, OpenAIResponsesModel, stream=True)


async def chat(seat: Seat, prompt: str) -> str:
    """Chat."""
    return await _turn(seat, prompt, OpenAIChatCompletionsModel, stream=False)


async def chat_streamed(seat: Seat, prompt: str) -> str:
    """Chat, streamed."""
    return await _turn(seat, prompt, OpenAIChatCompletionsModel, stream=True)


async def _turn(seat: Seat, prompt: str, model: Any, *, stream: bool) -> str:
    set_tracing_disabled(disabled=True)
    session = SQLiteSession("notes", seat.file.with_suffix(".db"))
    async with AsyncOpenAI(api_key=seat.key) as client:
        agent = Agent(
            name="keeper",
            instructions=lanes.SYSTEM,
            tools=[function_tool(lanes.read_page)],
            model=model(model=seat.model, openai_client=client),
        )
        if not stream:
            return str((await Runner.run(agent, prompt, session=session)).final_output)
        running = Runner.run_streamed(agent, prompt, session=session)
        async for _ in running.stream_events():
            pass
        return str(running.final_output)


LANES = {
    "openai-agents-responses": responses,
    "openai-agents-responses-streamed": responses_streamed,
    "openai-agents-chat": chat,
    "openai-agents-chat-streamed": chat_streamed,
}

if __name__ == "__main__":
    lanes.main(LANES)
