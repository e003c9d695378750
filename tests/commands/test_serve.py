from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest

from proxy.commands.serve import bounds, on_signals
from proxy.settings import load
from tests.sockets import Peer, raw_upstream, reply
from tests.store.servers import Server
from tests.terminal import arguments, run, running

NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory; no server may work in it at the end."""
    yield tmp_path / "state"
    assert servers(tmp_path / "state") == []


def servers(state: Path) -> list[int]:
    """Process ids of the embedded servers of a state directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(state / "store") in words:
            found.append(int(process.name))
    return found


def at(state: Path) -> dict[str, str]:
    """Environment of a proxy with a state directory and an admin port of its own."""
    return {"CARRYON_STATE_DIR": str(state), "CARRYON_ADMIN__PORT": "0"}


def served(*words: str, upstream: str = NOWHERE) -> tuple[str, ...]:
    """The words of `carryon serve` before an upstream, on a free port."""
    return ("serve", "--upstream", upstream, "--port", "0", *words)


def test_it_prints_what_it_found_and_the_line_to_paste(tmp_path: Path, state: Path) -> None:
    """Version, settings, upstream, window, store, probes, and the address; SIGTERM ends it with 0."""
    began = time.monotonic()
    words = served("--window", "32768")
    with running(*words, log=tmp_path / "log", environ=at(state)) as carryon:
        url = carryon.ready()
        took = time.monotonic() - began
        said = carryon.said
        assert carryon.end(signal.SIGTERM) == 0
        assert "Traceback" not in carryon.said
    assert re.search(r"^carryon \d", said)
    for line in (
        "settings   defaults, environment and command line",
        f"upstreams  default = {NOWHERE}",
        "window     32,768 tokens",
        f"store      embedded, in {state}/store",
        "probes     http://127.0.0.1:",
    ):
        assert line in said
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", url)
    print(f"\nstart of `carryon serve` to its ready line: {took:.2f} s, load {os.getloadavg()[0]:.1f}")


def test_ctrl_c_ends_it_with_0(tmp_path: Path, state: Path) -> None:
    """As a service manager's signal does."""
    with running(*served(), log=tmp_path / "log", environ=at(state)) as carryon:
        carryon.ready()
        assert carryon.end(signal.SIGINT) == 0
        assert "Traceback" not in carryon.said


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_starting_leaves_no_server(tmp_path: Path, state: Path, which: signal.Signals) -> None:
    """The embedded server is up, the proxy not yet: both end, without a traceback."""
    with running(*served(), log=tmp_path / "log", environ=at(state)) as carryon:
        until = time.monotonic() + 30
        while not (state / "store" / "valkey.pid").exists() and time.monotonic() < until:
            time.sleep(0.005)
        assert carryon.end(which) == 0
        assert "Traceback" not in carryon.said


@pytest.mark.parametrize(
    ("which", "more"),
    [(signal.SIGTERM, "; a second SIGTERM ends now"), (signal.SIGINT, "; Ctrl-C again ends now")],
    ids=["TERM", "INT"],
)
async def test_a_signal_loses_no_accepted_request(
    tmp_path: Path, state: Path, which: signal.Signals, more: str
) -> None:
    """One that waits for its answer gets it whole, though the signal came first; that is told; then exit 0."""
    came, go = asyncio.Event(), asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.message()
        came.set()
        await go.wait()
        await peer.send(reply(b'{"ok": true}'))

    async with raw_upstream(slow) as up, aiohttp.ClientSession() as session:
        words = served(upstream=f"{up.url}/v1")
        with running(*words, log=tmp_path / "log", environ=at(state)) as carryon:
            url = await asyncio.to_thread(carryon.ready)
            asked = asyncio.ensure_future(session.get(f"{url}/models"))
            await asyncio.wait_for(came.wait(), 10)
            ending = asyncio.ensure_future(asyncio.to_thread(carryon.end, which))
            await asyncio.to_thread(carryon.until, re.escape(f"stopping: waiting for 1 request, at most 120 s{more}\n"))
            go.set()
            answer = await asked
            assert (answer.status, await answer.read()) == (200, b'{"ok": true}')
            answer.close()
            assert await ending == 0


