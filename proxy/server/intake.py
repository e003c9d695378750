"""Turn a client's request into an `Incoming`, within the bounds on its body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from proxy.encodings import Decoder, TooLargeError, UndecodableError, codings, decoder, ratio_bound
from proxy.errors import Answer
from proxy.message import Body, Headers, Incoming, first, pairs, values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxy.server import ServerBounds

__all__ = ["Budget", "Lease", "TurnedAwayError", "take"]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HTTP_11 = (1, 1)
#: Decoding goes on in a thread once this many bytes came of it; a step takes so many encoded bytes here, and there.
INLINE = 1 << 18
STEP_INLINE, STEP_IN_THREAD = 1 << 12, 1 << 18

TOO_LARGE = Answer(status=413, code="PROXY_BODY_TOO_LARGE", message="The request body is larger than listen.max_body.")
GROWS = Answer(status=413, code="PROXY_BODY_TOO_LARGE", message="The request body grows too much when decoded.")
CROWDED = Answer(
    status=503,
    code="PROXY_OVERLOADED",
    message="Too many request bodies are in flight (listen.max_inflight_bytes). Try again.",
    headers=(("Retry-After", "1"),),
)
SILENT = Answer(status=408, code="PROXY_BODY_TIMEOUT", message="The request body stopped coming.")
BROKEN = Answer(status=400, code="PROXY_BAD_REQUEST", message="The request body is not framed as HTTP demands.")
EXPECTS = Answer(status=417, code="PROXY_EXPECTATION", message="Only Expect: 100-continue is understood.")


class TurnedAwayError(Exception):
    """The request gets an answer of our own and goes nowhere."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.code)
        self.answer = answer


class Budget:
    """How many bytes of request bodies this process holds at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def lease(self) -> Lease:
        """Begin a request that holds nothing yet."""
        return Lease(self)

    def add(self, size: int) -> bool:
        """Take `size` bytes more, unless that passes the limit."""
        if self.taken + size > self._limit:
            return False
        self.taken += size
        return True


class Lease:
    """One request's share of a `Budget`; to be released when its exchange is over."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held = 0

    def reach(self, size: int) -> None:
        """Hold `size` bytes in all from now on. Raises `TurnedAwayError` (503) where there is no room."""
        if size > self._held:
            if not self._budget.add(size - self._held):
                raise TurnedAwayError(CROWDED)
            self._held = size

    def release(self) -> None:
        """Give everything back."""
        self._budget.taken -= self._held
        self._held = 0


class Intake:
    """Reads one request's body: `whole` or as `stream`."""

    def __init__(self, request: web.BaseRequest, bounds: ServerBounds) -> None:
        self._request = request
        self._bounds = bounds
        self._welcomed = False

    async def whole(self, lease: Lease) -> bytes:
        """Read it all. Raises `TurnedAwayError`: 413, 503, 408 or 400; the first two before reading, if told."""
        said = self._request.content_length or 0
        if said > self._bounds.max_body:
            raise TurnedAwayError(TOO_LARGE)
        lease.reach(said)
        parts: list[bytes] = []
        size = 0
        while chunk := await self._next():
            parts.append(chunk)
            size += len(chunk)
            if size > self._bounds.max_body:
                raise TurnedAwayError(TOO_LARGE)
            lease.reach(size)
        return b"".join(parts)

    async def stream(self) -> AsyncIterator[bytes]:
        """Give the chunks as they come; a fault ends it with `TurnedAwayError`."""
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        if not self._welcomed:
            self._welcomed = True
            await self._welcome()
        try:
            async with asyncio.timeout(self._bounds.body_idle):
                return await self._request.content.readany()
        except TimeoutError:
            raise TurnedAwayError(SILENT) from None
        except web.RequestPayloadError:
            raise TurnedAwayError(BROKEN) from None

    async def _welcome(self) -> None:
        """Answer `Expect: 100-continue`, now that the body is wanted."""
        if self._request.headers.get("Expect") and self._request.version >= HTTP_11:
            await self._request.writer.write(CONTINUE)
            self._request.writer.output_size = 0


async def take(request: web.BaseRequest, bounds: ServerBounds, lease: Lease, *, whole: bool) -> Incoming:
    """Read a request: its body whole, or as a stream."""
    headers = pairs(request.raw_headers)
    if any(coding.strip(" \t").lower() != "chunked" for coding in values(headers, "transfer-encoding")):
        raise TurnedAwayError(BROKEN)  # the parser undoes the chunks only, and what is passed on would not say the rest
    expected = {value.lower() for value in values(headers, "expect")}
    if expected - {"100-continue"}:
        raise TurnedAwayError(EXPECTS)
    intake = Intake(request, bounds)
    body: Body = b""
    if request.body_exists:
        body = await intake.whole(lease) if whole else intake.stream()
    plain = await _plain(body, headers, bounds, lease) if whole and isinstance(body, bytes) else None
    return Incoming(method=request.method, target=request.raw_path, headers=headers, body=body, plain=plain)


async def _plain(body: bytes, headers: Headers, bounds: ServerBounds, lease: Lease) -> bytes | None:
    """Undo a body's content codings; the lease then holds both. Raises `TurnedAwayError` (413, 503)."""
    names = codings(headers)
    if not names:
        return body
    inner = decoder(names, ratio_bound(len(body), bounds.max_body))
    try:
        return None if inner is None else await _decoded(body, inner, lease)
    except UndecodableError:
        return None
    except TooLargeError:
        raise TurnedAwayError(GROWS) from None


async def _decoded(body: bytes, inner: Decoder, lease: Lease) -> bytes:
    """Decode step by step, so that neither the loop is held up nor memory taken before the lease has it."""
    parts: list[bytes] = []
    at = size = 0
    while at < len(body):
        inline = size < INLINE
        piece = body[at : at + (STEP_INLINE if inline else STEP_IN_THREAD)]
        parts.append(inner.feed(piece) if inline else await asyncio.to_thread(inner.feed, piece))
        at += len(piece)
        size += len(parts[-1])
        lease.reach(len(body) + size)
    return b"".join(parts)


def wants_upgrade(headers: tuple[tuple[str, str], ...]) -> bool:
    """Whether the client asks for a WebSocket."""
    return "websocket" in (first(headers, "upgrade") or "").lower()
