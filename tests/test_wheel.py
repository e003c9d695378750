"""The wheel stands alone: built, installed in an empty environment outside the checkout, and run there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.terminal import running

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COMMANDS = [("--help",), ("--version",), ("serve", "--help"), ("demo", "--help"), ("classify", "--help")]


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    out = tmp_path_factory.mktemp("dist")
    done = _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(out.glob("carryon_proxy-*.whl"))


@pytest.fixture(scope="module")
def carryon(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed from the wheel with the locked dependencies and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "env"
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for what in (["--require-hashes", "-r", ROOT / "requirements.lock"], ["--no-deps", wheel]):
        done = _run(*pip, *what, cwd=folder)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder / "bin" / "carryon"


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    """Lua scripts, prompts and `py.typed` included; no tests."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "proxy").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert names == source
    assert "proxy/py.typed" in names
    assert any(name.endswith("commit.lua") for name in names)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_answers_outside_the_checkout(carryon: Path, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """The installed command finds all it needs in the wheel."""
    done = _run(carryon, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout


def test_a_packaged_configuration_is_checked_outside_the_checkout(carryon: Path, tmp_path: Path) -> None:
    """`carryon check` reads the commented example."""
    done = _run(carryon, "check", ROOT / "config" / "carryon.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]


def test_an_error_is_classified_outside_the_checkout(carryon: Path, tmp_path: Path) -> None:
    """`carryon classify` brings its rules along."""
    error = tmp_path / "error.json"
    error.write_text('{"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}', encoding="utf-8")
    done = _run(carryon, "classify", error, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-1000:]
    assert json.loads(done.stdout)["limit"] == 200_000


class Model(BaseHTTPRequestHandler):
    """An upstream that answers every POST."""

    def do_POST(self) -> None:
        """Answer with one fixed completion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def upstream() -> Iterator[str]:
    """The base URL of a model on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_proxy_serves_from_the_wheel(carryon: Path, upstream: str, tmp_path: Path) -> None:
    """Started outside the checkout with nothing but an upstream, it answers and ends by SIGTERM."""
    command = [str(carryon), "serve", "--upstream", upstream, "--port", "0"]
    places = {"CARRYON_STATE_DIR": str(tmp_path / "state"), "CARRYON_ADMIN__PORT": "0", "PYTHONPATH": ""}
    with running(log=tmp_path / "log", environ=places, command=command) as serving:
        url = f"{serving.ready()}/chat/completions"
        body = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
        request = urllib.request.Request(url, body)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310 - loopback
            assert (reply.status, reply.read(), reply.headers["x-carryon-action"]) == (200, b"{}", "pass")
        assert serving.end() == 0


def test_the_demo_runs_from_the_wheel(carryon: Path, tmp_path: Path) -> None:
    """The whole proxy, its embedded store included, works from what the wheel brought."""
    done = _run(carryon, "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
