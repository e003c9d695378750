"""The coding agents: how each is configured, with its own limit at the true window, and called, one process a turn."""

from __future__ import annotations

import json
import shutil
from abc import abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path

from tests.clients import pages, processes
from tests.clients.table import INSTALLED, Client, Place, Turn, objects


class Agent(Client):
    """A coding agent from npm, one process a turn."""

    package: str
    #: The folder of `tests/clients` with its pinned version, and its command there.
    pinned: str
    binary: str
    seconds: float = 90

    def __init__(self) -> None:
        self.lanes = (self.name,)

    @property
    def folder(self) -> Path:
        """Where npm put it."""
        return INSTALLED / self.pinned / "node_modules"

    @property
    def command(self) -> str:
        """Its program."""
        return str(self.folder / ".bin" / self.binary)

    def version(self) -> str:
        """From its package."""
        return str(json.loads((self.folder / self.package / "package.json").read_text())["version"])

    def missing(self) -> str:
        """It needs node and its package."""
        if shutil.which("node") is None:
            return "there is no node here"
        return "" if Path(self.command).exists() else f"make clients-all installs {self.package}, where there is npm"

    def setting(self, url: str) -> dict[str, str]:
        """Its line where that is a pair of JSON."""
        found: dict[str, str] = json.loads("{" + self.pointed(url) + "}")
        return found

    @abstractmethod
    def prepare(self, place: Place, home: Path) -> dict[str, str]:
        """Write its configuration; gives further variables."""

    @abstractmethod
    def arguments(self, prompt: str, *, first: bool) -> list[str]:
        """What follows the command: a new conversation, or the last one."""

    def answer(self, ended: processes.Ended, number: int) -> tuple[str, str]:
        """What it said, and the error where it said none."""
        if ended.code == 0 and pages.done(number) in ended.out:
            return pages.done(number), ""
        told = " ".join((ended.err.strip() or ended.out.strip())[-300:].split())
        return "", f"exit code {ended.code}: {told}"

    async def turns(self, place: Place, numbers: range) -> AsyncIterator[Turn]:
        """One after the other."""
        home = place.folder / "home"
        env = processes.environment(home)
        env |= self.prepare(place, home)
        for number in numbers:
            command = [self.command, *self.arguments(pages.prompt(number), first=number == 1)]
            ended = await processes.run(command, env=env, cwd=place.work, seconds=self.seconds)
            said, error = self.answer(ended, number)
            yield Turn(lane=self.name, number=number, said=said, error=error)
            if error:
                return


class Codex(Agent):
    """Codex, with a provider of its own. It cuts what a tool says at 10,000 bytes."""

    name, package, pinned, binary = "codex", "@openai/codex", "codex", "codex"
    line = 'base_url = "{url}"'
    read = 6
    _flags = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    _key = "CODEX_KEY"

    def prepare(self, place: Place, home: Path) -> dict[str, str]:
        """Its `config.toml`."""
        (home / "codex").mkdir(exist_ok=True)
        (home / "codex/config.toml").write_text(self.settings(place.url))
        return {"CODEX_HOME": str(home / "codex"), self._key: "sk-codex"}

    def settings(self, url: str) -> str:
        """Model, window, provider."""
        return f"""
            model = "{self.name}"
            model_provider = "carryon"
            model_context_window = {self.window}
            check_for_update_on_startup = false
            [model_providers.carryon]
            name = "carryon"
            {self.pointed(url)}
            env_key = "{self._key}"
            wire_api = "responses"
        """

    def arguments(self, prompt: str, *, first: bool) -> list[str]:
        """`exec`, then `exec resume --last`."""
        return ["exec", *(() if first else ("resume", "--last")), *self._flags, prompt]

    def answer(self, ended: processes.Ended, number: int) -> tuple[str, str]:
        """From its events."""
        events = list(objects(ended.out))
        said = [one["item"]["text"] for one in events if (one.get("item") or {}).get("type") == "agent_message"]
        failed = [one["error"]["message"] for one in events if one.get("type") == "turn.failed"]
        if ended.code == 0 and said and not failed:
            return str(said[-1]), ""
        return "", " ".join(failed) or super().answer(ended, number)[1]


