"""The top-level values of one body, read by name."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects.parts import loads, mapping, parse

__all__ = ["Body"]


class Body:
    """The top-level values of one body, parsed only when asked for."""

    def __init__(self, body: bytes, spans: Mapping[str, tuple[int, int]]) -> None:
        """`spans` says where in `body` each value lies."""
        self._body, self._spans = body, spans

    def __contains__(self, key: str) -> bool:
        """Whether the body names it."""
        return key in self._spans

    def raw(self, key: str) -> bytes:
        """The bytes of a value that is there."""
        start, stop = self._spans[key]
        return self._body[start:stop]

    def value(self, key: str) -> object:
        """The value, None where there is none."""
        return parse(self.raw(key)) if key in self._spans else None

    def text(self, key: str) -> str:
        """The value where it is text, else empty."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def count(self, key: str) -> int | None:
        """The value where it is a whole number over 0."""
        value = self.value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def ids(self) -> tuple[str, ...]:
        """The conversation ids that clients put into bodies, best first."""
        metadata = mapping(self.value("metadata"))
        user = metadata.get("user_id")
        conversation = self.value("conversation")
        found = (
            mapping(conversation).get("id") if isinstance(conversation, dict) else conversation,
            mapping(self.value("client_metadata")).get("thread_id"),
            self.value("session_id"),
            self.value("prompt_cache_key"),
            metadata.get("session_id"),
            loads(user).get("session_id") if isinstance(user, str) else None,
        )
        return tuple(value for value in found if isinstance(value, str))
