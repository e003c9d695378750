"""What passes between the doors and the exchange: requests that came in, replies that go out.

Header values are `str` decoded as UTF-8 with `surrogateescape`, so that every byte survives the
way through (`wire` turns them back). Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate

from proxy.errors import Answer

__all__ = [
    "Body",
    "Headers",
    "Incoming",
    "Outgoing",
    "end_to_end",
    "first",
    "inbound",
    "outbound",
    "own",
    "pairs",
    "values",
    "wire",
]

#: Names and values in the order they came, repeats included.
Headers = tuple[tuple[str, str], ...]
Body = bytes | AsyncIterator[bytes]

#: Headers with this beginning are Carryon's own, in requests and replies.
OURS = "x-carryon"
#: Headers that belong to one connection (RFC 9110, 7.6.1) and never pass.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Request headers that are answered or made anew here.
ANSWERED_HERE = frozenset({"expect", "host"})
#: No `Connection` header can make these hop-by-hop: dropping them would change what a message means.
NEVER_NAMED = frozenset({"content-length", "content-type", "content-encoding", "authorization", "x-api-key", "api-key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One request as the client sent it.

    `target` is the path with its query, exactly as sent. `headers` are all of them, hop-by-hop
    included. `body` is whole (still encoded as it came) for the POSTs of the dialects, else an
    iterator over the raw body, else `b""` where there is none. `plain` is a whole body without its
    content codings, None where there is no such body or one of them cannot be undone.
    """

    method: str
    target: str
    headers: Headers
    body: Body = b""
    plain: bytes | None = None


async def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One reply for the client: end-to-end headers only; the door does the framing.

    A `Content-Length` among the headers is kept; without one an iterator goes out chunked. An
    exception of the iterator cuts the connection, so that the client sees that the reply is not
    whole. `aclose` is called exactly once, whatever happens, and must end the upstream call.
    """

    status: int
    headers: Headers
    body: Body = b""
    reason: str = ""
    aclose: Callable[[], Awaitable[None]] = field(default=_nothing)


def own(answer: Answer, dialect: str | None = None) -> Outgoing:
    """Make the reply of Carryon's own answer, in the dialect's error shape; the door adds its length."""
    headers: Headers = (
        ("Content-Type", "application/json"),
        ("Date", formatdate(usegmt=True)),
        ("x-carryon-error", answer.code),
        *answer.headers,
    )
    return Outgoing(status=answer.status, headers=headers, body=answer.body(dialect))


def pairs(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Decode raw header bytes so that `wire` gives the same bytes back."""
    return tuple(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")) for name, value in raw
    )


def wire(text: str) -> bytes:
    """Encode a header's name or value, or a target, as it was on the wire."""
    return text.encode("utf-8", "surrogateescape")


def values(headers: Headers, name: str) -> tuple[str, ...]:
    """All values of the header `name` (lower case), in order."""
    return tuple(value for key, value in headers if key.lower() == name)


def first(headers: Headers, name: str) -> str | None:
    """Return the first value of the header `name` (lower case), None where there is none."""
    return next(iter(values(headers, name)), None)


def end_to_end(headers: Headers) -> Headers:
    """Headers without those of one connection: hop-by-hop, and what `Connection` names.

    `Content-Length` goes too where `Transfer-Encoding` stood beside it: it does not count then.
    """
    named = {token.strip().lower() for value in values(headers, "connection") for token in value.split(",")}
    gone = HOP_BY_HOP | (named - NEVER_NAMED)
    if values(headers, "transfer-encoding"):
        gone |= {"content-length"}
    return tuple(pair for pair in headers if pair[0].lower() not in gone)


def outbound(headers: Headers) -> Headers:
    """Give a client's headers as an upstream may see them: end-to-end, not ours, not answered here (rule 10.1)."""
    return tuple(
        (name, value)
        for name, value in end_to_end(headers)
        if name.lower() not in ANSWERED_HERE and not name.lower().startswith(OURS)
    )


def inbound(headers: Headers) -> Headers:
    """Give an upstream's headers as a client may see them: end-to-end, and none that speaks in Carryon's name."""
    return tuple(pair for pair in end_to_end(headers) if not pair[0].lower().startswith(OURS))
