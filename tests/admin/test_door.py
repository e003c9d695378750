"""What the admin listener answers to whom, over real sockets: probes and metrics to all, the rest past the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from proxy.admin.door import Door
from proxy.admin.guard import Guard
from proxy.message import Incoming, Outgoing
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server
from tests.sockets import Raw, client

TOKEN = "a-token-of-some-length"


async def inside(incoming: Incoming) -> Outgoing:
    """Stand for the API: says what reached it."""
    return Outgoing(status=200, headers=(), body=f"{incoming.method} {incoming.target}".encode())


@asynccontextmanager
async def listening(
    bound: str = "127.0.0.1", *, token: str | None = None, hosts: tuple[str, ...] = (), host: str = ""
) -> AsyncIterator[int]:
    """An admin listener on `bound`, guarded for `host` (else the same)."""
    guard = Guard(host=host or bound, hosts=hosts, token=token)
    door = partial(Door, guard=guard, inside=inside, metrics=lambda: ("text/plain; version=1.0.0", b"carryon_up 1\n"))
    server = Server(inside, ServerBounds(), admin=door)
    try:
        yield await server.listen_admin(bound)
    finally:
        await server.close()


async def ask(port: int, request: str, *headers: str) -> Raw:
    """Send one request on a connection of its own."""
    lines = [f"{request} HTTP/1.1", "Connection: close", *headers, "", ""]
    async with client(port) as peer:
        await peer.send("\r\n".join(lines).encode())
        return await peer.message(bodiless=request.startswith("HEAD"))


def code(raw: Raw) -> tuple[int, list[bytes]]:
    """The status and our own code."""
    return raw.status, raw.values(b"x-carryon-error")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
async def test_probes_and_metrics_are_for_all(path: str) -> None:
    """Off loopback, under any name, from any page, without a token: a kubelet and a Prometheus have none."""
    async with listening("0.0.0.0") as port:
        for method in ("GET", "HEAD"):
            got = await ask(port, f"{method} {path}", "Host: whatever.example", "Origin: https://evil.example")
            assert got.status == 200
        assert (await ask(port, f"POST {path}", "Host: h", "Content-Length: 0")).status == 404


async def test_metrics_come_as_they_are_made() -> None:
    """Content type and body."""
    async with listening() as port:
        got = await ask(port, "GET /metrics?x=1", "Host: h")
        assert got.values(b"content-type") == [b"text/plain; version=1.0.0"]
        assert got.body == b"carryon_up 1\n"


async def test_on_loopback_the_api_is_open_and_no_other_page_reaches_it() -> None:
    """A name that was pointed here, and a page of another origin, get 403."""
    async with listening() as port:
        here = f"Host: 127.0.0.1:{port}"
        assert (await ask(port, "GET /api/x", here)).body == b"GET /api/x"
        assert (await ask(port, "GET /api/x", here, f"Origin: http://127.0.0.1:{port}")).status == 200
        for headers in (
            (f"Host: evil.example:{port}",),
            (here, "Origin: https://evil.example"),
            (here, "Origin: null"),
            (here, "Host: evil.example"),
        ):
            got = await ask(port, "DELETE /api/x", *headers)
            assert got.status in {400, 403}, headers  # two Hosts are turned away below us or by the guard
        assert code(await ask(port, "GET /api/x", "Host: evil.example")) == (403, [b"PROXY_FORBIDDEN"])


async def test_off_loopback_the_api_is_closed_without_a_token_and_says_what_to_set() -> None:
    """Also for who comes from this machine; probes go on."""
    for bound in ("127.0.0.2", "0.0.0.0"):
        async with listening("0.0.0.0", host="0.0.0.0" if bound == "0.0.0.0" else "10.0.0.1") as port:
            got = await ask(port, "GET /api/x", "Host: 127.0.0.1", "Authorization: Bearer guess")
            assert code(got) == (403, [b"PROXY_FORBIDDEN"])
            assert b"admin.token" in got.body
            assert (await ask(port, "GET /livez", "Host: h")).status == 200


async def test_with_a_token_the_api_is_open_to_whoever_shows_it_in_a_header() -> None:
    """In the query it counts for nothing; under a name that is configured it counts."""
    async with listening("0.0.0.0", token=TOKEN, hosts=("admin.example",)) as port:
        bearer = f"Authorization: Bearer {TOKEN}"
        for name in ("127.0.0.1", "admin.example", f"[::1]:{port}"):
            assert (await ask(port, "GET /api/x", f"Host: {name}", bearer)).status == 200
        for request in (f"GET /api/x?token={TOKEN}", f"GET /api/x?access_token={TOKEN}"):
            assert code(await ask(port, request, "Host: 127.0.0.1")) == (401, [b"PROXY_UNAUTHORIZED"])
        refused = await ask(port, "GET /api/x", "Host: 127.0.0.1", "Authorization: Bearer wrong")
        assert refused.values(b"www-authenticate") == [b'Bearer realm="carryon"']
        assert TOKEN.encode() not in refused.head + refused.body


@pytest.mark.parametrize(
    "target",
    [
        "/livez/../api/x", "/livez/%2e%2e/api/x", "/livez/..%2fapi/x", "//api/x", "/API/x", "/api", "/%61pi/x",
        "/metrics/api/x", "/;/api/x", "http://127.0.0.1/api/x", "*", "/livez#/api/x", "/\\api/x",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_path_goes_past_the_guard(target: str) -> None:
    """What is not spelled plainly is not there."""
    async with listening(token=TOKEN) as port:
        got = await ask(port, f"GET {target}", "Host: 127.0.0.1")
        assert got.status in {400, 404}, got
        assert b"GET /" not in got.body
