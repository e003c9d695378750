"""The admin listener's probes."""

from __future__ import annotations

import pytest

from proxy.admin.door import Door
from proxy.message import Incoming
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server
from tests.sockets import exchange


async def ask(door: Door, target: str, method: str = "GET") -> tuple[int, object]:
    """Ask once, without any header."""
    got = await door(Incoming(method=method, target=target, headers=()))
    return got.status, got.body


async def test_alive_is_alive_even_while_draining() -> None:
    """`/livez` touches nothing."""
    assert (await ask(Door(lambda: None), "/livez"))[0] == 200


async def test_ready_says_what_is_degraded() -> None:
    """Redis away is ready, but degraded."""
    assert await ask(Door(lambda: ("redis",)), "/readyz?x") == (200, b'{"status":"ready","degraded":["redis"]}')
    assert (await ask(Door(tuple), "/readyz"))[1] == b'{"status":"ready","degraded":[]}'


async def test_draining_is_not_ready() -> None:
    """503 takes this replica out of the balancer."""
    assert (await ask(Door(lambda: None), "/readyz"))[0] == 503


@pytest.mark.parametrize(
    ("target", "method"),
    [("/", "GET"), ("/metrics", "GET"), ("/livez", "POST"), ("/livez/", "GET"), ("/api/conversations", "GET")],
)
async def test_a_listener_of_probes_alone_has_nothing_else(target: str, method: str) -> None:
    """404."""
    assert (await ask(Door(tuple), target, method))[0] == 404


async def test_an_agent_that_was_pointed_here_is_told_where_to_go() -> None:
    """Whether the path could be a client's or not."""
    server = Server(Door(tuple), ServerBounds())
    try:
        admin = await server.listen_admin()
        for target in (b"/v1/chat/completions", b"/v1/../x"):
            head = b"POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\n" % target
            got = await exchange(admin, head + b"{}")
            assert b" 404 " in got
            assert b"this is the probe port; clients use listen.port" in got
    finally:
        await server.close()
