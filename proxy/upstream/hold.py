"""Hold a reply until it is delivered, overflowed or refused (rule 9), keeping its raw bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from proxy.core.hold import Hold
from proxy.core.hold_form import Form
from proxy.core.overflow import Kind, Verdict, classify
from proxy.core.skim import legible
from proxy.core.sse import text_of
from proxy.encodings import Decoder, TooLargeError, UndecodableError, codings, decode, decoder
from proxy.message import first
from proxy.upstream import Bounds, Delivered, Outcome, Overflowed, Refused, UpstreamError
from proxy.upstream.reply import Reply, Tail

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncIterator, Iterator

    from proxy.core.hold import Release
    from proxy.upstream.wire import Wire

__all__ = ["Lens", "inspected", "relayed"]

REFUSAL = 400
#: How much of a decoded reply's end is kept: of a stream, and of a body that is one JSON value.
TAIL_STREAM = 1 << 16
TAIL_WHOLE = 1 << 20
#: A decoded copy of a refusal may be this many times larger than what is read of it.
GROWTH = 4
#: Bytes of a reply that are looked at before the event loop serves others: of events, some milliseconds.
PIECE = 1 << 13
#: A decoded copy of a reply that says 200 may be this much larger than what is held of it.
BEYOND = 1 << 20
#: Content types that are believed: no error was ever sent as one of these.
MEDIA = ("audio/", "image/", "video/")
#: Beyond this many decoded bytes a stream's tail is no longer kept.
TAIL_DECODED = 1 << 28


@dataclass(slots=True)
class _Held:
    """Raw bytes read so far, and why the reading stopped."""

    raw: list[bytes] = field(default_factory=list)
    size: int = 0
    ended: bool = False
    fault: UpstreamError | None = None

    def take(self, chunk: bytes) -> None:
        self.raw.append(chunk)
        self.size += len(chunk)
        self.ended = not chunk

    async def then(self, wire: Wire) -> AsyncIterator[bytes]:
        """Give what comes after the held bytes: nothing, the fault, or the rest of the wire."""
        if self.fault is not None:
            raise self.fault
        if not self.ended:
            async for chunk in wire.rest():
                yield chunk


def relayed(wire: Wire) -> Delivered:
    """Hand a reply on as it comes, uninspected."""
    return Delivered(reply=_reply(wire, _Held(), tail=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lens:
    """With what a reply is looked at: the call's `endpoint`, its dialect, the model's window in tokens if known."""

    endpoint: str
    dialect: str
    window: int | None
    patterns: tuple[re.Pattern[str], ...]


async def inspected(wire: Wire, lens: Lens, bounds: Bounds) -> Outcome:
    """Decide what a reply is. The wire is closed here only if this raises."""
    try:
        if wire.status >= REFUSAL:
            return await _refusal(wire, lens, bounds)
        return await _beginning(wire, lens, bounds)
    except BaseException:
        await wire.close()
        raise


async def _refusal(wire: Wire, lens: Lens, bounds: Bounds) -> Outcome:
    """Read an error whole, within bounds, and classify a decoded copy."""
    held = _Held()
    await _fill(wire, held, bounds.refusal, bounds.hold_time)
    reply = _reply(wire, held, tail=None)
    if not held.ended:
        return Refused(reply=reply)
    body = _decoded(b"".join(held.raw), wire, bounds.refusal)
    if body is None:
        return Refused(reply=reply)
    verdict = classify(
        status=wire.status,
        body=legible(text_of(body)),
        endpoint=lens.endpoint,
        patterns=lens.patterns,
        window=lens.window,
        headers=dict(wire.headers),
    )
    return _judged(reply, verdict)


def _judged(reply: Reply, verdict: Verdict) -> Outcome:
    if verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED:
        return Overflowed(reply=reply, verdict=verdict)
    return Refused(reply=reply, verdict=verdict)


def _decoded(raw: bytes, wire: Wire, limit: int) -> bytes | None:
    try:
        return decode(raw, codings(wire.headers), limit * GROWTH)
    except TooLargeError:
        return None


@dataclass(slots=True)
class _Look:
    """What is held, looked at piece by piece: `until` then, and no more than `room` decoded bytes."""

    hold: Hold
    inner: Decoder
    until: float
    room: int

    async def at(self, raw: bytes) -> Verdict | Release | Literal["time", "bytes"] | None:
        """Look at the next raw bytes; between two pieces others are served. None means: keep holding."""
        loop = asyncio.get_running_loop()
        for piece in self._pieces(raw):
            fate = self.hold.feed(piece)
            if fate is not None:
                return fate
            self.room -= len(piece)
            if self.room <= 0:
                return "bytes"
            await asyncio.sleep(0)
            if loop.time() >= self.until:
                return "time"
        return None

    def _pieces(self, raw: bytes) -> Iterator[bytes]:
        for data in map(self.inner.feed, self.inner.parts(raw)):
            for at in range(0, len(data), PIECE):
                yield data[at : at + PIECE]


async def _beginning(wire: Wire, lens: Lens, bounds: Bounds) -> Outcome:
    """Hold a reply that says 200 until its beginning commits, a bound is reached, or it overflows."""
    inner = decoder(codings(wire.headers), bounds.hold_bytes + BEYOND)
    if inner is None or _kind(wire).startswith(MEDIA):
        return relayed(wire)
    loop = asyncio.get_running_loop()
    began = loop.time()
    held = _Held()
    hold = Hold(said=_said(wire), dialect=lens.dialect, overflow_patterns=lens.patterns, window=lens.window)
    look = _Look(hold, inner, until=began + bounds.hold_time, room=bounds.hold_bytes)

    def delivered(why: str) -> Delivered:
        return Delivered(
            reply=_reply(wire, held, tail=_tail(wire, hold)),
            why=why,
            held=loop.time() - began,
            verdict=hold.verdict,
            events=hold.form is Form.EVENTS,
        )

    while held.size < bounds.hold_bytes:
        try:
            async with asyncio.timeout_at(look.until):
                held.take(await wire.receive())
        except TimeoutError:
            return delivered("time")
        try:
            fate = hold.end() if held.ended else await look.at(held.raw[-1])
        except (UndecodableError, TooLargeError):
            return delivered("uninspected")
        if isinstance(fate, Verdict):
            # No connection should wait while recovery works.
            await _fill(wire, held, bounds.refusal, bounds.spare)
            return _judged(_reply(wire, held, tail=None), fate)
        if fate is not None:
            return delivered(fate if isinstance(fate, str) else fate.value)
    return delivered("bytes")


async def _fill(wire: Wire, held: _Held, size: int, seconds: float) -> None:
    """Read on to the end, but no more than about `size` bytes and `seconds`; a fault is kept for later."""
    try:
        async with asyncio.timeout(seconds):
            while not held.ended and held.size <= size:
                held.take(await wire.receive())
    except UpstreamError as fault:
        held.fault = fault
    except TimeoutError:
        return


def _said(wire: Wire) -> Form | None:
    """Name the form that the content type names."""
    kind = _kind(wire)
    return Form.EVENTS if "text/event-stream" in kind else Form.JSON if "json" in kind else None


def _kind(wire: Wire) -> str:
    return (first(wire.headers, "content-type") or "").strip().lower()


def _tail(wire: Wire, hold: Hold) -> Tail | None:
    """Keep the end of what has a form that tells something at its end."""
    if hold.form is Form.OTHER:
        return None
    return Tail(decoder(codings(wire.headers), TAIL_DECODED), TAIL_STREAM if hold.form is Form.EVENTS else TAIL_WHOLE)


def _reply(wire: Wire, held: _Held, tail: Tail | None) -> Reply:
    return Reply(
        status=wire.status,
        reason=wire.reason,
        headers=wire.headers,
        held=tuple(chunk for chunk in held.raw if chunk),
        source=held.then(wire),
        close=wire.close,
        tail=tail,
    )
