"""The main job for real: an `openai` client, the installed command, and a llama.cpp server that means its window.

No mock and no stand-in: only a recorder between Carryon and the server, that passes everything on and counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.agent import TOOLS, Message, conversation
from tests.e2e.carryon import Carryon
from tests.e2e.llama import CONTEXT, MODEL, LlamaServer
from tests.e2e.recorder import TURN, Recorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Output tokens per turn: what costs time here is reading, not writing.
LIMIT = 8
#: Turns are asked after so many steps of the agent: well below the window, over the threshold, and beyond; the last
#: history is over three windows long.
GROWTH = (3, 7, 12, 19, 26)
#: Seconds an agent's tools take between two turns, and Carryon has to ask for the window.
BETWEEN = 1.0
#: A history that overflows the window at once, by so much that pruning does not suffice.
TOO_LONG = 26
#: A bad summariser of 40 tokens a second may not hold the one slot for minutes; after two failures the outline serves.
PATIENCE = {"CARRYON_DEFAULTS__SUMMARY__TIMEOUT": "15s"}


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


class Agent:
    """A real OpenAI client that asks as an agent does."""

    def __init__(self, base_url: str) -> None:
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key="sk-local", max_retries=0, timeout=280)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def ask(self, history: list[Message], *, stream: bool, turn: str) -> Said:
        """Send one turn; raises what the client raises."""
        started = time.monotonic()
        said = await (self._streamed if stream else self._whole)(history, {TURN: turn})
        print(
            f"turn {turn:>8} {'stream' if stream else 'whole':6} prompt={said.prompt:5} action={said.action:14}"
            f" generation={said.generation} tokens=({said.headers.get('x-carryon-tokens', '')})"
            f" {time.monotonic() - started:5.1f} s"
        )
        return said

    async def _whole(self, history: list[Message], headers: dict[str, str]) -> Said:
        raw = await self._client.chat.completions.with_raw_response.create(**_request(history), extra_headers=headers)
        answer = raw.parse()
        return Said(
            text=answer.choices[0].message.content or "", prompt=answer.usage.prompt_tokens, headers=raw.headers
        )

    async def _streamed(self, history: list[Message], headers: dict[str, str]) -> Said:
        raw = await self._client.chat.completions.with_raw_response.create(
            **_request(history), stream=True, stream_options={"include_usage": True}, extra_headers=headers
        )
        pieces, prompt = [], 0
        async for chunk in raw.parse():
            pieces += [choice.delta.content or "" for choice in chunk.choices]
            prompt = chunk.usage.prompt_tokens if chunk.usage else prompt
        return Said(text="".join(pieces), prompt=prompt, headers=raw.headers)


def _request(history: list[Message]) -> dict[str, object]:
    return {"model": MODEL, "messages": history, "tools": TOOLS, "max_tokens": LIMIT, "temperature": 0, "seed": 1}


@asynccontextmanager
async def asking(base_url: str) -> AsyncIterator[Agent]:
    """An agent for a while."""
    agent = Agent(base_url)
    try:
        yield agent
    finally:
        await agent.close()


@asynccontextmanager
async def carried(upstream: str, state: Path, *options: str) -> AsyncIterator[tuple[Carryon, Agent]]:
    """Carryon before the upstream, and an agent that talks to it."""
    carryon = Carryon(upstream, state, *options, **PATIENCE)
    try:
        async with asking(await carryon.start()) as agent:
            yield carryon, agent
    finally:
        await carryon.stop()


async def test_without_carryon_the_conversation_ends_in_the_servers_own_error(llama_server: LlamaServer) -> None:
    """The server answers the first turn, and refuses the long one with 400, streamed or not."""
    async with asking(llama_server.url) as agent:
        assert (await agent.ask(conversation(1), stream=False, turn="direct")).text
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                await agent.ask(conversation(TOO_LONG), stream=stream, turn="direct")
            assert refused.value.type == "exceed_context_size_error"


async def test_with_carryon_every_turn_is_answered_to_three_times_the_window(
    llama_server: LlamaServer, tmp_path: Path
) -> None:
    """No window is configured: it is asked for, pressure packs, all turns are answered, a restart forgets nothing."""
    said = []
    async with Recorder(llama_server.url, LIMIT) as recorder:
        async with carried(recorder.url, tmp_path) as (carryon, agent):
            for number, steps in enumerate(GROWTH):
                said.append(await agent.ask(conversation(steps), stream=number % 2 == 1, turn=f"{steps}"))
                await asyncio.sleep(BETWEEN)
            assert await carryon.stop() == 0
        async with carried(recorder.url, tmp_path) as (carryon, agent):
            after = await agent.ask(conversation(GROWTH[-1] + 1), stream=True, turn="restarted")
            assert await carryon.stop() == 0
    assert await _tokens(llama_server, conversation(GROWTH[-1])) >= 3 * CONTEXT
    assert all(turn.text for turn in (*said, after))
    assert "pressure" in {turn.action for turn in said}
    assert [turn.generation for turn in said] == sorted(turn.generation for turn in said)
    assert (after.action, after.generation) == ("projected", said[-1].generation)
    assert after.prompt < CONTEXT
    assert max(recorder.copies.values()) <= 2
    _tell(carryon, recorder)


async def test_an_overflow_nobody_saw_coming_is_packed_and_sent_again(
    llama_server: LlamaServer, tmp_path: Path
) -> None:
    """Told of a window of a million tokens, Carryon packs at the refusal, and the client sees only the answer."""
    async with (
        Recorder(llama_server.url, LIMIT) as recorder,
        carried(recorder.url, tmp_path, "--window", "1000000") as (carryon, agent),
    ):
        first = await agent.ask(conversation(1), stream=True, turn="1")
        rescued = await agent.ask(conversation(TOO_LONG), stream=True, turn="rescued")
        assert await carryon.stop() == 0
    assert (first.action, rescued.action) == ("pass", "overflow-retry")
    assert rescued.text
    assert rescued.generation >= 1
    assert recorder.statuses == [200, 400, 200]
    assert recorder.copies == Counter({"1": 1, "rescued": 2})
    _tell(carryon, recorder)


def _tell(carryon: Carryon, recorder: Recorder) -> None:
    """Print how the packings came about; none may be unaccounted for."""
    commits = carryon.events("commit")
    kinds = Counter(commit["summary"] for commit in commits)
    failed = len(carryon.events("summary-failed")) + len(carryon.events("summary-refused"))
    counts = " ".join(f"{kind}={kinds[kind]}" for kind in ("S1", "S4", "prune"))
    rejected = len(carryon.events("summary-rejected"))
    print(f"packings: {counts}; summary calls: {recorder.summaries}, {failed} of them failed, {rejected} rejected")
    assert commits
    assert sum(kinds[kind] for kind in ("S1", "S4", "prune")) == len(commits)
    assert not carryon.events("internal-fault")


async def _tokens(server: LlamaServer, history: list[Message]) -> int:
    """The history's text in the model's own tokens."""
    text = "\n".join(message["content"] for message in history)
    async with httpx.AsyncClient(base_url=server.url.removesuffix("/v1"), timeout=60) as client:
        reply = await client.post("/tokenize", json={"content": text})
        return len(reply.json()["tokens"])
