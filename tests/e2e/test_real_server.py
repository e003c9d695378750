"""The main job for real: SDK clients on three APIs, the installed command, and a llama.cpp server with a window.

No mock and no stand-in: only a recorder between Carryon and the server, that passes everything on and counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.agent import Message, conversation
from tests.e2e.carryon import Carryon
from tests.e2e.llama import CONTEXT, LlamaServer
from tests.e2e.recorder import Recorder
from tests.e2e.sdk import AGENTS, LIMIT, Agent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Turns are asked after so many steps of the agent: well below the window, over it, and beyond; the last
#: history is over three windows long.
GROWTH = (3, 12, 19, 26)
#: Seconds an agent's tools take between two turns, and Carryon has to ask for the window.
BETWEEN = 1.0
#: A history that overflows the window at once, by so much that pruning does not suffice.
TOO_LONG = 26
#: A bad summariser of 40 tokens a second may not hold the one slot for minutes; after two failures the outline serves.
PATIENCE = {"CARRYON_DEFAULTS__SUMMARY__TIMEOUT": "15s"}


@asynccontextmanager
async def asking(kind: type[Agent], base_url: str) -> AsyncIterator[Agent]:
    """An agent for a while."""
    agent = kind(base_url)
    try:
        yield agent
    finally:
        await agent.close()


@asynccontextmanager
async def carried(kind: type[Agent], upstream: str, state: Path, *options: str) -> AsyncIterator[tuple[Carryon, Agent]]:
    """Carryon before the upstream, and an agent that talks to it."""
    carryon = Carryon(upstream, state, *options, **PATIENCE)
    try:
        async with asking(kind, await carryon.start()) as agent:
            yield carryon, agent
    finally:
        await carryon.stop()


EACH = pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: kind.name)


@EACH
async def test_without_carryon_the_conversation_ends_in_the_servers_own_error(
    kind: type[Agent], llama_server: LlamaServer
) -> None:
    """The server answers the first turn, and refuses the long one with 400, streamed or not."""
    async with asking(kind, llama_server.url) as agent:
        assert (await agent.ask(conversation(1), stream=False, turn="direct")).text
        for stream in (False, True):
            with pytest.raises(kind.refusal, match="exceeds the available context size"):
                await agent.ask(conversation(TOO_LONG), stream=stream, turn="direct")


@EACH
async def test_with_carryon_every_turn_is_answered_to_three_times_the_window(
    kind: type[Agent], llama_server: LlamaServer, tmp_path: Path
) -> None:
    """No window is configured: it is asked for, pressure packs, all turns are answered, a restart forgets nothing."""
    said = []
    async with Recorder(llama_server.url, LIMIT) as recorder:
        async with carried(kind, recorder.url, tmp_path) as (carryon, agent):
            for number, steps in enumerate(GROWTH):
                said.append(await agent.ask(conversation(steps), stream=number % 2 == 1, turn=f"{steps}"))
                await asyncio.sleep(BETWEEN)
            assert await carryon.stop() == 0
        async with carried(kind, recorder.url, tmp_path) as (carryon, agent):
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


@EACH
async def test_an_overflow_nobody_saw_coming_is_packed_and_sent_again(
    kind: type[Agent], llama_server: LlamaServer, tmp_path: Path
) -> None:
    """Told of a window of a million tokens, Carryon packs at the refusal, and the client sees only the answer."""
    async with (
        Recorder(llama_server.url, LIMIT) as recorder,
        carried(kind, recorder.url, tmp_path, "--window", "1000000") as (carryon, agent),
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
    counts = " ".join(f"{kind}={kinds[kind]}" for kind in ("S1", "S2", "S3", "S4", "prune"))
    rejected = len(carryon.events("summary-rejected"))
    print(f"packings: {counts}; summary calls: {recorder.summaries}, {failed} of them failed, {rejected} rejected")
    assert commits
    assert sum(kinds[kind] for kind in ("S1", "S2", "S3", "S4", "prune")) == len(commits)
    assert not carryon.events("internal-fault")


async def _tokens(server: LlamaServer, history: list[Message]) -> int:
    """The history's text in the model's own tokens."""
    text = "\n".join(message["content"] for message in history)
    async with httpx.AsyncClient(base_url=server.url.removesuffix("/v1"), timeout=60) as client:
        reply = await client.post("/tokenize", json={"content": text})
        return len(reply.json()["tokens"])
