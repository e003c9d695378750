"""No request chooses a host, and no credential goes where it was not meant for (rules 10.2, 11.4, 11.5).

Two things are watched: a listener that nobody configured must see no connection, and of all sockets that this process
connects, each must go to the configured upstreams, to the store, or (the test's own client) to Carryon.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.store.binary import find_server
from tests.e2e.bodies import CONVERSATION, WINDOW, spelt
from tests.e2e.carryon import Carryon
from tests.e2e.hostile import OVERFLOW, Seen, answered, between, replied, spelled, witness
from tests.e2e.scribe import INSTRUCTION, Scribe
from tests.sockets import reply, until
from tests.store.servers import Server

#: Names under which gateways, SDKs and servers take a host, a URL or a whole configuration from a request.
PARAMETERS = """
api_base base_url baseURL baseUrl api_url apiUrl apiBase endpoint endpoint_url url uri host hostname server proxy
custom_llm_provider provider custom_host customHost target target_url upstream upstream_url callback_url webhook_url
webhook redirect_uri deployment_url azure_endpoint azure_base_url aws_bedrock_runtime_endpoint aws_sts_endpoint
s3_endpoint_url sagemaker_base_url vertex_api_base langfuse_host langsmith_base_url arize_endpoint slack_webhook_url
openai_api_base OPENAI_BASE_URL OPENAI_API_BASE organization_url model_url model_list fallbacks router_settings
user_config litellm_params guardrails mcp_servers server_url image_url file_url
""".split()  # noqa: SIM905 - words read better than a column of quotes
#: Headers with the same intent, and those by which a proxy is told another host or path.
HEADERS = """
x-portkey-custom-host x-portkey-config x-portkey-provider x-portkey-forward-headers x-litellm-api-base x-litellm-base-
url x-api-base api-base base-url x-base-url x-target-url x-upstream-url x-upstream x-endpoint x-openai-base-url
helicone-target-url helicone-openai-api-base cf-aig-custom-host x-stainless-base-url x-new-api-base x-forwarded-host
x-forwarded-server x-forwarded-proto x-forwarded-for forwarded x-original-host x-original-url x-rewrite-url x-host
x-http-host-override x-http-method-override x-real-ip true-client-ip x-envoy-original-path x-envoy-upstream-rq-url
proxy-connection via referer origin destination location refresh alt-svc x-accel-redirect x-sendfile x-proxy-url http-
proxy proxy
""".split()  # noqa: SIM905 - as above
_OK = reply(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}')
_SMALL: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class _Audit:
    """All addresses that sockets of this process are connected to, and all names that are looked up, while it runs."""

    def __init__(self) -> None:
        self.running = False
        self.connected: set[object] = set()
        self.resolved: set[object] = set()
        sys.addaudithook(self._hook)  # for good: an audit hook cannot be taken away

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.running:
            return
        if event in {"socket.connect", "socket.sendto"}:
            address = arguments[1]
            self.connected.add(tuple(address[:2]) if isinstance(address, tuple) else str(address))
        elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
            self.resolved.add(arguments[0])

    @contextmanager
    def watching(self) -> Iterator[_Audit]:
        """Note from here on."""
        self.connected.clear()
        self.resolved.clear()
        self.running = True
        try:
            yield self
        finally:
            self.running = False


_AUDIT = _Audit()


@dataclass(slots=True)
class Canary:
    """A listener that nobody configured."""

    port: int = 0
    connections: int = 0
    heard: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where an attacker would like to be called."""
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def canary() -> AsyncIterator[Canary]:
    """Listen, and answer whoever comes as a model would."""
    found = Canary()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        found.heard.append(await reader.read(1 << 16))
        writer.write(_OK)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


