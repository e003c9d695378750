"""Summaries that are none, end to end: nothing bad is stored, each turn is answered, after two the outline serves."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from tests.e2e import scribe, talk
from tests.e2e.scribe import Request, Scribe, good, message
from tests.e2e.stored import records, stored
from tests.e2e.talk import Client, Reply, body, history
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

LIMIT = 1_000
#: Steps after which a history is over the threshold, and beyond the window less the reserve.
OVER, TOO_MUCH = 13, 15


async def _turn(client: Client, model: str, messages: list[talk.Message]) -> Reply:
    """Send a turn under a credential of the model's own: conversations are not kept apart by model."""
    return await client.post(body(model, messages, max_tokens=LIMIT), key=model)


async def _empty(request: Request, number: int) -> web.Response:
    return message("")


async def _cut(request: Request, number: int) -> web.Response:
    return message(good(number), finish="length")


async def _calls(request: Request, number: int) -> web.Response:
    function = {"name": "read_file", "arguments": "{}"}
    return message(good(number), tool_calls=[{"id": "c", "type": "function", "function": function}])


async def _declines(request: Request, number: int) -> web.Response:
    return message("I'm sorry, but I can't help with that request. " + "It is not something that I may do. " * 20)


async def _limited(request: Request, number: int) -> web.Response:
    return web.json_response({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status=429)


async def _hangs(request: Request, number: int) -> web.Response:
    await asyncio.sleep(20)
    return message(good(number))


async def _echoes_the_order(request: Request, number: int) -> web.Response:
    return message(request.json["messages"][-1]["content"])


async def _echoes_a_result(request: Request, number: int) -> web.Response:
    return message(next(one["content"] for one in request.json["messages"] if one["role"] == "tool"))


async def _only_thinks(request: Request, number: int) -> web.Response:
    return message("", reasoning_content=good(number))


async def _rambles(request: Request, number: int) -> web.Response:
    return message(good(number) + "\n" + "and so on, and so on; " * 4_000)


BAD = [
    _empty, _cut, _calls, _declines, _limited, _hangs, _echoes_the_order, _echoes_a_result, _only_thinks, _rambles
]  # fmt: skip


@pytest.mark.parametrize("summariser", BAD, ids=lambda one: one.__name__.strip("_"))
async def test_a_bad_summary_is_never_stored_and_after_two_the_outline_serves(
    client: Client, upstream: Scribe, ledger: Server, summariser: scribe.Summariser
) -> None:
    """Each turn is answered; two raw with a failed call each, the third packed by the outline without a call."""
    model = f"bad{summariser.__name__}"
    upstream.summarisers[model] = summariser
    for number in (1, 2):
        sent = body(model, history(OVER + number - 1), max_tokens=LIMIT)
        reply = await client.post(sent, key=model)
        assert (reply.status, reply.action) == (200, "pass")
        assert upstream.of(model, summaries=False)[-1].body == sent
        assert len(upstream.of(model, summaries=True)) == number
        assert records(ledger, reply.conversation) == []
    reply = await _turn(client, model, history(OVER + 1))
    assert (reply.status, reply.action, reply.generation) == (200, "pressure", 1)
    assert len(upstream.of(model, summaries=True)) == 2
    found = await stored(ledger, reply.conversation)
    assert [surface.summary for surface in found.surfaces] == ["S4"]
    assert "as of summary" not in json.dumps(scribe.split(upstream.requests[-1].body)[1][1].decode())


async def test_where_the_request_would_not_fit_a_bad_summary_gives_way_to_the_outline(
    client: Client, upstream: Scribe, ledger: Server
) -> None:
    """Beyond window less reserve there is no raw turn to fall back to: one call, then S4 in the same turn."""
    upstream.summarisers["beyond"] = _cut
    reply = await _turn(client, "beyond", history(TOO_MUCH))
    assert (reply.status, reply.action, reply.generation) == (200, "pressure", 1)
    assert len(upstream.of("beyond", summaries=True)) == 1
    assert [one.summary for one in (await stored(ledger, reply.conversation)).surfaces] == ["S4"]


async def test_a_good_summary_after_a_bad_one_keeps_the_model_in_use(client: Client, upstream: Scribe) -> None:
    """Only failures in a row rest the summariser."""

    async def first_bad(request: Request, number: int) -> web.Response:
        return message("" if number % 2 else good(number))

    upstream.summarisers["mixed"] = first_bad
    replies = [await _turn(client, "mixed", history(OVER)) for _ in range(2)]
    assert [one.action for one in replies] == ["pass", "pressure"]
    other = history(OVER, task="Another task of another session, which is long enough to be told apart.")
    replies = [await _turn(client, "mixed", other) for _ in range(2)]
    assert [one.action for one in replies] == ["pass", "pressure"]
    assert len(upstream.of("mixed", summaries=True)) == 4
