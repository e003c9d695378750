"""One request of the admin listener: a probe, the metrics, or, past the guard, the API (rule 13.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proxy.admin.guard import Guard
from proxy.admin.probes import NOWHERE, PROBES, Ready
from proxy.message import Incoming, Outgoing, own

__all__ = ["Door", "Exposition"]

#: Content type and body of the metrics.
Exposition = Callable[[], tuple[str, bytes]]
#: What answers below `/api/`.
Inside = Callable[[Incoming], Awaitable[Outgoing]]
_API = "/api/"


class Door:
    """Answers what comes in. Without `inside` and `metrics` there are probes alone."""

    def __init__(
        self,
        ready: Ready,
        *,
        guard: Guard | None = None,
        inside: Inside | None = None,
        metrics: Exposition | None = None,
    ) -> None:
        self._ready, self._guard, self._inside, self._metrics = ready, guard, inside, metrics

    async def __call__(self, incoming: Incoming) -> Outgoing:
        """Answer one request of the admin listener."""
        path = incoming.target.partition("?")[0]
        reads = incoming.method in {"GET", "HEAD"}
        if reads and path in PROBES:
            return PROBES[path](self._ready)
        if reads and path == "/metrics" and self._metrics is not None:
            kind, body = self._metrics()
            return Outgoing(status=200, headers=(("Content-Type", kind), ("Cache-Control", "no-store")), body=body)
        if path.startswith(_API) and self._inside is not None and self._guard is not None:
            refused = self._guard.refusal(incoming.headers)
            return own(refused) if refused is not None else await self._inside(incoming)
        return own(NOWHERE)
