"""Many at once: a hundred sessions that begin alike, and one request that a client sends in several spellings."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e import agent
from tests.e2e.scribe import Request, Scribe, good, message
from tests.e2e.stored import PATIENT, proxied, stored
from tests.e2e.talk import Client, Message, Reply, body, history, step
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

LIMIT = 500
#: A small window, so that a hundred histories outgrow it in little time; steps after which one is over the threshold.
WINDOW, OVER = 8_192, 7


@asynccontextmanager
async def _proxied(upstream: Scribe, ledger: Server, state: Path, **environment: str) -> AsyncIterator[Client]:
    """A client of a patient proxy of its own."""
    running = proxied(ledger, upstream.url, state, "--window", str(WINDOW), **{**PATIENT, **environment})
    async with Client(await running.start(), f"sk-{state.name}", patience=150) as client:
        yield client
    assert await running.stop() == 0
    assert not running.events("internal-fault")


def _session(number: int, steps: int) -> list[Message]:
    """The canned opening all share, then a session's own steps, each of which says whose it is."""
    start = [{"role": "system", "content": agent.SYSTEM}]
    start += [{"role": "user" if at % 2 == 0 else "assistant", "content": f"Canned example {at}."} for at in range(4)]
    own = [{**one} for at in range(1, steps + 1) for one in step(at)]
    for one in own:
        one["content"] = f"[session {number:03}] {one['content']}"
    return [*start, *own]


def _owners(seen: bytes) -> set[bytes]:
    """Whose words a body holds."""
    return {seen[at + 9 : at + 12] for at in _places(seen, b"[session ")}


def _places(text: bytes, mark: bytes) -> list[int]:
    found, at = [], text.find(mark)
    while at >= 0:
        found.append(at)
        at = text.find(mark, at + 1)
    return found


async def _names_the_owner(request: Request, number: int) -> web.Response:
    del number
    (owner,) = _owners(request.body)
    return message(f"{good(0)}\nStamp of [session {owner.decode()}].")


class Crowd:
    """Sessions with one opening; each turn of all of them is sent at once."""

    def __init__(self, client: Client, upstream: Scribe, model: str, size: int) -> None:
        self._client, self._upstream, self._model, self._size = client, upstream, model, size
        upstream.summarisers[model] = _names_the_owner

    @property
    def summaries(self) -> int:
        """Requests for summaries so far."""
        return len(self._upstream.of(self._model, summaries=True))

    async def turn(self, steps: int) -> tuple[list[Reply], list[Request]]:
        """What each got, and what the upstream saw, in no order."""
        before = len(self._upstream.of(self._model, summaries=False))
        replies = await asyncio.gather(*(self._post(number, steps) for number in range(self._size)))
        seen = self._upstream.of(self._model, summaries=False)[before:]
        assert sorted(_owners(one.body).pop() for one in seen) == [b"%03d" % number for number in range(self._size)]
        return replies, seen

    async def _post(self, number: int, steps: int) -> Reply:
        sent = body(self._model, _session(number, steps), tools=agent.TOOLS, max_tokens=LIMIT)
        return await self._client.post(sent, x_session_id="")


@pytest.mark.parametrize("size", [20, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["model", "outline"])
async def test_sessions_with_one_opening_are_packed_at_once_and_never_as_another(
    upstream: Scribe, ledger: Server, tmp_path: Path, method: str, size: int
) -> None:
    """One record serves a hundred: as many commits, no summary paid twice, each next turn projected by its own."""
    asked = size if method == "model" else 0
    async with _proxied(upstream, ledger, tmp_path, CARRYON_DEFAULTS__SUMMARY__METHOD=method) as client:
        crowd = Crowd(client, upstream, f"crowd-{method}-{size}", size)
        packed, first = await crowd.turn(OVER)
        later, second = await crowd.turn(OVER + 1)
    wrong = sum(len(_owners(one.body)) != 1 for one in (*first, *second))
    actions = [dict(Counter(one.action for one in replies)) for replies in (packed, later)]
    print(f"\n{size} sessions, one opening, {method}: {actions}, summaries {crowd.summaries}, wrong {wrong}")
    assert actions == [{"pressure": size}, {"projected": size}]
    assert (crowd.summaries, wrong) == (asked, 0)
    assert len({one.conversation for one in (*packed, *later)}) == 1
    assert sorted(one.generation for one in packed) == list(range(1, size + 1))
    assert [one.generation for one in later] == [one.generation for one in packed]
    assert sum(b"Stamp of" in one.body for one in (*first, *second)) == 2 * asked
    assert (await stored(ledger, packed[0].conversation)).record.generation == size


def _spellings(sent: bytes) -> list[bytes]:
    """Six byte strings of the same JSON."""
    value = json.loads(sent)
    turned = {key: value[key] for key in reversed(value)}
    messages = [{key: one[key] for key in reversed(one)} for one in value["messages"]]
    return [
        sent,
        json.dumps(value).encode(),
        json.dumps(value, separators=(",", ":")).encode(),
        json.dumps(turned, ensure_ascii=False).encode(),
        json.dumps({**value, "messages": messages}, separators=(",", ":")).encode(),
        json.dumps(turned, indent=1).encode(),
    ]


async def test_one_request_in_flight_in_six_spellings_costs_one_summary(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """As an agent that repeats a failed request does, with keys in another order each time: one call, one commit."""

    async def slowly(request: Request, number: int) -> web.Response:
        del request
        await asyncio.sleep(1)  # the others arrive meanwhile; one that is later still finds the surface
        return message(good(number))

    upstream.summarisers["spelt"] = slowly
    spellings = _spellings(body("spelt", history(OVER), tools=agent.TOOLS, max_tokens=LIMIT))
    assert len(set(spellings)) == 6
    async with _proxied(upstream, ledger, tmp_path) as client:
        replies = await asyncio.gather(*(client.post(one) for one in spellings))
    assert [reply.status for reply in replies] == [200] * 6
    assert [reply.generation for reply in replies] == [1] * 6
    assert len(upstream.of("spelt", summaries=True)) == 1
    seen = [one.json["messages"] for one in upstream.of("spelt", summaries=False)]
    assert len(seen) == 6
    assert all(one == seen[0] for one in seen)
    assert (await stored(ledger, replies[0].conversation)).record.generation == 1