#: `carryon serve`, whose first client asks as soon as it can, right before a SIGTERM, while the start goes on.
HASTY = """
import asyncio, os, signal, socket, sys, threading
from proxy.cli import main
from proxy.server.lifecycle import Server

listen, listen_admin = Server.listen, Server.listen_admin

def heard(peer):
    print("heard", peer.recv(100).partition(b"\\r\\n")[0], flush=True)

async def hasty(self, *where):
    port = await listen(self, *where)
    peer = socket.create_connection(("127.0.0.1", port))
    peer.sendall(b"GET /v1/models HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
    threading.Thread(target=heard, args=(peer,)).start()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.3)
    return port

async def noted(self, *where):
    print("probes first", flush=True)
    return await listen_admin(self, *where)

Server.listen, Server.listen_admin = hasty, noted
sys.argv = ["carryon", *sys.argv[1:]]
main()
"""


async def test_a_signal_at_the_moment_it_listens_loses_no_request(tmp_path: Path, state: Path) -> None:
    """The probes answer first, signals are caught by then: whoever got through is answered before it ends."""
    async with raw_upstream(reply(b'{"ok": true}')) as up:
        command = [sys.executable, "-c", HASTY, *served(upstream=f"{up.url}/v1")]
        with running(log=tmp_path / "log", command=command, environ=at(state)) as carryon:
            code = await asyncio.to_thread(carryon.process.wait, 40)
            told = carryon.said
            assert 0 <= told.find("probes first") < told.find("heard b'HTTP/1.1 200 OK'")
            assert code == 0


def test_a_second_one_shares_the_embedded_store(tmp_path: Path, state: Path) -> None:
    """Two proxies, one server; the first to leave takes nothing away, the last one stops it."""
    with (
        running(*served(), log=tmp_path / "first", environ=at(state)) as first,
        running(*served(), log=tmp_path / "second", environ=at(state)) as second,
    ):
        assert first.ready() != second.ready()
        alone = servers(state)
        assert len(alone) == 1
        assert first.end() == 0
        assert servers(state) == alone
        assert second.end() == 0


def test_a_port_that_is_taken_is_exit_2_with_the_cure(state: Path) -> None:
    """The address, the reason, what to do; nothing stays."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--upstream", NOWHERE, "--port", str(port), environ=at(state))
    assert done.code == 2
    assert f"listen.port: cannot listen on 127.0.0.1:{port}: address already in use" in done.said
    assert "--port" in done.said


def test_an_address_of_another_machine_is_exit_2_with_the_cure(state: Path) -> None:
    """Another port would not help, so that is not what is proposed."""
    done = run(*served(), "--host", "192.0.2.1", environ=at(state))
    assert done.code == 2
    assert "listen.host: cannot listen on 192.0.2.1:0" in done.said
    assert "choose an address of this machine: --host" in done.said


@pytest.mark.parametrize(
    ("text", "environ", "message", "cure"),
    [
        ("listn: {port: 1}\n", {}, ":1: listn: is not a key", "write listen"),
        ("secret: env:NO_SUCH\n", {}, "NO_SUCH is not set", "set NO_SUCH"),
        ("{}\n", {"CARRYON_LISTEN__PROT": "1"}, "CARRYON_LISTEN__PROT", "write port"),
        ("redis: {url: 'redis://127.0.0.1:9/0'}\n", {}, "secret: is required", "openssl rand -hex 32"),
        ("compactor: other\n", {}, "no installed package offers", "write builtin"),
        ("upstreams: {a: {base_url: 'https://127.0.0.1:9', ca_file: PEM}}\n", {}, "no certificate", "PEM file"),
    ],
    ids=["key", "variable", "environment", "secret", "compactor", "ca_file"],
)
def test_wrong_settings_are_exit_2_before_anything_starts(
    tmp_path: Path, state: Path, text: str, environ: dict[str, str], message: str, cure: str
) -> None:
    """What is wrong, where, and how to mend it."""
    file = tmp_path / "carryon.yaml"
    file.write_text(text.replace("PEM", str(file)), encoding="utf-8")
    done = run("serve", "--config", file, "--port", "0", environ={**at(state), **environ})
    assert done.code == 2
    assert message in done.said
    assert cure in done.said


def test_a_state_directory_that_cannot_be_written_is_exit_2(tmp_path: Path) -> None:
    """The directory, and the two ways out."""
    (tmp_path / "file").touch()
    done = run(*served(), environ=at(tmp_path / "file" / "state"))
    assert done.code == 2
    assert f"cannot make {tmp_path}/file/state/store" in done.said
    assert "cure: set state_dir" in done.said


def test_another_secret_than_the_replicas_is_exit_2(valkey: Server, state: Path) -> None:
    """Two secrets on one Redis would not find each other's conversations: refused at start, with the cure."""
    valkey.client().set("carryon:1:secret", "of another", ex=60)
    try:
        done = run(*served(), environ={**at(state), "CARRYON_REDIS__URL": valkey.url, "CARRYON_SECRET": "a" * 64})
    finally:
        valkey.client().delete("carryon:1:secret")
    assert done.code == 2
    assert "another `secret`" in done.said
    assert "cure: give every replica the same" in done.said


