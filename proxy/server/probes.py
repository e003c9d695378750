"""The admin listener's probes: alive, and ready."""

from __future__ import annotations

from collections.abc import Callable

from proxy.errors import Answer
from proxy.message import Incoming, Outgoing, own

__all__ = ["NO_PROBE", "Probes"]

#: For agents that were pointed here by mistake.
NO_PROBE = Answer(
    status=404,
    code="PROXY_NOT_FOUND",
    message="There is no such path here: this is the probe port; clients use listen.port.",
)
NOT_READY = Answer(status=503, code="PROXY_DRAINING", message="Carryon is draining.", headers=(("Retry-After", "1"),))
TEXT = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))


class Probes:
    """`/livez` touches nothing; `/readyz` asks `ready`, which says what is degraded, None for not ready."""

    def __init__(self, ready: Callable[[], tuple[str, ...] | None]) -> None:
        self._ready = ready

    async def __call__(self, incoming: Incoming) -> Outgoing:
        """Answer one request of the admin listener."""
        path = incoming.target.partition("?")[0]
        if incoming.method not in {"GET", "HEAD"}:
            return own(NO_PROBE)
        if path == "/livez":
            return Outgoing(status=200, headers=TEXT, body=b'{"status":"alive"}')
        if path == "/readyz":
            return self._readiness()
        return own(NO_PROBE)

    def _readiness(self) -> Outgoing:
        degraded = self._ready()
        if degraded is None:
            return own(NOT_READY)
        listed = ",".join(f'"{name}"' for name in degraded)
        return Outgoing(status=200, headers=TEXT, body=b'{"status":"ready","degraded":[%s]}' % listed.encode())
