"""A real model server for the session; for a module a proxy on a Valkey of its own, before a recording upstream."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from proxy.store.binary import find_server
from tests.e2e import llama
from tests.e2e.carryon import Carryon
from tests.e2e.scribe import Scribe
from tests.e2e.stored import proxied
from tests.e2e.talk import WINDOW, Client
from tests.store.servers import Server


@pytest.fixture(scope="session")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama.LlamaServer]:
    """llama.cpp's server with SmolLM2, 8,192 tokens and one slot; skips where none can be had here."""
    if reason := llama.missing():
        pytest.skip(reason)
    server = _started(tmp_path_factory)
    yield server
    server.stop()


def _started(folders: pytest.TempPathFactory) -> llama.LlamaServer:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folders.mktemp("llama") / "log"
    failures = []
    for build in llama.builds(port):
        try:
            return llama.LlamaServer(build, port, log)
        except RuntimeError as error:
            failures.append(str(error))
    pytest.fail("no build of llama.cpp runs on this processor: " + "; ".join(failures))


@pytest.fixture(scope="module")
def ledger() -> Iterator[Server]:
    """A Valkey of the module's own: a secret is bound to its server."""
    server = Server(find_server())
    yield server
    server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Scribe]:
    """The recording upstream; tests keep apart by their models."""
    async with Scribe() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(
    request: pytest.FixtureRequest, upstream: Scribe, ledger: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Carryon]:
    """Carryon with a window of 16,384 tokens and the module's `ENVIRONMENT`; it ends well and without a fault."""
    state, environment = tmp_path_factory.mktemp("carryon"), getattr(request.module, "ENVIRONMENT", {})
    running = proxied(ledger, upstream.url, state, "--window", str(WINDOW), **environment)
    await running.start()
    yield running
    assert await running.stop() == 0
    assert not running.events("internal-fault")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(proxy: Carryon) -> AsyncIterator[Client]:
    """A client before it."""
    async with Client(proxy.url) as found:
        yield found