def test_redis_away_is_ready_but_degraded(tmp_path: Path) -> None:
    """Traffic flows without it: taking this replica out of the balancer would help nobody."""
    environ = {**at(tmp_path), "CARRYON_REDIS__URL": "redis://127.0.0.1:1/0", "CARRYON_SECRET": "a" * 64}
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * 2_000}]}
    with running(*served("--window", "2048"), log=tmp_path / "log", environ=environ) as carryon:
        url = carryon.ready()
        (admin,) = re.findall(r"probes +(\S+)", carryon.said)
        assert asked(admin) == {"status": "ready", "degraded": ["redis"]}, "the start has found it away"
        for _ in range(3):
            posted = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())  # noqa: S310 - our own address
            with pytest.raises(urllib.error.HTTPError, match="502"):
                urllib.request.urlopen(posted, timeout=10)  # noqa: S310 - our own address
        assert asked(admin) == {"status": "ready", "degraded": ["redis"]}


def test_off_loopback_what_is_stored_is_shown_to_who_knows_the_token(tmp_path: Path) -> None:
    """Without one in the configuration to nobody, and the start says so; probes are for all."""
    token = "a-token-of-some-length"
    for known, told in ((token, {"": 401, token: 200}), ("", {"": 403, token: 403})):
        environ = {
            **at(tmp_path),
            "CARRYON_ADMIN__HOST": "0.0.0.0",
            **({"CARRYON_ADMIN__TOKEN": known} if known else {}),
        }
        with running(*served(), log=tmp_path / "log", environ=environ) as carryon:
            carryon.ready()
            (admin,) = re.findall(r"probes +(http://\S+)/readyz", carryon.said)
            assert ("set admin.token" in carryon.said) is (known == "")
            assert asked(f"{admin}/livez") == {"status": "alive"}
            for shown, status in told.items():
                request = urllib.request.Request(f"{admin}/api/conversations")  # noqa: S310 - our own address
                request.add_header("Authorization", f"Bearer {shown}")
                try:
                    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 - our own address
                        assert (reply.status, json.load(reply)) == (status, {"conversations": [], "cursor": None})
                except urllib.error.HTTPError as refused:
                    assert refused.code == status  # noqa: PT017 - both are answers
            assert token not in carryon.said


def asked(url: str) -> object:
    """What a probe answers."""
    with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 - our own address
        return json.load(reply)


def peers(pid: int) -> set[str]:
    """The far and near addresses of all TCP and UDP sockets of a process, as the kernel prints them."""
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    own = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for table in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    ]
    return {address.split(":")[0] for row in rows if row[9] in own for address in (row[1], row[2])}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_opens_no_socket_beyond_this_machine_at_start(tmp_path: Path, state: Path) -> None:
    """Before a request comes, nothing is asked of anybody: not the upstream, no table of prices."""
    with running(*served(), log=tmp_path / "log", environ=at(state)) as carryon:
        carryon.ready()
        assert peers(carryon.process.pid) == {"0100007F", "00000000"}  # its listeners on loopback, no far end


IN_AN_EMPTY_NETWORK = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "-")


