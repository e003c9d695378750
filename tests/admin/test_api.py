"""The admin API over real sockets and a real store."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from proxy.admin.api import Api
from proxy.admin.door import Door
from proxy.admin.guard import Guard
from proxy.core.identity import opaque
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Listener
from proxy.store.redis import RedisLedger
from tests.shelf import SUMMARY, body, conversations, shelve
from tests.sockets import Raw, client
from tests.store.servers import SEALS, Server

Ask = Callable[..., Any]
#: Nobody's.
UNKNOWN = "fedcba98" * 4


@pytest.fixture
def tenant() -> str:
    """One that nothing is stored of."""
    return secrets.token_hex(16)


async def send(port: int, request: str) -> Raw:
    """Send one request on a connection of its own."""
    async with client(port) as peer:
        await peer.send(f"{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return await peer.message(bodiless=request.startswith("HEAD"))


@pytest.fixture
async def serving() -> AsyncIterator[Callable[..., Any]]:
    """Listen for the API of a ledger; returns the port."""
    listeners: list[Listener] = []

    async def listen(ledger: RedisLedger, *, show_text: bool = False) -> int:
        door = partial(Door, guard=Guard(host="127.0.0.1"), inside=Api(ledger, show_text=show_text))
        listeners.append(Listener(door(tuple), ServerBounds(), admin=door))
        return await listeners[-1].listen_admin()

    yield listen
    for listener in listeners:
        await listener.close()


async def test_conversations_are_listed_newest_first(ledger: RedisLedger, serving: Ask, tenant: str) -> None:
    """Of one tenant or of all."""
    for number, at in enumerate((1_000, 3_000, 2_000)):
        await shelve(ledger, f"{tenant}.{number}{'0' * 31}", body(4), at=at)
    port = await serving(ledger)
    got = await send(port, f"GET /api/conversations?tenant={tenant}")
    told = json.loads(got.body)
    assert [row["id"][0] for row in told["conversations"]] == ["1", "2", "0"]
    assert told["cursor"] is None
    assert {row["tenant"] for row in told["conversations"]} == {tenant}
    assert SUMMARY.encode() not in got.body
    assert got.values(b"cache-control") == [b"no-store"]
    everything = json.loads((await send(port, "GET /api/conversations?limit=1000")).body)
    assert {row["id"] for row in told["conversations"]} <= {row["id"] for row in everything["conversations"]}


async def test_ten_thousand_conversations_come_page_by_page(
    valkey: Server, ledger: RedisLedger, serving: Ask, tenant: str
) -> None:
    """Each once, no page much over its limit, none of another tenant."""
    like = f"{tenant}.{'0' * 32}"
    await shelve(ledger, like, body(4))
    made = conversations(valkey, like, 10_000)
    port, asked = await serving(ledger), made[0].partition(".")[0]
    seen: list[str] = []
    cursor, pages = "0", 0
    while cursor is not None:
        got = json.loads((await send(port, f"GET /api/conversations?tenant={asked}&limit=500&cursor={cursor}")).body)
        assert len(got["conversations"]) < 1_500
        seen += [row["id"] for row in got["conversations"]]
        cursor, pages = got["cursor"], pages + 1
    assert sorted(seen) == sorted(map(opaque, made))
    assert pages > 3
    await ledger.catalogue.forget(made)


async def test_one_conversation_is_shown_with_its_surfaces_and_no_text(
    ledger: RedisLedger, serving: Ask, conversation: str
) -> None:
    """By its id alone, or by tenant and id."""
    await shelve(ledger, conversation, body(4))
    port = await serving(ledger)
    for name in (opaque(conversation), conversation):
        got = await send(port, f"GET /api/conversations/{name}")
        told = json.loads(got.body)
        assert told["conversation"]["id"] == opaque(conversation)
        assert [row["provenance"]["model"] for row in told["surfaces"]] == ["writer-1"]
        assert SUMMARY.encode() not in got.body
    assert (await send(port, f"HEAD /api/conversations/{opaque(conversation)}")).status == 200


async def test_text_is_shown_and_exported_only_where_the_operator_says_so(
    ledger: RedisLedger, serving: Ask, conversation: str
) -> None:
    """`admin.show_text`."""
    await shelve(ledger, conversation, body(4))
    await shelve(ledger, conversation, body(6), covered=6)
    path = f"/api/conversations/{opaque(conversation)}"
    closed, opened = await serving(ledger), await serving(ledger, show_text=True)
    refused = await send(closed, f"GET {path}/export")
    assert (refused.status, refused.values(b"x-carryon-error")) == (403, [b"PROXY_FORBIDDEN"])
    assert b"admin.show_text" in refused.body
    assert SUMMARY.encode() in (await send(opened, f"GET {path}")).body
    got = await send(opened, f"GET {path}/export")
    first, *rest = map(json.loads, got.body.splitlines())
    assert first["conversation"]["id"] == opaque(conversation)
    assert [row["surface"]["generation"] for row in rest] == [1, 2]
    assert rest[0]["surface"]["parts"][0]["put"]["content"] == SUMMARY


async def test_a_conversation_is_forgotten_by_its_whole_id(
    ledger: RedisLedger, serving: Ask, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that begins alike stays, and a second time there is nothing to forget."""
    gone, stays = f"{tenant}.{'1' * 32}", f"{tenant}.{'1' * 31}2"
    for name in (gone, stays):
        await shelve(ledger, name, body(4))
    port = await serving(ledger)
    for short in ("1" * 31, "1", "*", "1*", "[0-9]" * 32, f"{tenant}.{'1' * 31}"):
        assert (await send(port, f"DELETE /api/conversations/{short}")).status == 404
    assert (await send(port, f"DELETE /api/conversations/{gone}/export")).status == 404
    assert (await ledger.load(gone)).generation == 1
    with caplog.at_level("INFO", "carryon"):
        assert json.loads((await send(port, f"DELETE /api/conversations/{gone}")).body) == {"forgotten": 1}
    assert [vars(one)["conversation"] for one in caplog.records if one.msg == "forgotten"] == [opaque(gone)]
    assert (await ledger.load(gone)).epoch is None
    assert (await ledger.load(stays)).generation == 1
    assert (await send(port, f"DELETE /api/conversations/{opaque(gone)}")).status == 404


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (f"GET /api/conversations/{UNKNOWN}", 404),
        (f"GET /api/conversations/{UNKNOWN}/export", 404),
        (f"GET /api/conversations/{'A' * 32}", 404),
        (f"GET /api/conversations/x.{UNKNOWN}", 404),
        (f"GET /api/conversations/{'0' * 32}/", 404),
        ("GET /api/conversations/", 404),
        ("GET /api/", 404),
        ("DELETE /api/conversations", 404),
        ("POST /api/conversations", 404),
        (f"PUT /api/conversations/{UNKNOWN}", 404),
        (f"PATCH /api/conversations/{UNKNOWN}", 404),
        ("OPTIONS /api/conversations", 404),
        ("GET /api/conversations?limit=0", 400),
        ("GET /api/conversations?limit=1001", 400),
        ("GET /api/conversations?limit=-1", 400),
        ("GET /api/conversations?limit=%D9%A1", 400),
        ("GET /api/conversations?limit=1&limit=2", 400),
        ("GET /api/conversations?cursor=x", 400),
        ("GET /api/conversations?cursor=", 400),
        ("GET /api/conversations?cursor=18446744073709551616", 400),
        ("GET /api/conversations?tenant=*", 400),
        ("GET /api/conversations?tenant=", 400),
        ("GET /api/conversations?tenant=ffff*", 400),
        ("GET /api/conversations?token=secret", 400),
        (f"DELETE /api/conversations/{'0' * 32}?all=true", 400),
    ],
)
async def test_what_is_not_there_or_not_understood_is_an_answer(
    ledger: RedisLedger, serving: Ask, request_: str, status: int
) -> None:
    """With a code of ours, and never a fault."""
    got = await send(await serving(ledger), request_)
    assert got.status == status, got.body
    assert got.values(b"x-carryon-error")


async def test_a_store_that_is_away_is_503(serving: Ask) -> None:
    """And says nothing of where it is."""
    ledger = RedisLedger("redis://:hunter2@127.0.0.1:1/0", seals=SEALS, durability="memory")
    port = await serving(ledger)
    for request in (
        "GET /api/conversations",
        f"GET /api/conversations/{'0' * 32}",
        f"DELETE /api/conversations/{'0' * 32}",
    ):
        got = await send(port, request)
        assert (got.status, got.values(b"x-carryon-error")) == (503, [b"PROXY_STORE_UNAVAILABLE"])
        assert b"hunter2" not in got.body
    await ledger.close()