def _bodies(url: str) -> Iterator[bytes]:
    """Each parameter alone, at every depth at which some gateway looks for it, and all of them together."""
    for name in PARAMETERS:
        for value in (url, {"url": url, "api_base": url}, [{"litellm_params": {"api_base": url}, "url": url}]):
            yield spelt({**_SMALL, name: value})
    every = dict.fromkeys(PARAMETERS, url)
    for place in ("metadata", "litellm_params", "litellm_metadata", "extra_body", "extra_query", "options", "provider"):
        yield spelt({**_SMALL, place: every})
        yield spelt({**_SMALL, place: {"extra_body": every, "headers": dict.fromkeys(HEADERS, url)}})
    yield spelt({**_SMALL, "tools": [{"type": "mcp", "function": {"name": "f"}, **every}]})
    yield spelt({**_SMALL, "messages": [{"role": "user", "content": [{"type": "image_url", **every}], **every}]})
    yield spelt({**every, **_SMALL})
    yield spelt({**_SMALL, "model": url})
    yield spelt({**_SMALL, "model": f"openai/{url}"})


def _headers(url: str, port: int) -> Iterator[bytes]:
    """Each header with a URL, with a host, and with what `Forwarded` and the like would hold."""
    for name in HEADERS:
        for value in (
            url,
            f"127.0.0.1:{port}",
            f'{{"custom_host":"{url}","api_base":"{url}"}}',
            f"host=127.0.0.1:{port}",
        ):
            yield f"{name}: {value}".encode()
    yield b"\r\n".join(f"{name}: {url}".encode() for name in HEADERS)


def _targets(url: str, port: int) -> Iterator[tuple[bytes, int]]:
    """Targets that name a host, and what becomes of them: an answer of ours, or 200 of the configured upstream."""
    host = f"127.0.0.1:{port}"
    query = "&".join(f"{name}={url}" for name in PARAMETERS)
    for target, status in (
        (url + "/chat/completions", 400),
        (f"{host}/v1/chat/completions", 400),
        (f"//{host}/v1/chat/completions", 200),
        (f"///{host}/v1/chat/completions", 200),
        (f"/{url}/chat/completions", 200),
        (f"/v1/{url}/chat/completions", 200),
        (f"/@{host}/v1/chat/completions", 200),
        (f"/u/{url}/chat/completions", 404),
        (f"/u/{host}/v1/chat/completions", 404),
        (f"/u/x@{host}/v1/chat/completions", 404),
        (f"/u//{host}/v1/chat/completions", 404),
        (f"/u/%2f%2f{host}/v1/chat/completions", 404),
        (f"/v1/chat/completions?{query}", 200),
        (f"/v1/models?{query}", 200),
        (f"/v1/chat/completions#@{host}/", 404),
        (f"/\\{host}/v1/chat/completions", 404),
        (f"/v1/..//{host}/", 404),
    ):
        yield target.encode(), status


async def test_no_parameter_and_no_header_opens_a_socket_elsewhere(valkey: Server) -> None:
    """Every request reaches the configured upstream once, as it came, and no socket goes anywhere else."""

    def accepts(seen: Seen) -> bytes:
        return reply(b"{}", status="404 No") if seen.start.startswith(b"GET /v1/models HTTP") else _OK

    bodies, headers, targets = 0, 0, 0
    async with canary() as trap, witness(accepts) as upstream, between(upstream.url, valkey) as run:
        with _AUDIT.watching() as audit:
            for bodies, body in enumerate(_bodies(trap.url), start=1):
                assert (await answered(run.port, spelled(body, case=bodies))).status == 200
                assert [one.body for one in upstream.of(bodies)] == [body]
            for headers, line in enumerate(_headers(trap.url, trap.port), start=1):
                assert (await answered(run.port, spelled(spelt(_SMALL), line, case=10_000 + headers))).status == 200
                (copy,) = upstream.of(10_000 + headers)
                assert copy.values(b"host") == [b"127.0.0.1:%d" % upstream.port]
            for targets, (target, status) in enumerate(_targets(trap.url, trap.port), start=1):
                got = await answered(run.port, spelled(spelt(_SMALL), target=target, case=20_000 + targets))
                assert (got.status, len(upstream.of(20_000 + targets))) == (status, status == 200), target
        allowed = {("127.0.0.1", upstream.port), ("127.0.0.1", run.port), str(valkey.socket)}
        assert audit.connected <= allowed
        assert audit.resolved <= {"127.0.0.1"}
        assert ("127.0.0.1", upstream.port) in audit.connected
        assert trap.connections == 0
    print(
        f"\nSSRF: {bodies} bodies, {headers} headers, {targets} targets;"
        f" sockets to {len(audit.connected)} addresses, all configured; canary connections 0"
    )


