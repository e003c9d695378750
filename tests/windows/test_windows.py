"""How big a model's window is, asked of real servers on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import aiohttp
import pytest
from aiohttp import web

from proxy.policy import Policy
from proxy.settings import UpstreamSettings
from proxy.settings.shape import Settings
from proxy.windows import Window, Windows
from proxy.windows.packaged import Table

AUTH = (("authorization", "Bearer k"),)
PACKAGED = {"gpt-4o": {"mode": "chat", "max_input_tokens": 128_000, "max_output_tokens": 16_384}}


class Server:
    """A server that answers what it was told, and remembers what it was asked."""

    def __init__(self) -> None:
        """Know no path yet."""
        self.replies: dict[str, Any] = {}
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        self.delay = 0.0
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        """Answer by method and path; a number is a status, nothing known is 404."""
        line = f"{request.method} {request.path}"
        self.asked.append((request.method, request.path, request.headers.get("authorization"), await request.read()))
        await asyncio.sleep(self.delay)
        reply = self.replies.get(line, 404)
        return web.Response(status=reply) if isinstance(reply, int) else web.json_response(reply)

    def count(self, path: str) -> int:
        """Count the questions for a path."""
        return sum(asked[1] == path for asked in self.asked)


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Start a real server on loopback."""
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield server
    await runner.cleanup()


@pytest.fixture
def clock() -> Clock:
    """Give the test a clock of its own."""
    return Clock()


@pytest.fixture
async def windows(clock: Clock) -> AsyncIterator[Callable[..., Windows]]:
    """Make `Windows` with the policies given by model."""
    made: list[Windows] = []
    async with aiohttp.ClientSession() as session:

        async def ask(
            upstream: str, method: str, url: str, headers: tuple[tuple[str, str], ...], body: bytes
        ) -> tuple[int, bytes]:
            assert upstream == "local"
            async with session.request(method, url, headers=headers, data=body or None, allow_redirects=False) as reply:
                return reply.status, await reply.read()

        def make(door: Callable[..., Awaitable[tuple[int, bytes]]] = ask, **policies: Policy) -> Windows:
            made.append(
                Windows(
                    lambda _upstream, model: policies.get(model, Policy()),
                    door,
                    clock=clock,
                    table=lambda: Table(PACKAGED),
                )
            )
            return made[-1]

        yield make
        for one in made:
            await one.close()


def _upstream(url: str) -> UpstreamSettings:
    return Settings.model_validate({"upstreams": {"local": url}}).default_upstream


async def _settled(windows: Windows, upstream: UpstreamSettings, model: str, **named: Any) -> Window | None:
    """Ask as a request does, let the background finish, look again."""
    windows.known(upstream, model, headers=AUTH, **named)
    await windows.ask(upstream, model, AUTH)
    await windows.warm()
    return windows.known(upstream, model, headers=AUTH, **named)


async def test_yaml_stands_before_all(windows: Any, server: Server) -> None:
    """With its kind written too, nothing is asked."""
    server.replies["GET /v1/models"] = {"data": [{"id": "m", "max_model_len": 65536}]}
    known = windows(m=Policy(window=9000, window_kind="input")).known(_upstream(server.url), "m", headers=AUTH)
    assert known == Window(tokens=9000, kind="input", source="yaml", adds_output=True)
    await asyncio.sleep(0.01)
    assert server.asked == []


async def test_a_window_of_yaml_learns_from_the_server_whether_output_is_added(windows: Any, server: Server) -> None:
    """llama.cpp only stops at its window."""
    server.replies["GET /props"] = {"default_generation_settings": {"n_ctx": 65536}}
    known = await _settled(windows(m=Policy(window=9000)), _upstream(server.url), "m")
    assert known == Window(tokens=9000, kind="total", source="yaml", adds_output=False)


