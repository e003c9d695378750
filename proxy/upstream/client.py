"""The door to the models, over aiohttp."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from urllib.parse import urlsplit

import aiohttp

from proxy.encodings import TooLargeError, codings, decode
from proxy.upstream import Answered, Bounds, Call, Outcome, Peer, UpstreamError
from proxy.upstream.hold import Lens, inspected, relayed
from proxy.upstream.one_reply import Protocol
from proxy.upstream.wire import LINE, MAX_HEADERS, Request, Wire, connected, put

__all__ = ["Client"]


class Client:
    """Sends calls over pooled connections. Must be made inside a running loop and closed at the end.

    `peers` says by name how an upstream is reached; one that is not listed is reached plainly.
    """

    def __init__(self, peers: Mapping[str, Peer] = MappingProxyType({}), bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._peers = dict(peers)
        self._tls = {
            name: ssl.create_default_context(cafile=peer.ca_file) for name, peer in peers.items() if peer.ca_file
        }
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._bounds.idle)
        # Nor has the protocol of its connections.
        connector._factory = partial(Protocol, loop=asyncio.get_running_loop())  # type: ignore[assignment]  # noqa: SLF001 - as said
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            request_class=Request,
            trace_configs=[connected()],
            max_line_size=LINE,
            max_field_size=LINE,
            max_headers=MAX_HEADERS,
        )
        # aiohttp sends a GET twice where a kept connection died under it; here nothing is (rule 3.4).
        self._session._retry_connection = False  # noqa: SLF001 - it has no public switch

    async def send(
        self, call: Call, *, dialect: str | None = None, inspect: bool = False, window: int | None = None
    ) -> Outcome:
        """Send once; see `proxy.upstream.Upstream.send`."""
        wire = await self._put(call)
        if not inspect or dialect is None:
            return relayed(wire)
        patterns = self._peer(call).overflow_patterns
        lens = Lens(endpoint=urlsplit(call.url).path, dialect=dialect, window=window, patterns=patterns)
        return await inspected(wire, lens, self._bounds)

    async def ask(self, call: Call, *, within: float, limit: int = 16 << 20) -> Answered:
        """Ask something of our own; see `proxy.upstream.Upstream.ask`."""
        try:
            async with asyncio.timeout(within):
                wire = await self._put(call)
                try:
                    body = await _whole(wire, limit)
                finally:
                    await wire.close()
        except TimeoutError as error:
            raise UpstreamError("first_byte", "no whole answer in time") from error
        try:
            decoded = decode(body, codings(wire.headers), limit)
        except TooLargeError:
            decoded = None
        if decoded is None:
            raise UpstreamError("malformed", "the answer cannot be decoded")
        return Answered(status=wire.status, headers=wire.headers, body=decoded)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _put(self, call: Call) -> Wire:
        return await put(self._session, call, self._peer(call), self._bounds, self._tls.get(call.upstream))

    def _peer(self, call: Call) -> Peer:
        return self._peers.get(call.upstream, Peer())


async def _whole(wire: Wire, limit: int) -> bytes:
    body = bytearray()
    while chunk := await wire.receive():
        body += chunk
        if len(body) > limit:
            raise UpstreamError("malformed", "the answer is larger than expected")
    return bytes(body)