@pytest.mark.parametrize("window", [None, WINDOW], ids=["a question for the window", "a summary"])
@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_redirects_are_followed_by_nobody(status: int, window: int | None, valkey: Server) -> None:
    """Those of a turn pass; those of a summary and of a question for the window are no answer."""

    def redirected(_: Seen) -> bytes:
        lines = b"".join(b"%s: %s\r\n" % (name, trap.url.encode()) for name in (b"Location", b"Refresh", b"Alt-Svc"))
        return reply(b"elsewhere", status=f"{status} Elsewhere", headers=lines)

    async with (
        canary() as trap,
        witness(redirected) as upstream,
        between(upstream.url, valkey, window=window) as run,
    ):
        with _AUDIT.watching() as audit:
            got = await answered(run.port, spelled(spelt(CONVERSATION), case=1))
            await until(lambda: len(upstream.requests) > 1)
        assert (got.status, got.body) == (status, b"elsewhere")
        assert got.values(b"location") == [trap.url.encode()]
        assert any(map(_asks, upstream.requests)) is (window is not None)
        assert any(one.start.startswith(b"GET ") for one in upstream.requests) is (window is None)
        assert audit.connected <= {("127.0.0.1", upstream.port), ("127.0.0.1", run.port), str(valkey.socket)}
        assert trap.connections == 0


def _asks(seen: Seen) -> bool:
    return INSTRUCTION.encode() in seen.body


async def test_a_packed_conversation_is_summarised_where_it_is_sent(valkey: Server) -> None:
    """All parameters at once, over the threshold and refused as too long: no question and no summary goes elsewhere."""

    def answer(seen: Seen) -> bytes:
        turns = [one for one in upstream.of(1) if not _asks(one)]
        return reply(OVERFLOW % 6_000, status="400 Bad") if len(turns) == 1 and not _asks(seen) else _OK

    async with canary() as trap, witness(answer) as upstream, between(upstream.url, valkey, window=WINDOW) as run:
        every = dict.fromkeys(PARAMETERS, trap.url)
        lines = b"\r\n".join(f"{name}: {trap.url}".encode() for name in HEADERS)
        with _AUDIT.watching() as audit:
            await answered(run.port, spelled(spelt({**every, **CONVERSATION, "extra_body": every}), lines, case=1))
        assert any(map(_asks, upstream.requests))
        assert audit.connected <= {("127.0.0.1", upstream.port), ("127.0.0.1", run.port), str(valkey.socket)}
        assert trap.connections == 0


async def test_upgrades_and_tunnels_are_refused(valkey: Server) -> None:
    """A tunnel would be a socket to wherever the client likes."""
    async with canary() as trap, witness(lambda _: _OK) as upstream, between(upstream.url, valkey) as run:
        host = b"127.0.0.1:%d" % trap.port
        for raw, status in (
            (b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host), 400),
            (
                b"GET /v1/responses HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % host,
                426,
            ),
            (b"GET http://%s/v1/models HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host), 400),
        ):
            assert [one.status for one in await replied(run.port, raw)] == [status]
        assert (trap.connections, upstream.connections) == (0, 0)


