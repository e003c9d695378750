"""One client's conversation, packed, and read again: which stored surface applies to what it sends now.

A reading with `x-carryon: no-store` shows which stored surface applies, and changes nothing.
"""

from __future__ import annotations

from tests.e2e import agent, scribe
from tests.e2e.scribe import Request, Scribe
from tests.e2e.talk import Client, Message, Reply, body

__all__ = ["LIMIT", "OVER", "Story"]

LIMIT = 1_000
#: Steps after which a history is over the threshold.
OVER = 13


class Story:
    """One client's conversation with one model, and what the upstream saw of each turn."""

    def __init__(
        self, client: Client, upstream: Scribe, key: str, model: str = "story", *, session: str = "talk-1"
    ) -> None:
        self._client, self._upstream, self._key, self._model = client, upstream, key, model
        self._session = session
        #: How many messages each generation covers, and what the upstream was shown in their place.
        self.packed: dict[int, tuple[int, bytes]] = {}
        self.conversation = ""

    @property
    def summaries(self) -> list[Request]:
        """What was asked of the summariser, by whomever speaks to this model."""
        return self._upstream.of(self._model, summaries=True)

    async def turn(self, messages: list[Message], **headers: str | None) -> tuple[Reply, Request, bytes]:
        """The client's reply, what the upstream saw, and what the client sent."""
        return await self.said(self.spelled(messages), **headers)

    def spelled(self, messages: list[Message], **changes: object) -> bytes:
        """A body of this client."""
        settings: dict[str, object] = {"tools": agent.TOOLS, "max_tokens": LIMIT, **changes}
        return body(str(settings.pop("model", self._model)), messages, **settings)

    async def said(self, sent: bytes, **headers: str | None) -> tuple[Reply, Request, bytes]:
        """The same for a body as it is."""
        reply = await self._client.post(sent, **{"key": self._key, "x-session-id": self._session, **headers})
        assert reply.status == 200
        return reply, next(one for one in reversed(self._upstream.requests) if not one.asks_for_summary), sent

    async def pack(self, messages: list[Message], generation: int = 1, **headers: str | None) -> int:
        """Send a history over the threshold; how many of its messages were replaced."""
        asked = len(self.summaries)
        reply, seen, sent = await self.turn(messages, **headers)
        assert (reply.action, reply.generation) == ("pressure", generation), dict(reply.headers)
        assert len(self.summaries) == asked + 1
        self.conversation = reply.conversation
        items = scribe.split(seen.body)[1]
        covered = len(scribe.split(sent)[1]) - len(items) + 1
        self.packed[generation] = (covered, items[1])
        return covered

    async def reads_raw(self, messages: list[Message], **headers: str | None) -> None:
        """No stored surface applies to this history."""
        reply, seen, sent = await self.turn(messages, **{"x-carryon": "no-store", **headers})
        assert (reply.action, reply.generation, seen.body) == ("pass", 0, sent), dict(reply.headers)

    async def reads_packed(self, messages: list[Message], generation: int = 1, **headers: str | None) -> None:
        """That surface applies: its bytes as packed, then the client's messages as sent now."""
        await self.reads_body_packed(self.spelled(messages), generation, **headers)

    async def reads_body_packed(self, sent: bytes, generation: int = 1, **headers: str | None) -> None:
        """The same for a body as it is: nothing that surrounds the messages is changed either."""
        asked = len(self.summaries)
        reply, seen, _ = await self.said(sent, **{"x-carryon": "no-store", **headers})
        assert (reply.action, reply.generation) == ("projected", generation), dict(reply.headers)
        covered, shown = self.packed[generation]
        start, own, end = scribe.split(sent)
        assert scribe.split(seen.body) == (start, [own[0], shown, *own[1 + covered :]], end)
        assert len(self.summaries) == asked
