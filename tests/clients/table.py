"""What a client is to these tests, and the SDKs: scripts of `tests/clients/sdk` in an environment of their own."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import pages, processes

ROOT = Path(__file__).resolve().parents[2]
#: What `make clients` and `make clients-all` installed.
INSTALLED = ROOT / ".venv-clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a client runs: the base URL it is given, a folder of its own."""

    url: str
    folder: Path

    @property
    def work(self) -> Path:
        """The folder it works in."""
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        return self.folder / "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What came of one turn of a lane: what was said, else what its user is told."""

    lane: str
    number: int
    said: str = ""
    error: str = ""


class Client(ABC):
    """A client. Its lanes are ways of using it; each is a conversation of its own, with its name as the model's."""

    name: str
    lanes: tuple[str, ...]
    #: The one line that points it at Carryon, as the README's table has it. `root` is the base URL without `/v1`.
    line: str
    #: Pages it reads in a turn: more where it cuts what a tool says.
    read: int = pages.PAGES
    #: Its window in tokens: wider where its system text and tools alone fill more than half of the usual one.
    window: int = pages.WINDOW
    #: How often it asks for a WebSocket in a turn.
    upgrades: int = 0
    #: Whether a new process of it sends the old history as it was.
    resumes: bool = True

    def pointed(self, url: str) -> str:
        """Its line for this base URL."""
        return self.line.format(url=url, root=url.removesuffix("/v1"))

    def variable(self, url: str) -> dict[str, str]:
        """The same where the line sets a variable."""
        name, _, value = self.pointed(url).partition("=")
        return {name: value}

    @abstractmethod
    def version(self) -> str:
        """The installed version."""

    @abstractmethod
    def missing(self) -> str:
        """Why it cannot run here, or nothing."""

    @abstractmethod
    def turns(self, place: Place, numbers: range) -> AsyncIterator[Turn]:
        """Take these turns of each lane; a lane ends with its first error."""


class Sdk(Client):
    """A script of `tests/clients/sdk`."""

    def __init__(self, name: str, distribution: str, script: str, line: str, ways: tuple[str, ...]) -> None:
        self.name, self._distribution, self._script, self.line = name, distribution, script, line
        self.lanes = tuple(f"{name}-{way}" if way else name for way in ways)

    def version(self) -> str:
        """From the name of its metadata's folder."""
        stem = self._distribution.replace("-", "_")
        found = next(INSTALLED.glob(f"lib/python3*/site-packages/{stem}-*.dist-info"), None)
        return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else "?"

    def missing(self) -> str:
        """It needs its environment."""
        return "" if (INSTALLED / "bin/python").exists() else "make clients installs the SDKs"

    async def turns(self, place: Place, numbers: range) -> AsyncIterator[Turn]:
        """All lanes in one process."""
        env = processes.environment(place.folder / "home", PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1")
        env |= self.variable(place.url)
        command = [str(INSTALLED / "bin/python"), "-m", f"tests.clients.sdk.{self._script}"]
        command += [str(place.work), str(numbers[0]), str(numbers[-1]), *self.lanes]
        ended = await processes.run(command, env=env, cwd=place.work, seconds=150)
        assert ended.code == 0, f"exit code {ended.code}: {ended.err[-2000:]}"
        for line in objects(ended.out):
            yield Turn(lane=line["lane"], number=line["turn"], said=line.get("said", ""), error=line.get("error", ""))


def objects(lines: str) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects."""
    for line in lines.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


_OPENAI, _ANTHROPIC = "OPENAI_BASE_URL={url}", "ANTHROPIC_BASE_URL={root}"
_BOTH = ("chat", "chat-streamed", "responses", "responses-streamed")
SDKS: tuple[Client, ...] = (
    Sdk("openai", "openai", "openai_lanes", _OPENAI, _BOTH),
    Sdk("anthropic", "anthropic", "anthropic_lanes", _ANTHROPIC, ("", "streamed")),
    Sdk("openai-agents", "openai-agents", "agents_lanes", _OPENAI, _BOTH),
    Sdk("pydantic-ai", "pydantic-ai-slim", "pydantic_lanes", _OPENAI, _BOTH),
    Sdk("langgraph", "langchain-openai", "langgraph_lanes", _OPENAI, _BOTH),
)
