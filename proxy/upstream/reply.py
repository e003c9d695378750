"""A reply on its way to the client: held bytes first, then the rest, exactly as they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.encodings import Decoder, TooLargeError, UndecodableError

if TYPE_CHECKING:
    from proxy.message import Headers

__all__ = ["Reply", "Tail"]


class Tail:
    """The end of a decoded reply, at most about `limit` bytes of it, for reading `usage` afterwards."""

    def __init__(self, decoder: Decoder | None, limit: int) -> None:
        self._decoder = decoder
        self._limit = limit
        self._kept: deque[bytes] = deque()
        self._size = 0

    def parts(self, raw: bytes) -> Iterator[bytes]:
        """Cut the next raw bytes, so that others may be served between two `feed`s."""
        return iter(()) if self._decoder is None else self._decoder.parts(raw)

    def feed(self, raw: bytes) -> None:
        """Take the next raw bytes; bytes that do not decode end the tap for good."""
        if self._decoder is None:
            return
        try:
            data = self._decoder.feed(raw)[-self._limit :]
        except (UndecodableError, TooLargeError):
            self._decoder = None
            self._kept.clear()
            return
        if data:
            self._kept.append(data)
            self._size += len(data)
        while self._size - len(self._kept[0] if self._kept else b"") >= self._limit:
            self._size -= len(self._kept.popleft())

    def read(self) -> bytes | None:
        """Return the kept bytes, None where the reply could not be decoded."""
        return None if self._decoder is None else b"".join(self._kept)


@dataclass(slots=True)
class _State:
    begun: bool = False
    finished: bool = False
    closed: bool = False


class Reply:
    """Status, end-to-end headers, and an iterator over the raw chunks of the body.

    `source` gives the chunks still to come, `close` ends the call behind them. Iterating raises
    `UpstreamError` where the upstream breaks off. A reply is iterated once.
    """

    def __init__(
        self,
        *,
        status: int,
        reason: str = "",
        headers: Headers = (),
        source: AsyncIterator[bytes],
        held: tuple[bytes, ...] = (),
        close: Callable[[], Awaitable[None]] | None = None,
        tail: Tail | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self._held = deque(held)
        self._source = source
        self._close = close
        self._tail = tail
        self._state = _State()

    @property
    def finished(self) -> bool:
        """Whether the whole body was relayed and the upstream ended it well."""
        return self._state.finished

    def tail(self) -> bytes | None:
        """Return the end of the decoded body so far, None where it is not kept or not decodable."""
        return None if self._tail is None else self._tail.read()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the raw chunks: held ones first."""
        if self._state.begun:
            return
        self._state.begun = True
        while self._held:
            chunk = self._held.popleft()
            await self._tap(chunk)
            yield chunk
        async for chunk in self._source:
            await self._tap(chunk)
            yield chunk
        self._state.finished = True

    async def aclose(self) -> None:
        """End the call: the upstream's connection is closed unless the body was read to its end."""
        if not self._state.closed:
            self._state.closed = True
            if self._close is not None:
                await self._close()

    async def _tap(self, chunk: bytes) -> None:
        if self._tail is None:
            return
        for at, part in enumerate(self._tail.parts(chunk)):
            if at:
                await asyncio.sleep(0)
            self._tail.feed(part)