async def test_the_first_answer_waits_for_nothing_and_the_next_knows(windows: Any, server: Server) -> None:
    """Asked in the background, with the credential of the request."""
    server.replies["GET /v1/models"] = {"data": [{"id": "m", "max_model_len": 65536}]}
    made = windows()
    upstream = _upstream(server.url)
    assert made.known(upstream, "m", headers=AUTH) is None
    assert await _settled(made, upstream, "m") == Window(tokens=65536, kind="total", source="asked", adds_output=True)
    assert server.asked == [("GET", "/v1/models", "Bearer k", b"")]


@pytest.mark.parametrize(
    ("line", "reply", "tokens"),
    [
        ("GET /v1/models", {"data": [{"id": "x.gguf", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}]}, 2048),
        ("GET /props", {"default_generation_settings": {"n_ctx": 1024}}, 1024),
        ("POST /api/show", {"parameters": "num_ctx 4096", "model_info": {"llama.context_length": 131072}}, 4096),
    ],
)
async def test_servers_that_stop_at_their_window_do_not_add_the_output(
    windows: Any, server: Server, line: str, reply: Any, tokens: int
) -> None:
    """llama.cpp and Ollama, asked at the root of the server."""
    server.replies[line] = reply
    known = await _settled(windows(), _upstream(server.url + "/v1"), "m")
    assert known == Window(tokens=tokens, kind="total", source="asked", adds_output=False)
    assert {asked[0] for asked in server.asked if asked[1] != "/api/show"} == {"GET"}
    assert all(asked[3] == b'{"model":"m"}' for asked in server.asked if asked[1] == "/api/show")


async def test_what_ollama_has_loaded_stands_before_what_the_model_can_hold(windows: Any, server: Server) -> None:
    """Else a guess serves, and is asked again soon."""
    server.replies["POST /api/show"] = {"model_info": {"llama.context_length": 131072}}
    made, upstream = windows(), _upstream(server.url)
    guess = await _settled(made, upstream, "m")
    assert guess is not None
    assert guess.tokens == 131072
    server.replies["GET /api/ps"] = {"models": [{"name": "m:latest", "context_length": 4096}]}
    other = windows()
    known = await _settled(other, upstream, "m")
    assert known is not None
    assert known.tokens == 4096


async def test_what_the_upstream_says_stands_before_the_table(windows: Any, server: Server) -> None:
    """A local server may call its model gpt-4o."""
    server.replies["GET /v1/models"] = {"data": [{"id": "gpt-4o", "meta": {"n_ctx": 2048}}]}
    made, upstream = windows(), _upstream(server.url)
    await made.warm()
    first = made.known(upstream, "gpt-4o")
    assert first == Window(tokens=128_000, kind="total", source="packaged", adds_output=True)
    assert (await _settled(made, upstream, "gpt-4o")) == Window(
        tokens=2048, kind="total", source="asked", adds_output=False
    )


async def test_a_model_that_nobody_knows_has_no_window(windows: Any, server: Server) -> None:
    """Then there is no pressure for it."""
    assert await _settled(windows(), _upstream(server.url), "m") is None


@pytest.mark.parametrize("failure", [404, 500, {"data": "x"}])
async def test_a_failure_is_remembered_for_minutes(windows: Any, server: Server, clock: Clock, failure: Any) -> None:
    """Not every request asks again."""
    server.replies = dict.fromkeys(["GET /v1/models", "GET /props", "POST /api/show"], failure)
    made, upstream = windows(), _upstream(server.url)
    await _settled(made, upstream, "m")
    asked = len(server.asked)
    clock.now = 299.0
    await _settled(made, upstream, "m")
    assert len(server.asked) == asked
    clock.now = 301.0
    server.replies = {"GET /v1/models": {"data": [{"id": "m", "max_model_len": 65536}]}}
    known = await _settled(made, upstream, "m")
    assert known is not None
    assert known.tokens == 65536


