"""What a request became, for the client's reply headers (rule 10.6) and the log's one line."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from proxy import events
from proxy.compaction.provenance import provenance
from proxy.core.identity import opaque
from proxy.core.surface import Provenance
from proxy.dialects import Completion
from proxy.message import Headers
from proxy.metrics import Metrics

__all__ = ["Report"]


@dataclass(slots=True, kw_only=True)
class Report:
    """Filled on the way through the exchange. `action` is what happened to the request as a whole."""

    upstream: str = ""
    model: str = ""
    conversation: str = ""
    action: str = "pass"
    skip: str = ""
    generation: int = 0
    raw: int | None = None
    sent: int | None = None
    refused: str = ""
    copies: int = 0
    summaries: list[Completion] = field(default_factory=list)
    #: What was started beside the request: it ends with a client that leaves.
    aside: asyncio.Task[None] | None = None
    began: float = field(default_factory=time.monotonic)
    #: Whether the client is told (`response_headers`).
    shown: bool = True
    #: What counts it, where something does.
    metrics: Metrics | None = None

    def denied(self, reason: str) -> None:
        """Note that an overflow is handed over, and why."""
        self.action, self.refused = "overflow-refused", reason

    def left(self) -> None:
        """Note that the client left before its reply ended: nothing more is spent for it (rule 3.6)."""
        if self.aside is not None:
            self.aside.cancel()

    def headers(self) -> Headers:
        """Give the `x-carryon-*` headers of the reply."""
        if not self.shown:
            return ()
        found = [("x-carryon-action", self.action)]
        if self.generation:
            found.append(("x-carryon-generation", str(self.generation)))
        if self.conversation:
            found.append(("x-carryon-conversation", opaque(self.conversation)))
        if self.raw is not None and self.sent is not None:
            found.append(("x-carryon-tokens", f"raw={self.raw}, sent={self.sent}"))
        if self.skip and self.action == "pass":
            found.append(("x-carryon-skip", self.skip))
        if (source := provenance(self.summaries)) is not None:
            found.append(("x-carryon-summary", _summary(source)))
        if self.refused:
            found += [("x-carryon-error", "CONTEXT_WINDOW_EXCEEDED"), ("x-carryon-refused", self.refused)]
        return tuple(found)

    def log(self, status: int, *, error: str | None = None) -> None:
        """Write the request's one line, and count it; `error` is the code of our own answer, which is a warning."""
        self._count(status, error)
        events.emit(
            "request",
            level=logging.WARNING if error else logging.INFO,
            upstream=self.upstream,
            model=self.model,
            conversation=opaque(self.conversation) or None,
            action=self.action,
            skip=self.skip or None,
            generation=self.generation or None,
            raw=self.raw,
            sent=self.sent,
            refused=self.refused or None,
            copies=self.copies,
            status=status,
            error=error,
            ms=round(1_000 * (time.monotonic() - self.began)),
        )

    def _count(self, status: int, error: str | None) -> None:
        if (counted := self.metrics) is None:
            return
        seconds = time.monotonic() - self.began
        counted.request(upstream=self.upstream, action=self.action, status=status, seconds=seconds, copies=self.copies)
        counted.about(skip=self.skip, refused=self.refused, code=error)
        if self.raw is not None and self.sent is not None:
            counted.tokens(self.raw, self.sent)
        for answer in self.summaries:
            counted.summary(*((answer.usage.prompt, answer.usage.completion) if answer.usage else (0, 0)))


def _summary(source: Provenance) -> str:
    counts = "" if source.prompt is None else f", in={source.prompt}, out={source.completion}"
    return f"model={source.model}{counts}"
