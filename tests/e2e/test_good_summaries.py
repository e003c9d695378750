"""S1 end to end: a real `carryon serve`, a real Valkey, and an upstream whose summaries are good."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from proxy.core.meter import Meter
from proxy.core.surface import Keep, Put
from proxy.dialects.chat import Chat
from proxy.tokens import count_with
from tests.e2e import agent, scribe, talk
from tests.e2e.scribe import Request, Scribe, good, message
from tests.e2e.stored import proxied, records, stored
from tests.e2e.talk import WINDOW, Client, Reply, body, history
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

LIMIT = 1_000
#: Steps after which a history is below the threshold, and over it.
BELOW, OVER = 7, 13
TOOLS = [*agent.TOOLS, agent._tool("edit_file", "Write a file.", "path")]
#: What a summary must keep, and what would spoil it.
KEPT = {
    "tools": TOOLS,
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "prompt_cache_key": "cache-1",
    "user": "user-1",
}
DROPPED = {
    "response_format": {"type": "json_object"},
    "stop": ["\n\n"],
    "n": 1,
    "logit_bias": {"50256": -100},
    "temperature": 0.25,
    "prediction": {"type": "content", "content": "x"},
    "metadata": {"a": "b"},
    "x_unknown": {"z": 1.50},
}
SETTINGS: dict[str, object] = {
    **DROPPED, **KEPT, "tool_choice": "auto", "store": True, "max_completion_tokens": LIMIT
}  # fmt: skip
_SECTION = re.compile(r"<(conversation_\w+)[^>]*>\n(.*?)\n</\1>", re.DOTALL)


async def test_the_summary_is_asked_on_the_live_prefix_and_the_next_body_carries_it(
    client: Client, upstream: Scribe, ledger: Server
) -> None:
    """Two packings in twenty turns: every byte of S1, of what follows it, and of what is stored, is as it must be."""
    await _story(client, upstream, ledger, "configured", stream=False)


async def test_a_streaming_client_whose_upstream_reports_its_window_fares_the_same(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """No window is configured: `/v1/models` is asked, and the story is the same, streamed."""
    running = proxied(ledger, upstream.url, tmp_path)
    upstream.windows["reported"] = WINDOW
    async with Client(await running.start()) as client:
        first = await _turn(client, "reported", history(1), stream=True, **SETTINGS)
        assert first.headers["x-carryon-skip"] in ("no-window", "below")
        for _ in range(100):
            if (await _turn(client, "reported", history(1), **SETTINGS)).headers["x-carryon-skip"] == "below":
                break
            await asyncio.sleep(0.05)
        await _story(client, upstream, ledger, "reported", stream=True)
        assert await running.stop() == 0
    assert not running.events("internal-fault")


async def _turn(client: Client, model: str, messages: list[talk.Message], **settings: object) -> Reply:
    """Send a turn under a credential of the model's own: conversations are not kept apart by model."""
    return await client.post(body(model, messages, **settings), key=model)


async def _story(client: Client, upstream: Scribe, ledger: Server, model: str, *, stream: bool) -> None:
    settings = SETTINGS | ({"stream": True} if stream else {})
    forwarded: list[bytes] = []
    generations: list[int] = []
    for steps in range(3, 24):
        sent = body(model, history(steps), **settings)
        asked = len(upstream.of(model, summaries=True))
        reply = await client.post(sent, key=model)
        turn = upstream.of(model, summaries=False)[-1]
        assert (reply.status, _said(reply, stream=stream)) == (200, _answer(upstream, model))
        if len(upstream.of(model, summaries=True)) > asked:
            assert reply.action == "pressure"
            assert reply.headers["x-carryon-summary"].startswith("model=scribe-1")
            request = upstream.of(model, summaries=True)[-1]
            _assert_asks_on_the_live_prefix(request, turn, sent, forwarded[-1])
            _assert_carries(turn, request, sent, number=asked + 1)
            await _assert_stored(ledger, reply, turn, summaries=asked + 1)
        elif not reply.generation:
            assert turn.body == sent
        forwarded.append(turn.body)
        generations.append(reply.generation)
    assert generations[0] == 0
    assert generations == sorted(generations)
    assert generations[-1] >= 2
    assert generations[-1] == len(upstream.of(model, summaries=True))
    _assert_prefix_stable(forwarded, generations)


def _answer(upstream: Scribe, model: str) -> str:
    return f"Answer {len(upstream.of(model, summaries=False))}."


