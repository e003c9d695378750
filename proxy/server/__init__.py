"""The door to the clients: aiohttp below, one exchange per request above.

`connection` is the protocol (time-outs and faults before there is a request), `intake` turns a
request into an `Incoming`, `outlet` puts an `Outgoing` on the wire, `handler` is the one path
between them, `lifecycle` starts, drains and stops. What the admin listener answers is `proxy.admin`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ServerBounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBounds:
    """Limits of the listener: sizes in bytes, times in seconds (rules 10.5, 11.7).

    `max_body` bounds the bodies that are read whole, as sent and decoded. `header` runs from the
    connection, or from the first byte of a further request, to the end of its head. `stall` is how
    long a client may leave a reply unread.
    """

    max_body: int = 64 << 20
    max_inflight_bytes: int = 1 << 30
    max_connections: int = 4096
    max_line: int = 1 << 14
    max_field: int = 1 << 15
    max_headers: int = 256
    header: float = 10.0
    body_idle: float = 30.0
    keep_alive: float = 75.0
    stall: float = 300.0
    linger: float = 2.0
    drain: float = 120.0
