"""What requests came to, counted for Prometheus (rule 13.1).

Labels are bounded: no model, no tenant, nothing that a client sends.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from proxy import __version__

__all__ = ["Metrics"]

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """The counters of one process. `upstream` is a configured name, empty where no upstream was asked."""

    def __init__(self) -> None:
        """Start at zero, in a registry of its own."""
        self._registry = found = CollectorRegistry()
        self._requests = Counter(
            "carryon_requests",
            "Requests that ended, by what happened to them and the class of their status.",
            ["upstream", "action", "status"],
            registry=found,
        )
        self._errors = Counter(
            "carryon_own_answers", "Requests that Carryon answered itself, by its code.", ["code"], registry=found
        )
        self._copies = Counter("carryon_copies", "Copies of requests sent to upstreams.", ["upstream"], registry=found)
        self._tokens = Counter(
            "carryon_tokens", "Tokens of requests that were measured: raw, and as sent.", ["kind"], registry=found
        )
        self._skips = Counter("carryon_skips", "Requests that were not packed, by reason.", ["reason"], registry=found)
        self._refused = Counter(
            "carryon_retries_refused", "Overflows handed to the client, by reason.", ["reason"], registry=found
        )
        self._summaries = Counter("carryon_summaries", "Summaries that requests waited for.", registry=found)
        self._summary_tokens = Counter(
            "carryon_summary_tokens", "Tokens of those summaries, as upstreams told them.", ["kind"], registry=found
        )
        self._seconds = Histogram(
            "carryon_request_seconds",
            "Time from a request's arrival to the end of its reply.",
            registry=found,
            buckets=_SECONDS,
        )
        self._faults = Gauge("carryon_internal_faults", "Faults of Carryon's own since it started.", registry=found)
        self._store = Gauge("carryon_store_up", "1 while the store answers, 0 while it is away.", registry=found)
        Gauge("carryon_build_info", "The version that runs.", ["version"], registry=found).labels(__version__).set(1)

    def watch(self, *, faults: Callable[[], int], store_away: Callable[[], bool]) -> None:
        """Name what is asked for at each scrape instead of counted."""
        self._faults.set_function(faults)
        self._store.set_function(lambda: float(not store_away()))

    def request(self, *, upstream: str, action: str, status: int, seconds: float, copies: int) -> None:
        """Count a request that ended."""
        self._requests.labels(upstream, action, f"{status // 100}xx").inc()
        self._seconds.observe(seconds)
        if copies:
            self._copies.labels(upstream).inc(copies)

    def about(self, *, skip: str, refused: str, code: str | None) -> None:
        """Count why something was not done; each is empty where it was."""
        if skip:
            self._skips.labels(skip).inc()
        if refused:
            self._refused.labels(refused).inc()
        if code:
            self._errors.labels(code).inc()

    def tokens(self, raw: int, sent: int) -> None:
        """Add a measured request's tokens."""
        self._tokens.labels("raw").inc(raw)
        self._tokens.labels("sent").inc(sent)

    def summary(self, prompt: int, completion: int) -> None:
        """Count one summary; 0 tokens where the upstream told none."""
        self._summaries.inc()
        self._summary_tokens.labels("prompt").inc(prompt)
        self._summary_tokens.labels("completion").inc(completion)

    def exposition(self) -> tuple[str, bytes]:
        """Content type and text of all of them."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)