def _said(reply: Reply, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(reply.body)["choices"][0]["message"]["content"])
    frames = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: {")]
    assert reply.body.endswith(b"data: [DONE]\n\n")
    return "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames)


def _assert_asks_on_the_live_prefix(request: Request, turn: Request, sent: bytes, before: bytes) -> None:
    """S1 is the turn's own URL, headers and prefix, what shapes cache and thinking, and one instruction more."""
    assert request.path == turn.path == f"/v1/chat/completions{talk.QUERY}"
    assert _but_length(request) == _but_length(turn)
    assert ("Authorization", f"Bearer {turn.model}") in request.headers
    limit = request.json["max_completion_tokens"]
    expected = {**KEPT, "model": turn.model, "tool_choice": "none", "store": False, "max_completion_tokens": limit}
    expected |= {"stream": True} if "stream" in turn.json else {}
    assert {key: value for key, value in request.json.items() if key != "messages"} == expected
    head, (_, previous, _), (_, own, _) = scribe.split(request.body)[1], scribe.split(before), scribe.split(sent)
    assert head[0] == own[0]
    assert head[:-1] == previous[: len(head) - 1]
    assert len(head) > 10
    instruction = json.loads(head[-1])
    assert instruction["role"] == "user"
    told = re.search(r"at most (\d+) tokens", instruction["content"])
    assert told is not None
    assert [f"## {heading}" in instruction["content"] for heading in scribe.HEADINGS] == [True] * 10
    # The limit leaves the summary its share and room for thought, as far as the window does.
    assert 512 <= int(int(told[1]) / 0.8) <= 3 * (WINDOW // 5) // 8
    assert limit == WINDOW - _tokens(sent, head)


def _but_length(request: Request) -> list[tuple[str, str]]:
    return [pair for pair in request.headers if pair[0].lower() != "content-length"]


def _tokens(sent: bytes, messages: list[bytes]) -> int:
    """The tokens of these messages under the client's own envelope, by Carryon's meter."""
    dialect = Chat()
    meter = Meter(dialect.weigh, count_with("o200k_base"))
    found = dialect.split(sent)
    assert found is not None
    return meter.envelope(found.envelope) + sum(meter.raw(raw) for raw in messages[1:])


def _assert_carries(turn: Request, request: Request, sent: bytes, *, number: int) -> None:
    """After the packing: the client's envelope bytes, one user item, the client's tail bytes."""
    start, items, end = scribe.split(turn.body)
    own_start, own, own_end = scribe.split(sent)
    assert (start, end) == (own_start, own_end)
    carrier = json.loads(items[1])
    tail = items[2:]
    assert items[0] == own[0]
    assert carrier["role"] == "user"
    assert json.loads(tail[0])["role"] == "assistant"
    assert tail == own[-len(tail) :]
    covered = len(own) - len(tail) - 1
    _assert_speaks(carrier["content"], covered, number)


def _assert_speaks(text: str, covered: int, number: int) -> None:
    sections = {name: (found.start(), found[2]) for found in _SECTION.finditer(text) for name in [found[1]]}
    assert text.startswith(
        "[Earlier turns of this conversation were summarised automatically and are no longer shown.]"
    )
    assert "background, not a new request" in text.partition("<")[0]
    assert sections["conversation_task"][1] == agent.TASK
    words = sections["conversation_user_words"][1]
    assert re.search(r"Go on after module \d+", words)
    assert talk.RULE in sections["conversation_rules"][1]
    assert "billing/fixed_3.py" in sections["conversation_files_modified"][1]
    assert "billing/module_" in sections["conversation_files_read"][1]
    assert f'<conversation_summary covers="items 1-{covered}">\n{good(number)}\n</conversation_summary>' in text
    assert text.endswith("</conversation_summary>")
    assert [name for name, _ in sorted(sections.items(), key=lambda item: item[1][0])][-1] == "conversation_summary"
    assert not re.search(rf"as of summary (?!{number}\.)", text)


async def _assert_stored(ledger: Server, reply: Reply, turn: Request, *, summaries: int) -> None:
    """Redis holds the very bytes the upstream saw, bound to the items it says it covers."""
    found = await stored(ledger, reply.conversation)
    surface = found.surfaces[-1]
    items = scribe.split(turn.body)[1]
    assert found.record.generation == reply.generation == summaries
    assert surface.summary == "S1"
    assert surface.parts == (Put(items[1]),)
    assert not any(isinstance(part, Keep) for part in surface.parts)
    assert surface.carry.task == agent.TASK
    assert f'covers="items 1-{surface.covered}"' in json.loads(items[1])["content"]


def _assert_prefix_stable(forwarded: list[bytes], generations: list[int]) -> None:
    """Between two commits each forwarded body begins with all messages of the one before."""
    same = 0
    for (before, old), (after, new) in pairwise(zip(forwarded, generations, strict=True)):
        if old == new:
            start, items, _ = scribe.split(before)
            assert after.startswith(start + b",".join(items) + b",")
            same += 1
    assert same >= 15


async def test_identical_requests_in_flight_cause_one_summary(client: Client, upstream: Scribe, ledger: Server) -> None:
    """Eight at once: one call to the model, one generation, eight equal bodies, eight answers."""

    async def slowly(request: Request, number: int) -> web.Response:
        await asyncio.sleep(0.7)
        return message(good(number))

    upstream.summarisers["crowd"] = slowly
    sent = body("crowd", history(OVER), max_tokens=LIMIT)
    replies = await asyncio.gather(*(client.post(sent, key="crowd") for _ in range(8)))
    assert [reply.status for reply in replies] == [200] * 8
    assert len(upstream.of("crowd", summaries=True)) == 1
    assert len({one.body for one in upstream.of("crowd", summaries=False)}) == 1
    assert {reply.generation for reply in replies} == {1}
    assert (await stored(ledger, replies[0].conversation)).record.generation == 1


async def test_below_the_threshold_nothing_is_asked_changed_or_stored(
    client: Client, upstream: Scribe, ledger: Server
) -> None:
    """The bytes go through, and Redis knows no such conversation."""
    sent = body("below", history(BELOW), max_tokens=LIMIT)
    reply = await client.post(sent, key="below")
    assert (reply.action, reply.headers["x-carryon-skip"]) == ("pass", "below")
    assert [one.body for one in upstream.requests if one.model == "below"] == [sent]
    assert records(ledger, reply.conversation) == []