async def test_proxies_of_the_environment_are_not_used(tmp_path: Path, valkey_of_its_own: Server) -> None:
    """The installed command, with every variable set by which programs are sent through a proxy."""
    async with canary() as trap, Scribe() as upstream:
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        environment = {cased: trap.url for name in names for cased in (name, name.lower())}
        running = Carryon(
            upstream.url,
            tmp_path,
            CARRYON_REDIS__URL=valkey_of_its_own.url,
            CARRYON_SECRET="a secret of at least thirty-two characters",
            NO_PROXY="",
            no_proxy="",
            **environment,
        )
        await running.start()
        port = int(running.url.split(":")[2].partition("/")[0])
        got = await answered(port, spelled(spelt({**CONVERSATION, "api_base": trap.url})))
        assert await running.stop() == 0
    assert got.status == 200
    assert len(upstream.requests) == 1
    assert trap.connections == 0


@pytest.fixture
def valkey_of_its_own() -> Iterator[Server]:
    """A secret is bound to its server."""
    server = Server(find_server())
    yield server
    server.stop()


_LENT, _CLIENT_KEY = "sk-lent-7d31", "client-key-5b02"
#: What a client may show, and under which name an upstream finds it.
_SHOWN = {
    "authorization": "Bearer sk-client-1",
    "x-api-key": "sk-client-2",
    "api-key": "sk-client-3",
    "x-goog-api-key": "sk-client-4",
}
_QUERY = "sk-client-5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A request, the upstream it must reach, and whose credential goes along: the client's, the lent one, or none."""

    to: str = ""
    whose: str = ""
    method: str = "POST"
    path: str = "/v1/chat/completions"
    model: str = "m"
    status: int = 200
    key: str = ""


ROWS = {
    "the default upstream gets the client's": Row(to="first", whose="client"),
    "a model nobody serves goes to the default": Row(to="first", whose="client", model="unknown"),
    "one chosen by its model does not": Row(to="other", whose="none", model="other-1"),
    "one named in the path does": Row(to="other", whose="client", path="/u/other/v1/chat/completions"),
    "one that accepts it does": Row(to="willing", whose="client", model="willing-1"),
    "one with a key of ours gets that": Row(to="keyed", whose="lent", model="keyed-1", key=_CLIENT_KEY),
    "and when it is named": Row(to="keyed", whose="lent", path="/u/keyed/v1/chat/completions", key=_CLIENT_KEY),
    "the default's other paths get the client's": Row(to="first", whose="client", method="GET", path="/v1/files"),
    "our key opens responses": Row(to="keyed", whose="lent", path="/u/keyed/v1/responses", key=_CLIENT_KEY),
    "and messages": Row(to="keyed", whose="lent", path="/u/keyed/v1/messages", key=_CLIENT_KEY),
    "and counting": Row(to="keyed", whose="lent", path="/u/keyed/v1/messages/count_tokens", key=_CLIENT_KEY),
    "and embeddings": Row(to="keyed", whose="lent", path="/u/keyed/v1/embeddings", key=_CLIENT_KEY),
    "and the models": Row(to="keyed", whose="lent", method="GET", path="/u/keyed/v1/models", key=_CLIENT_KEY),
    "and one model": Row(to="keyed", whose="lent", method="GET", path="/u/keyed/v1/models/a", key=_CLIENT_KEY),
    "and what is injected": Row(to="keyed", whose="lent", path="/u/keyed/v1/rerank", key=_CLIENT_KEY),
    "not files": Row(status=404, method="GET", path="/u/keyed/v1/files", key=_CLIENT_KEY),
    "not fine-tuning": Row(status=404, path="/u/keyed/v1/fine_tuning/jobs", key=_CLIENT_KEY),
    "not deleting a model": Row(status=404, method="DELETE", path="/u/keyed/v1/models/a", key=_CLIENT_KEY),
    "not reading answers": Row(status=404, method="GET", path="/u/keyed/v1/chat/completions", key=_CLIENT_KEY),
    "not keys": Row(status=404, method="GET", path="/u/keyed/key/list", key=_CLIENT_KEY),
    "not the root": Row(status=404, method="GET", path="/u/keyed", key=_CLIENT_KEY),
    "not by climbing": Row(status=404, method="GET", path="/u/keyed/v1/models/..%2ffiles", key=_CLIENT_KEY),
    "not by parameters": Row(status=404, method="GET", path="/u/keyed/v1/models/..;/files", key=_CLIENT_KEY),
    "not without a key of ours": Row(status=401, model="keyed-1"),
    "not with a part of one": Row(status=401, model="keyed-1", key=_CLIENT_KEY[:-1]),
    "not with more than one": Row(status=401, model="keyed-1", key=_CLIENT_KEY + "0"),
    "not with its digest": Row(status=401, model="keyed-1", key=hashlib.sha256(_CLIENT_KEY.encode()).hexdigest()),
    "not with the lent key": Row(status=401, model="keyed-1", key=_LENT),
    "and it is asked for before the path is judged": Row(status=401, method="GET", path="/u/keyed/v1/files"),
}


