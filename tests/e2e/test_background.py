"""Packing beside the requests: nobody waits for a summary that the next request can do without (rule 6.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e import agent
from tests.e2e.carryon import Carryon
from tests.e2e.scribe import Request, Scribe, good, message
from tests.e2e.stored import PATIENT, proxied
from tests.e2e.talk import WINDOW, Client, Reply, body, history
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

LIMIT = 1_000
#: Steps after which a history is below its threshold, over it, over it by some more, and over what fits at all.
BELOW, OVER, MORE, FULL = 10, 12, 13, 15
ON = {"CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "true", **PATIENT}


class Gate:
    """A summariser that answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.open = asyncio.Event(), asyncio.Event()
        self.gone = False

    async def __call__(self, request: Request, number: int) -> web.Response:
        """Wait, then answer well."""
        del request
        self.asked.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.gone = True
            raise
        return message(good(number))


@asynccontextmanager
async def _carried(
    upstream: Scribe, ledger: Server, state: Path, **environment: str
) -> AsyncIterator[tuple[Carryon, Client]]:
    running = proxied(ledger, upstream.url, state, "--window", str(WINDOW), **{**ON, **environment})
    async with Client(await running.start(), "sk-background") as client:
        yield running, client
    assert await running.stop() == 0
    assert not running.events("internal-fault")
    assert not running.events("background-failed")


async def _turn(client: Client, model: str, steps: int, **headers: str) -> Reply:
    sent = body(model, history(steps), tools=agent.TOOLS, max_tokens=LIMIT)
    return await client.post(sent, x_session_id=model, **headers)


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.02)


async def test_a_request_that_fits_never_waits_and_the_next_is_projected(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """Two turns pass as they came while one summary is made; then what it made stands in its place."""
    gate = upstream.summarisers["fits"] = Gate()
    async with _carried(upstream, ledger, tmp_path) as (running, client):
        assert (await _turn(client, "fits", BELOW)).headers["x-carryon-skip"] == "below"
        for steps in (OVER, MORE):
            reply = await _turn(client, "fits", steps)
            assert (reply.action, reply.headers["x-carryon-skip"]) == ("pass", "background")
            await asyncio.wait_for(gate.asked.wait(), 30)
        seen = upstream.of("fits", summaries=False)
        assert [len(one.json["messages"]) for one in seen] == [len(history(steps)) for steps in (BELOW, OVER, MORE)]
        gate.open.set()
        await _until(lambda: running.events("commit"))
        assert (await _turn(client, "fits", MORE)).action == "projected"
    assert len(upstream.of("fits", summaries=True)) == 1
    assert [one["trigger"] for one in running.events("commit")] == ["pressure"]


async def test_a_request_that_would_not_fit_waits_for_what_is_under_way(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """It does not pay for a summary of its own."""
    gate = upstream.summarisers["full"] = Gate()
    async with _carried(upstream, ledger, tmp_path) as (running, client):
        assert (await _turn(client, "full", OVER)).headers["x-carryon-skip"] == "background"
        await asyncio.wait_for(gate.asked.wait(), 30)
        waiting = asyncio.create_task(_turn(client, "full", FULL))
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done
        gate.open.set()
        reply = await waiting
        assert (reply.status, reply.action, reply.generation) == (200, "projected", 1)
    assert len(upstream.of("full", summaries=True)) == 1
    assert len(running.events("commit")) == 1


async def test_usage_over_the_threshold_packs_after_the_reply(upstream: Scribe, ledger: Server, tmp_path: Path) -> None:
    """What the upstream counted is exact, whatever we estimated; a history without an answer waits for one."""
    upstream.usage["after"] = {"prompt_tokens": 12_000, "completion_tokens": 1_200, "total_tokens": 13_200}
    async with _carried(upstream, ledger, tmp_path) as (running, client):
        assert (await _turn(client, "after", 0)).action == "pass"
        assert (await _turn(client, "after", BELOW)).headers["x-carryon-skip"] == "below"
        await _until(lambda: running.events("commit"))
        assert (await _turn(client, "after", BELOW + 1)).action == "projected"
    assert len(upstream.of("after", summaries=True)) == 1


async def test_two_replicas_pay_for_one_summary(upstream: Scribe, ledger: Server, tmp_path: Path) -> None:
    """The second finds the lease among the notes, and later the surface (rule 5.7)."""
    gate = upstream.summarisers["replicas"] = Gate()
    async with (
        _carried(upstream, ledger, tmp_path / "a") as (first, client),
        _carried(upstream, ledger, tmp_path / "b") as (_, other),
    ):
        await _turn(client, "replicas", OVER)
        await asyncio.wait_for(gate.asked.wait(), 30)
        for _ in range(2):
            assert (await _turn(other, "replicas", OVER)).headers["x-carryon-skip"] == "background"
        gate.open.set()
        await _until(lambda: first.events("commit"))
        assert (await _turn(other, "replicas", MORE)).action == "projected"
    assert len(upstream.of("replicas", summaries=True)) == 1


async def test_a_client_that_leaves_takes_the_work_along(upstream: Scribe, ledger: Server, tmp_path: Path) -> None:
    """While it waits for its reply: nothing more is spent for it within a second (rule 3.6)."""
    gate = upstream.summarisers["left"] = Gate()
    upstream.holds["left"] = asyncio.Event()
    async with _carried(upstream, ledger, tmp_path) as (running, client):
        asked = asyncio.create_task(_turn(client, "left", OVER))
        await asyncio.wait_for(gate.asked.wait(), 30)
        asked.cancel()
        await asyncio.wait_for(_until(lambda: gate.gone), 1)
    assert not running.events("commit")


async def test_a_stop_abandons_what_nobody_waits_for(upstream: Scribe, ledger: Server, tmp_path: Path) -> None:
    """SIGTERM does not wait for the summary, and the upstream is told."""
    gate = upstream.summarisers["stopped"] = Gate()
    async with _carried(upstream, ledger, tmp_path) as (running, client):
        await _turn(client, "stopped", OVER)
        await asyncio.wait_for(gate.asked.wait(), 30)
    await _until(lambda: gate.gone)
    assert not running.events("commit")
    assert not running.events("work-left-behind")


async def test_without_it_a_request_waits_for_its_own_summary(upstream: Scribe, ledger: Server, tmp_path: Path) -> None:
    """`pressure.after_reply: false`: the request that crosses the threshold is packed before it is sent."""
    off = {"CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "false"}
    async with _carried(upstream, ledger, tmp_path, **off) as (_, client):
        assert (await _turn(client, "waits", OVER)).action == "pressure"
