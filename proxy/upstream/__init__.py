"""The door to the models: one call out, and what comes of it.

`send` ends in one of three outcomes: the reply is *delivered* (its beginning commits, or nobody
looks), *overflowed* (refused as too long) or *refused* (any other error). In all three the reply
can be handed on byte for byte; while it was held no byte had to be lost. Nothing is ever sent a
second time here: a failure is an `UpstreamError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import re

    from proxy.core.overflow import Verdict
    from proxy.message import Body, Headers
    from proxy.upstream.reply import Reply

__all__ = [
    "Answered",
    "Bounds",
    "Call",
    "Delivered",
    "ErrorKind",
    "Outcome",
    "Overflowed",
    "Peer",
    "Refused",
    "Upstream",
    "UpstreamError",
]

#: connect, connect_timeout, tls: nothing was sent. first_byte, stream_idle: too slow. dropped: closed or
#: cut too early. malformed: not HTTP. invalid: the call itself cannot be put on a wire.
ErrorKind = Literal["connect", "connect_timeout", "tls", "first_byte", "stream_idle", "dropped", "malformed", "invalid"]


class UpstreamError(Exception):
    """The upstream could not be reached, or its reply broke off. `kind` says how; the text holds no content."""

    #: Kinds that mean "too slow" (504); all others are 502.
    SLOW = frozenset({"connect_timeout", "first_byte", "stream_idle"})

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind

    @property
    def status(self) -> int:
        """The status of our own answer for it: 502 or 504."""
        return 504 if self.kind in self.SLOW else 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """How one upstream is reached, besides its URL: `proxy` is a URL, `ca_file` a path to PEM certificates."""

    proxy: str | None = None
    ca_file: str | None = None
    overflow_patterns: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Time-outs in seconds, sizes in bytes (rules 9.2, 10.5).

    `refusal` bounds how much of an error is read to inspect it, `spare` how long the rest of an
    overflowed stream is awaited before recovery begins. `idle` is how long an unused connection is kept.
    """

    connect: float = 10.0
    first_byte: float = 600.0
    stream_idle: float = 300.0
    hold_bytes: int = 16 << 20
    hold_time: float = 30.0
    refusal: int = 1 << 20
    spare: float = 1.0
    idle: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request for an upstream.

    `upstream` is its configured name, `url` exact and already encoded. `headers` may still hold
    hop-by-hop ones; `Content-Length` is made anew for whole bodies and kept for streamed ones.
    """

    upstream: str
    method: str
    url: str
    headers: Headers = ()
    body: Body = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The reply is the client's.

    `why` tells what ended the hold (a `Release` in lower case, `time`, `bytes`, `uninspected`), `held`
    for how many seconds it was held. `verdict` is set where an error inside a 200 committed. `events` is
    whether the body is a stream of events, which its content type does not always say.
    """

    reply: Reply
    why: str = "uninspected"
    held: float = 0.0
    verdict: Verdict | None = None
    events: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflowed:
    """Refused as too long. `reply` is the whole original, to be handed over if nothing helps."""

    reply: Reply
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Any other error; `verdict` is None where it could not be inspected (too large, unknown coding, cut)."""

    reply: Reply
    verdict: Verdict | None = None


Outcome = Delivered | Overflowed | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A whole answer to a question of our own; `body` is decoded."""

    status: int
    headers: Headers = ()
    body: bytes = b""


class Upstream(Protocol):
    """What the exchange needs of the door."""

    async def send(
        self, call: Call, *, dialect: str | None = None, inspect: bool = False, window: int | None = None
    ) -> Outcome:
        """Send once, and hold the reply until its fate is known. Raises `UpstreamError`.

        `inspect` is for the POSTs of the dialects; without it the reply is relayed as it comes. `window`
        is the model's in tokens, where known: it tells an overflow behind an empty `length` finish.
        Whoever gets a reply must iterate it to its end or `aclose` it.
        """
        ...

    async def ask(self, call: Call, *, within: float, limit: int = 16 << 20) -> Answered:
        """Ask something of our own and return the whole answer, within `within` seconds and `limit` bytes.

        Raises `UpstreamError`; of kind `first_byte` when time is up, `malformed` beyond the limit.
        """
        ...
