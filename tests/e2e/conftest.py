"""A real model server for the session."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.e2e import llama


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