async def test_a_bad_credential_blocks_its_own_client_for_seconds_only(
    windows: Any, server: Server, clock: Clock
) -> None:
    """A refusal of the credential says nothing of the model."""
    server.replies = dict.fromkeys(["GET /v1/models", "GET /props", "POST /api/show"], 401)
    made, upstream = windows(), _upstream(server.url)
    await _settled(made, upstream, "m")
    server.replies = {"GET /v1/models": {"data": [{"id": "m", "max_model_len": 65536}]}}
    assert await _settled(made, upstream, "m") is None
    clock.now = 31.0
    known = await _settled(made, upstream, "m")
    assert known is not None
    assert known.tokens == 65536


async def test_two_upstreams_of_one_address_are_asked_each_by_itself(server: Server) -> None:
    """They may differ in proxy, authorities and credential: what one was told is not the other's."""
    asked: list[str] = []

    async def ask(upstream: str, *_: object) -> tuple[int, bytes]:
        asked.append(upstream)
        return 200, b'{"data": [{"id": "m", "max_model_len": %d}]}' % (4096 * len(asked))

    given = Settings.model_validate({"upstreams": {"a": server.url, "b": server.url}})
    made = Windows(lambda *_: Policy(), ask, table=lambda: Table({}))
    found = [await _settled(made, upstream, "m") for upstream in given.upstreams.values()]
    assert asked == ["a", "b"]
    assert [window and window.tokens for window in found] == [4096, 8192]
    await made.close()


async def test_an_old_answer_serves_while_it_is_asked_anew_and_when_that_fails(
    windows: Any, server: Server, clock: Clock
) -> None:
    """A window does not vanish."""
    server.replies["GET /v1/models"] = {"data": [{"id": "m", "max_model_len": 65536}]}
    made, upstream = windows(), _upstream(server.url)
    await _settled(made, upstream, "m")
    clock.now = 3601.0
    server.replies["GET /v1/models"] = 503
    assert made.known(upstream, "m") is not None
    known = await _settled(made, upstream, "m")
    assert known is not None
    assert server.count("/v1/models") == 2


async def test_requests_at_the_same_time_ask_once(windows: Any, server: Server) -> None:
    """Single flight per model."""
    server.delay = 0.05
    server.replies["GET /v1/models"] = {"data": [{"id": "m", "max_model_len": 65536}]}
    made, upstream = windows(), _upstream(server.url)
    for _ in range(50):
        made.known(upstream, "m", headers=AUTH)
        await asyncio.sleep(0)
    await made.ask(upstream, "m")
    assert len(server.asked) == 1


async def test_invented_names_of_models_do_not_multiply_the_questions(windows: Any, server: Server) -> None:
    """A list that was just read, and a path that does not exist, are not asked again for another model."""
    server.replies["GET /v1/models"] = {"data": [{"id": "m", "max_model_len": 65536}]}
    made, upstream = windows(), _upstream(server.url)
    for number in range(10):
        await _settled(made, upstream, f"invented-{number}")
    assert (server.count("/v1/models"), server.count("/props")) == (1, 1)


async def test_what_a_llama_server_told_holds_for_every_name(windows: Any, server: Server) -> None:
    """It does not look at the name: one answer, which is asked for once."""
    server.replies["GET /v1/models"] = {"data": [{"id": "x", "meta": {"n_ctx_train": 8192}}]}
    server.replies["GET /props"] = {"default_generation_settings": {"n_ctx": 1024}}
    made, upstream = windows(), _upstream(server.url)
    for name in ("a", "b"):
        known = await _settled(made, upstream, name)
        assert known is not None
        assert known.tokens == 1024
    assert server.count("/props") == 1