class CodexBuiltIn(Codex):
    """Codex with the provider it has built in, which tries a WebSocket first and leaves compaction to the upstream."""

    name, line, upgrades = "codex-openai", 'openai_base_url = "{url}"', 1
    _key = "CODEX_API_KEY"

    def settings(self, url: str) -> str:
        """Model, window, base URL."""
        return f"""
            model = "{self.name}"
            {self.pointed(url)}
            model_context_window = {self.window}
            check_for_update_on_startup = false
        """


class Pi(Agent):
    """Pi, on chat and on responses. By default it keeps 16,384 tokens free, half of a window as small as this."""

    package, pinned, binary = "@mariozechner/pi-coding-agent", "agents", "pi"
    line = '"baseUrl": "{url}"'

    def __init__(self, name: str, api: str) -> None:
        self.name, self._api = name, api
        super().__init__()

    def prepare(self, place: Place, home: Path) -> dict[str, str]:
        """Its `models.json`."""
        (home / "pi").mkdir(exist_ok=True)
        model = {"id": self.name, "contextWindow": self.window, "maxTokens": 4_096}
        provider = {**self.setting(place.url), "api": self._api, "apiKey": f"sk-{self.name}", "models": [model]}
        (home / "pi/models.json").write_text(json.dumps({"providers": {"carryon": provider}}))
        (home / "pi/settings.json").write_text(json.dumps({"compaction": {"reserveTokens": 4_096}}))
        return {"PI_CODING_AGENT_DIR": str(home / "pi"), "PI_OFFLINE": "1"}

    def arguments(self, prompt: str, *, first: bool) -> list[str]:
        """`-p`, then `-c -p`."""
        return [*(() if first else ("-c",)), "--provider", "carryon", "--model", self.name, "-p", prompt]


class OpenCode(Agent):
    """opencode, with the provider that its documentation names for other servers."""

    name, package, pinned, binary = "opencode", "opencode-ai", "agents", "opencode"
    line = '"baseURL": "{url}"'

    def prepare(self, place: Place, home: Path) -> dict[str, str]:
        """Its `opencode.json`."""
        model = {"name": self.name, "limit": {"context": self.window, "output": 4_096}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "carryon",
            "options": {**self.setting(place.url), "apiKey": "sk-opencode"},
            "models": {self.name: model},
        }
        settings = {
            "model": f"carryon/{self.name}",
            "provider": {"carryon": provider},
            "autoupdate": False,
            "share": "disabled",
        }
        (place.work / "opencode.json").write_text(json.dumps(settings))
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def arguments(self, prompt: str, *, first: bool) -> list[str]:
        """`run`, then `run -c`."""
        return ["run", "--auto", *(() if first else ("-c",)), prompt]


class Qwen(Agent):
    """qwen-code. Its system text and tools take 19,000 tokens; by default it compacts at 70 % of its window."""

    name, package, pinned, binary = "qwen-code", "@qwen-code/qwen-code", "agents", "qwen"
    read, window = 8, 65_536
    line = "OPENAI_BASE_URL={url}"

    def prepare(self, place: Place, home: Path) -> dict[str, str]:
        """Its variables and `settings.json`."""
        (home / ".qwen").mkdir(exist_ok=True)
        settings = {
            "model": {
                "generationConfig": {"contextWindowSize": self.window},
                "chatCompression": {"contextPercentageThreshold": 0.95},
            },
            "tools": {"truncateToolOutputThreshold": 100_000, "truncateToolOutputLines": 10_000},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
        }
        (home / ".qwen/settings.json").write_text(json.dumps(settings))
        direct = {"HTTPS_PROXY": "", "https_proxy": ""}  # it would send loopback's traffic there, too
        return {**self.variable(place.url), "OPENAI_API_KEY": "sk-qwen", "OPENAI_MODEL": self.name, **direct}

    def arguments(self, prompt: str, *, first: bool) -> list[str]:
        """`-p`, then `-c -p`."""
        return ["-y", "--auth-type", "openai", *(() if first else ("-c",)), "-p", prompt]


