"""The demo's agent: it reads one file after another and sends its whole history every time.

It knows nothing of Carryon but a `base_url`; the sizes of what it reads are chosen by the story.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle, islice

import aiohttp

__all__ = ["Agent", "Answered"]

_SYSTEM = "You are a careful engineer. You read files, find the fault, and mend it."
_TASK = "Find out why the nightly import fails and mend it. Never touch vendor/. Every change must have a test."
_WORDS = (
    *("line", "buffer", "reader", "import", "return", "value"),
    *("record", "field", "offset", "batch", "night", "error"),
)
_OURS = "x-carryon-"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the agent got for one turn: status, Carryon's headers without their prefix, the body."""

    status: int
    told: dict[str, str]
    body: bytes

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens that Carryon measured of the history and of what it sent; zeros where it did not measure."""
        raw, _, sent = self.told.get("tokens", "raw=0, sent=0").partition(", ")
        return int(raw.removeprefix("raw=")), int(sent.removeprefix("sent="))

    @property
    def generation(self) -> int:
        """The generation of the surface that was applied, 0 for none."""
        return int(self.told.get("generation", "0"))


@dataclass(slots=True)
class Agent:
    """Grows one conversation. `count` gives the tokens of a text."""

    base_url: str
    session: aiohttp.ClientSession
    count: Callable[[str], int]
    messages: list[dict[str, object]] = field(
        default_factory=lambda: [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _TASK}]
    )
    turns: int = 0

    async def turn(self, tokens: int) -> Answered:
        """Read a file of about so many tokens and ask the model what it makes of it."""
        self.turns += 1
        name = f"call_{self.turns}"
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/import/step_{self.turns}.py"})}
        self.messages += [
            {"role": "assistant", "content": None, "tool_calls": [_call(name, function)]},
            {"role": "tool", "tool_call_id": name, "content": self._file(tokens)},
        ]
        answered = await self.ask()
        if answered.status == 200:
            self.messages.append(json.loads(answered.body)["choices"][0]["message"])
        return answered

    async def ask(self) -> Answered:
        """Send the whole history as it stands."""
        body = {"model": "demo", "messages": self.messages, "tools": _TOOLS}
        async with self.session.post(f"{self.base_url}/chat/completions", json=body) as reply:
            named = ((name.lower(), value) for name, value in reply.headers.items())
            told = {name.removeprefix(_OURS): value for name, value in named if name.startswith(_OURS)}
            return Answered(status=reply.status, told=told, body=await reply.read())

    def _file(self, tokens: int) -> str:
        """Make text of about `tokens` tokens: every word here is one, a number two."""
        lines: list[str] = []
        while sum(self.count(line) for line in lines) < tokens:
            words = islice(cycle(_WORDS), len(lines) % 7, len(lines) % 7 + 10)
            lines.append(f"{len(lines)}: {' '.join(words)}\n")
        return "".join(lines)


def _call(name: str, function: dict[str, str]) -> dict[str, object]:
    return {"id": name, "type": "function", "function": function}
