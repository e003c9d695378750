"""A client that sends bytes it knows: a growing conversation of an agent that also edits files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from tests.e2e import agent

Message = dict[str, Any]

#: The window these conversations outgrow.
WINDOW = 16_384
#: Query and headers that must arrive with every request, summaries included.
QUERY = "?api-version=2026-01&beta=true"
HEADERS = {"Content-Type": "application/json", "OpenAI-Beta": "x=1", "X-Custom": "kept", "X-Session-Id": "talk-1"}
RULE = "Always write amounts in cents."


def raw(message: Message) -> bytes:
    """A message as this client spells it, the same in every turn."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ": ")).encode()


def step(number: int) -> list[Message]:
    """One step of the agent that also edits the file it read; the third has a rule of its user."""
    first, *rest, last = agent.step(number)
    function = {"name": "edit_file", "arguments": json.dumps({"path": f"billing/fixed_{number}.py", "content": "new"})}
    edit = {"id": f"call_edit_{number}", "type": "function", "function": function}
    said = {"role": "user", "content": f"{last['content']} {RULE}"} if number == 3 else last
    result = {"role": "tool", "tool_call_id": edit["id"], "content": "edited"}
    return [{**first, "tool_calls": [*first["tool_calls"], edit]}, *rest[:3], result, *rest[3:], said]


def history(steps: int, *, task: str = agent.TASK) -> list[Message]:
    """The whole conversation after so many steps: system text, task, steps."""
    opening = [{"role": "system", "content": agent.SYSTEM}, {"role": "user", "content": task}]
    return [*opening, *(message for number in range(1, steps + 1) for message in step(number))]


def body(model: str, messages: Sequence[Message | bytes], **settings: object) -> bytes:
    """A request's bytes, with odd spacing around the messages that must survive."""
    items = b",".join(one if isinstance(one, bytes) else raw(one) for one in messages)
    more = b"".join(
        b", %s :%s" % (json.dumps(key).encode(), json.dumps(value).encode()) for key, value in settings.items()
    )
    return b'{ "model": %s, "messages":[%s]%s }' % (json.dumps(model).encode(), items, more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def action(self) -> str:
        """What Carryon says it did."""
        return self.headers.get("x-carryon-action", "")

    @property
    def generation(self) -> int:
        """The generation of the surface that was applied, 0 for none."""
        return int(self.headers.get("x-carryon-generation", "0"))

    @property
    def conversation(self) -> str:
        """Carryon's name of the conversation."""
        return self.headers["x-carryon-conversation"]


class Client:
    """Sends bodies with one credential."""

    def __init__(self, base_url: str, key: str = "sk-a", *, patience: float = 50) -> None:
        self._url, self._key, self._patience = base_url, key, patience

    async def __aenter__(self) -> Self:
        self._session = ClientSession(timeout=ClientTimeout(total=self._patience), connector=TCPConnector(limit=128))
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await self._session.close()

    async def post(self, content: bytes, *, key: str | None = None, **headers: str | None) -> Reply:
        """Send a body; further headers by name, `_` for `-`: in place of the client's own, None for none."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {name.lower() for name in named}
        own = {**HEADERS, "Authorization": f"Bearer {key or self._key}"}
        sent = {name: value for name, value in own.items() if name.lower() not in given}
        sent |= {name: value for name, value in named.items() if value is not None}
        async with self._session.post(f"{self._url}/chat/completions{QUERY}", data=content, headers=sent) as reply:
            return Reply(status=reply.status, headers=reply.headers.copy(), body=await reply.read())