def _asked(row: Row, carrier: str) -> bytes:
    """The request of a row; the client's key (or its credential of that kind) is shown in `carrier`."""
    shown = dict(_SHOWN)
    query = f"?a=1&key={_QUERY}&b=2"
    if row.key and carrier == "query":
        query = f"?a=1&key={row.key}&b=2"
    elif row.key:
        shown[carrier] = f"Bearer {row.key}" if carrier == "authorization" else row.key
    lines = [
        f"{row.method} {row.path}{query} HTTP/1.1",
        "Host: h",
        *(f"{name}: {value}" for name, value in shown.items()),
    ]
    body = (
        json.dumps({"model": row.model, "messages": [{"role": "user", "content": "hi"}]})
        if row.method == "POST"
        else ""
    )
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


@pytest.mark.parametrize("carrier", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "query"])
async def test_each_credential_goes_where_it_belongs_and_nowhere_else(carrier: str, valkey: Server) -> None:
    """The table of rule 11.5; what Carryon asks on its own account for a window is held to it too."""
    async with (
        witness(lambda _: _OK) as first,
        witness(lambda _: _OK) as keyed,
        witness(lambda _: _OK) as other,
        witness(lambda _: _OK) as willing,
    ):
        places = {"first": first, "keyed": keyed, "other": other, "willing": willing}
        upstreams = {
            "first": first.url,
            "keyed": {"base_url": keyed.url, "api_key": _LENT, "serves": ["keyed-*"], "inject_paths": ["/v1/rerank"]},
            "other": {"base_url": other.url, "serves": ["other-*"]},
            "willing": {"base_url": willing.url, "serves": ["willing-*"], "accept_client_credential": True},
        }
        keys = [{"name": "team", "sha256": hashlib.sha256(_CLIENT_KEY.encode()).hexdigest()}]
        async with between("", valkey, upstreams=upstreams, client_keys=keys) as run:
            for name, row in ROWS.items():
                before = {place: len(seen.requests) for place, seen in places.items()}
                got = await answered(run.port, _asked(row, carrier))
                assert got.status == row.status, name
                await asyncio.sleep(0)
                for place, seen in places.items():
                    new = seen.requests[before[place] :]
                    assert any(_is_the_row(one, row) for one in new) is (place == row.to), (name, place)
                    for one in new:
                        assert _whose(one) == (row.whose or "none"), (name, place, one.head)
            log = run.log.getvalue()
    for secret in (_LENT, _CLIENT_KEY, _QUERY, *(value.removeprefix("Bearer ") for value in _SHOWN.values())):
        assert secret not in log


def _is_the_row(seen: Seen, row: Row) -> bool:
    """Whether this is the row's own request, and not a question of Carryon's: it has the client's query."""
    return seen.start.startswith(row.method.encode()) and b"a=1" in seen.start and b"b=2" in seen.start


def _whose(seen: Seen) -> str:
    """Whose credentials a request carries: all of the client's, ours, or none."""
    found = [value for name in _SHOWN for value in seen.values(name.encode())]
    keyed = b"key=" in seen.start
    if found == [_LENT.encode()] or found == [b"Bearer " + _LENT.encode()]:
        return "both" if keyed else "lent"
    if not found:
        return "query" if keyed else "none"
    return "client" if len(found) == len(_SHOWN) and all(b"sk-client" in value for value in found) else "both"
