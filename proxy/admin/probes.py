"""The probes of the admin listener: alive, and ready. They need no token and accept any `Host` (rule 13.4)."""

from __future__ import annotations

from collections.abc import Callable

from proxy.errors import Answer
from proxy.message import Outgoing, own

__all__ = ["JSON", "NOWHERE", "PROBES", "Ready", "livez", "readyz"]

#: What is degraded, None for not ready.
Ready = Callable[[], tuple[str, ...] | None]

#: For agents that were pointed here by mistake.
NOWHERE = Answer(
    status=404,
    code="PROXY_NOT_FOUND",
    message="There is no such path here: this is the probe port; clients use listen.port.",
)
NOT_READY = Answer(status=503, code="PROXY_DRAINING", message="Carryon is draining.", headers=(("Retry-After", "1"),))
JSON = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))


def livez(_ready: Ready) -> Outgoing:
    """Answer that the process lives; touches nothing."""
    return Outgoing(status=200, headers=JSON, body=b'{"status":"alive"}')


def readyz(ready: Ready) -> Outgoing:
    """Answer whether requests are taken, and what works only in part."""
    degraded = ready()
    if degraded is None:
        return own(NOT_READY)
    listed = ",".join(f'"{name}"' for name in degraded)
    return Outgoing(status=200, headers=JSON, body=b'{"status":"ready","degraded":[%s]}' % listed.encode())


PROBES: dict[str, Callable[[Ready], Outgoing]] = {"/livez": livez, "/readyz": readyz}