def _can_unshare() -> bool:
    try:
        done = subprocess.run([*IN_AN_EMPTY_NETWORK, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def test_it_starts_where_there_is_no_network(tmp_path: Path, state: Path) -> None:
    """In a network namespace that holds nothing but loopback, even with an upstream that has a name."""
    if not _can_unshare():
        pytest.skip("no network namespaces here")
    words = arguments(*served(upstream="https://api.example.com/v1"))
    command = [*IN_AN_EMPTY_NETWORK, *words]
    with running(log=tmp_path / "log", command=command, environ=at(state)) as carryon:
        carryon.ready()
        assert "warning" not in carryon.said.lower()
        assert carryon.end() == 0


def test_windows_are_told_as_configured(tmp_path: Path, state: Path) -> None:
    """Models that the file names with a window are named; the first one's is not taken for all."""
    file = tmp_path / "carryon.yaml"
    models = [{"model": "a*", "context_window": 2000}, {"model": "b", "threshold_ratio": 0.5}]
    file.write_text(json.dumps({"models": models, "listen": {"host": "0.0.0.0"}}), encoding="utf-8")
    words = ("serve", "--config", str(file), "--port", "0")
    with running(*words, log=tmp_path / "log", environ=at(state)) as carryon:
        assert carryon.ready().startswith("http://127.0.0.1:")
        assert f"settings   {file}" in carryon.said
        assert "window     configured for a*; others: asked of the upstream" in carryon.said
        assert carryon.end() == 0


def test_the_listener_is_bounded_by_the_settings() -> None:
    """Each limit of the door comes from its key."""
    found = bounds(load(None, {"CARRYON_LISTEN__MAX_BODY": "1MiB", "CARRYON_TIMEOUTS__DRAIN": "3s"}))
    assert (found.max_body, found.drain) == (1 << 20, 3.0)
    assert (found.max_connections, found.header, found.body_idle) == (4096, 10.0, 30.0)


async def test_only_the_first_signal_acts() -> None:
    """What it began can end: a second one changes nothing."""
    seen: list[str] = []
    on_signals(lambda: seen.append("acted"), signal.SIGUSR1)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.01)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
    assert seen == ["acted"]


def test_a_second_instance_takes_another_probe_port(tmp_path: Path, state: Path) -> None:
    """Nobody chose 8788, so nobody must know of it; one that was chosen and is taken stays an error."""
    environ = {"CARRYON_STATE_DIR": str(state)}
    with ExitStack() as stack:
        with suppress(OSError):  # somebody else's: just as taken
            stack.enter_context(socket.create_server(("127.0.0.1", 8788)))
        with running(*served(), log=tmp_path / "log", environ=environ) as carryon:
            carryon.ready()
            (port,) = re.findall(r"probes +http://127\.0\.0\.1:(\d+)/readyz \(8788 is taken\)", carryon.said)
            assert asked(f"http://127.0.0.1:{port}/readyz") == {"status": "ready", "degraded": []}
            assert carryon.end() == 0
        done = run(*served(), environ={**environ, "CARRYON_ADMIN__PORT": "8788"})
    assert done.code == 2
    assert "admin.port: cannot listen on 127.0.0.1:8788: address already in use" in done.said
    assert "CARRYON_ADMIN__PORT" in done.said


def test_an_upstream_that_nobody_named_is_marked(tmp_path: Path, state: Path) -> None:
    """What is fronted without a word is told, with how to change it; a chosen one is not marked."""
    with running("serve", "--port", "0", log=tmp_path / "log", environ=at(state)) as carryon:
        carryon.ready()
        assert "openai = https://api.openai.com/v1 (default; --upstream changes it)" in carryon.said
        assert "is taken" not in carryon.said
    with running(*served(), log=tmp_path / "log", environ=at(state)) as carryon:
        carryon.ready()
        assert "--upstream changes it" not in carryon.said


def test_an_upstream_that_is_down_is_in_the_log(tmp_path: Path, state: Path) -> None:
    """Name and cause in the answer, the code in the request's line, which is a warning; no host in either."""
    environ = {**at(state), "CARRYON_LOG__FORMAT": "console"}
    with running(*served(), log=tmp_path / "log", environ=environ) as carryon:
        url = carryon.ready()
        with pytest.raises(urllib.error.HTTPError, match="502") as caught:
            urllib.request.urlopen(f"{url}/models", timeout=10)  # noqa: S310 - our own address
        message = json.load(caught.value)["error"]["message"]
        carryon.until(r"warning: request upstream=default .*error=PROXY_UPSTREAM_CONNECT")
    assert message == "no connection to the upstream 'default': is it running?"


@pytest.mark.parametrize(("word", "cure"), [(NOWHERE, "carryon serve --upstream URL"), ("now", "carryon serve --help")])
def test_a_word_without_its_option_is_exit_2_with_the_cure(word: str, cure: str) -> None:
    """Most likely it is the upstream."""
    done = run("serve", word)
    assert (done.code, cure in done.said) == (2, True)
