"""LangGraph's ready-made agent on LangChain's ChatOpenAI: chat and responses, streamed and not."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from tests.clients.sdk import lanes
from tests.clients.sdk.lanes import Seat


async def chat(seat: Seat, prompt: str) -> str:
    """Chat."""
    return await _turn(seat, prompt)


async def chat_streamed(seat: Seat, prompt: str) -> str:
    """Chat, streamed."""
    return await _turn(seat, prompt, streaming=True)


async def responses(seat: Seat, prompt: str) -> str:
    """Responses."""
    return await _turn(seat, prompt, use_responses_api=True)


async def responses_streamed(seat: Seat, prompt: str) -> str:
    """Responses, streamed."""
    return await _turn(seat, prompt, use_responses_api=True, streaming=True)


async def _turn(seat: Seat, prompt: str, **settings: Any) -> str:
    model = ChatOpenAI(api_key=seat.key, model=seat.model, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has moved to another distribution, which is not needed here
        agent = create_react_agent(model, [tool(lanes.read_page)], prompt=lanes.SYSTEM)
    history = [*messages_from_dict(seat.load()), ("user", prompt)]
    state: Any = {}
    async for found in agent.astream({"messages": history}, {"recursion_limit": 60}, stream_mode="values"):
        state = found
    seat.save(messages_to_dict(state["messages"]))
    return str(state["messages"][-1].text)


LANES = {
    "langgraph-chat": chat,
    "langgraph-chat-streamed": chat_streamed,
    "langgraph-responses": responses,
    "langgraph-responses-streamed": responses_streamed,
}

if __name__ == "__main__":
    lanes.main(LANES)