class ClaudeCode(Agent):
    """Claude Code, with the one tool that it needs here."""

    name, package, pinned, binary = "claude-code", "@anthropic-ai/claude-code", "agents", "claude"
    line = "ANTHROPIC_BASE_URL={root}"

    def prepare(self, place: Place, home: Path) -> dict[str, str]:
        """Variables are all it takes."""
        return {
            **self.variable(place.url),
            "ANTHROPIC_API_KEY": "sk-claude",
            "ANTHROPIC_MODEL": self.name,
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(self.window),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CONFIG_DIR": str(home / "claude"),
        }

    def arguments(self, prompt: str, *, first: bool) -> list[str]:
        """`-p`, then `-p -c`."""
        return ["-p", *(() if first else ("-c",)), "--tools", "Bash", "--allowedTools", "Bash", "--", prompt]


class Aider(Client):
    """Aider, which has no tools and whose model answers at length; what the user says is typed, one process a run.

    It would summarise its history by itself long before the window: here it does not. What it restores in a new process
    it puts before the files of the chat, so that nothing stored fits it.
    """

    name, lanes, line, resumes = "aider", ("aider",), "OPENAI_API_BASE={url}", False
    _flags = (
        "--model openai/aider --no-check-update --no-analytics --yes-always --no-auto-commits --no-pretty --no-git"
        " --map-tokens 0 --max-chat-history-tokens 10000000 --no-show-model-warnings --no-show-release-notes"
        " --model-metadata-file metadata.json"
    )

    def version(self) -> str:
        """From the name of its metadata's folder."""
        found = next(INSTALLED.glob("aider/lib/python3*/site-packages/aider_chat-*.dist-info"))
        return found.name.removesuffix(".dist-info").rpartition("-")[2]

    def missing(self) -> str:
        """It needs its environment."""
        return "" if (INSTALLED / "aider/bin/aider").exists() else "make clients-all installs aider, where it can"

    async def turns(self, place: Place, numbers: range) -> AsyncIterator[Turn]:
        """All of them in one process; a later process restores the history."""
        env = processes.environment(place.folder / "home", OPENAI_API_KEY="sk-aider", **self.variable(place.url))
        size = {"max_input_tokens": self.window, "max_tokens": 4_096, "litellm_provider": "openai", "mode": "chat"}
        (place.work / "metadata.json").write_text(json.dumps({"openai/aider": size}))
        (place.work / "notes.py").touch()
        command = [str(INSTALLED / "aider/bin/aider"), *self._flags.split(), "notes.py"]
        command += [] if numbers[0] == 1 else ["--restore-chat-history"]
        typed = "".join(f"{pages.prompt(number)}\n" for number in numbers) + "/exit\n"
        ended = await processes.run(command, env=env, cwd=place.work, seconds=120, typed=typed)
        for number in numbers:
            if pages.done(number) not in ended.out:
                told = next(
                    (line for line in ended.out.splitlines() if "exceed" in line or "Error" in line),
                    f"exit code {ended.code}",
                )
                yield Turn(lane=self.name, number=number, error=told.strip())
                return
            yield Turn(lane=self.name, number=number, said=pages.done(number))


AGENTS: tuple[Client, ...] = (
    OpenCode(),
    Pi("pi-chat", "openai-completions"),
    Pi("pi-responses", "openai-responses"),
    Qwen(),
    Aider(),
    ClaudeCode(),
)
