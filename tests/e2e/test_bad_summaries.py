"""Summaries that are none, end to end: nothing bad is stored, each turn is answered, after two the outline serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from tests.e2e import scribe, talk
from tests.e2e.scribe import Request, Scribe, good, message
from tests.e2e.stored import proxied, records, stored
from tests.e2e.talk import WINDOW, Client, Reply, body, history
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
    """One of the conversation's, or where there is no such message the end of the transcript that holds them."""
    results = [one["content"] for one in request.json["messages"] if one["role"] == "tool"]
    return message(results[0] if results else request.said.rpartition("\n")[0][-3_000:])


async def _only_thinks(request: Request, number: int) -> web.Response:
    return message("", reasoning_content=good(number))


async def _rambles(request: Request, number: int) -> web.Response:
    return message(good(number) + "\n" + "and so on, and so on; " * 4_000)


async def _errs(request: Request, number: int) -> web.Response:
    return message("Error: upstream timed out while it was waiting for the model. " * 9)


async def _overflows(request: Request, number: int) -> web.Response:
    error = {"message": "This model's maximum context length is 9 tokens.", "code": "context_length_exceeded"}
    return web.json_response({"error": error}, status=400)


BAD = [
    _empty, _cut, _calls, _declines, _limited, _hangs, _echoes_the_order, _echoes_a_result, _only_thinks, _rambles,
    _errs, _overflows,
]  # fmt: skip
#: The windows of those who summarise for another model, by the rung which that leaves; and the calls of one turn.
RUNGS = {"S1": (0, 1), "S2": (65_536, 1), "S3": (7_000, 2)}


def _named(rung: str, summariser: scribe.Summariser) -> str:
    return f"{rung}-bad{summariser.__name__}"


def _late(summariser: scribe.Summariser) -> scribe.Summariser:
    """One that is bad only once there is a good summary of the first part."""

    async def answer(request: Request, number: int) -> web.Response:
        good_so_far = "It is part 1 of" in request.said
        return await (scribe.summarises_well if good_so_far else summariser)(request, number)

    return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(upstream: Scribe, ledger: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a proxy on which other models write the summaries of some."""
    state = tmp_path_factory.mktemp("rungs")
    models: list[dict[str, object]] = []
    for rung, (window, _) in RUNGS.items():
        for name in (_named(rung, bad) for bad in BAD if window):
            models += [
                {"model": name, "summary": {"model": f"to-{name}"}},
                {"model": f"to-{name}", "context_window": window},
            ]
    (state / "carryon.yaml").write_text(json.dumps({"defaults": {"context_window": WINDOW}, "models": models}))
    running = proxied(ledger, upstream.url, state, "--config", str(state / "carryon.yaml"))
    async with Client(await running.start()) as found:
        yield found
    assert await running.stop() == 0
    assert not running.events("internal-fault")


#: One that hangs takes its time; on S2 it would show nothing new.
CASES = [(rung, bad) for bad in BAD for rung in RUNGS if (rung, bad) != ("S2", _hangs)]


@pytest.mark.parametrize(("rung", "summariser"), CASES, ids=lambda one: getattr(one, "__name__", one).strip("_"))
async def test_a_bad_summary_is_never_stored_and_after_two_the_outline_serves(
    client: Client, upstream: Scribe, ledger: Server, summariser: scribe.Summariser, rung: str
) -> None:
    """Each turn is answered; two raw with a failed call each, the third packed by the outline without a call."""
    model = _named(rung, summariser)
    window, calls = RUNGS[rung]
    asked = f"to-{model}" if window else model
    upstream.summarisers[asked] = _late(summariser) if calls > 1 else summariser
    for number in (1, 2):
        sent = body(model, history(OVER + number - 1), max_tokens=LIMIT)
        reply = await client.post(sent, key=model)
        assert (reply.status, reply.action) == (200, "pass")
        assert upstream.of(model, summaries=False)[-1].body == sent
        assert len(upstream.of(asked, summaries=True)) == number * calls
        assert records(ledger, reply.conversation) == []
    reply = await _turn(client, model, history(OVER + 1))
    assert (reply.status, reply.action, reply.generation) == (200, "pressure", 1)
    assert len(upstream.of(asked, summaries=True)) == 2 * calls
    found = await stored(ledger, reply.conversation)
    assert [(surface.summary, surface.provenance) for surface in found.surfaces] == [("S4", None)]
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