async def test_an_alias_takes_the_window_of_the_model_it_is_like(windows: Any, server: Server) -> None:
    """From YAML, from the upstream, from the table."""
    server.replies["GET /v1/models"] = {"data": [{"id": "real", "max_model_len": 65536}]}
    made = windows(
        alias=Policy(like="real"), short=Policy(like="written"), old=Policy(like="gpt-4o"), written=Policy(window=5000)
    )
    upstream = _upstream(server.url)
    found = [await _settled(made, upstream, name) for name in ("alias", "short", "old")]
    assert [w and (w.tokens, w.source) for w in found] == [(65536, "asked"), (5000, "yaml"), (128_000, "packaged")]


@pytest.mark.parametrize(
    ("learned", "tokens", "source"), [(0, 9000, "yaml"), (8000, 8000, "learned"), (10_000, 9000, "yaml")]
)
@pytest.mark.parametrize("kind", ["input", "total"])
async def test_a_learned_limit_only_lowers(
    windows: Any, server: Server, learned: int, tokens: int, source: str, kind: Literal["input", "total"]
) -> None:
    """The least of both holds; the kind stays that of the window (docs/decisions/0006)."""
    made = windows(m=Policy(window=9000, window_kind=kind))
    known = made.known(_upstream(server.url), "m", learned=learned)
    assert (known.tokens, known.source, known.kind) == (tokens, source, kind)


async def test_a_learned_limit_is_a_window_where_nothing_else_is_known(windows: Any, server: Server) -> None:
    """The refusal that taught it came from the model itself."""
    known = windows().known(_upstream(server.url), "m", learned=8000)
    assert known == Window(tokens=8000, kind="total", source="learned", adds_output=True)


async def test_a_door_that_fails_or_hangs_or_floods_harms_nobody(windows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking is a courtesy."""
    monkeypatch.setattr("proxy.windows.asking.ASK_SECONDS", 0.02)
    monkeypatch.setattr("proxy.windows.asking.REPLY_BYTES", 1000)
    list_of_one = b'{"data": [{"id": "m", "max_model_len": 65536}]}'

    async def fails(*_: object) -> tuple[int, bytes]:
        raise OSError("no route")

    async def hangs(*_: object) -> tuple[int, bytes]:
        await asyncio.sleep(60)
        return 200, list_of_one

    async def floods(*_: object) -> tuple[int, bytes]:
        return 200, list_of_one + b" " * 1000

    for door in (fails, hangs, floods):
        assert await _settled(windows(door), _upstream("http://127.0.0.1:1"), "m") is None


async def test_closing_ends_what_is_under_way(windows: Any) -> None:
    """Nothing outlives the process's end."""
    ended = asyncio.Event()

    async def hangs(*_: object) -> tuple[int, bytes]:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 200, b""

    made = windows(hangs)
    made.known(_upstream("http://127.0.0.1:1"), "m")
    await asyncio.sleep(0.01)
    await made.close()
    assert ended.is_set()


async def test_it_is_told_whether_the_first_answer_is_still_to_come(windows: Any, server: Server, clock: Clock) -> None:
    """Later questions do not make a model unknown again; `like` asks for the other model."""
    made, upstream = windows(alias=Policy(like="m")), _upstream(server.url)
    assert made.asking(upstream, "m")  # the packaged table is not read yet
    await made.warm()
    assert not made.asking(upstream, "m")
    made.known(upstream, "alias", headers=AUTH)
    assert made.asking(upstream, "alias")
    await _settled(made, upstream, "alias")
    await made.ask(upstream, "m", AUTH)
    assert not made.asking(upstream, "alias")
    clock.now += 100_000.0
    made.known(upstream, "alias", headers=AUTH)
    assert not made.asking(upstream, "alias")


async def test_a_broken_table_is_an_empty_one(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """With one warning."""

    def broken() -> Table:
        raise ValueError("broken")

    async def nothing(*_: object) -> tuple[int, bytes]:
        return 404, b""

    made = Windows(lambda *_: Policy(), nothing, clock=clock, table=broken)
    await made.warm()
    assert made.known(_upstream("http://127.0.0.1:1"), "gpt-4o") is None
    assert "cannot be read" in caplog.text
    await made.close()
