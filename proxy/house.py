"""All that one process holds for its requests: the doors, the compactor, what is remembered.

Built once at start, by `boot`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

from proxy import events
from proxy.compaction.aside import Aside
from proxy.compaction.flights import Flights
from proxy.compaction.job import Compactor
from proxy.core.anchors import Anchors
from proxy.core.known import Known
from proxy.core.meter import Meter, parts
from proxy.core.transcript import Envelope, Item
from proxy.dialects import Completion, Dialect
from proxy.learning import Learning
from proxy.metrics import Metrics
from proxy.policy import Policy, resolve
from proxy.settings import Settings
from proxy.steps.ladder import Ladder
from proxy.store import Ledger, StoreError
from proxy.store.within import Within
from proxy.tokens import count_with, encoding_for
from proxy.upstream import Upstream
from proxy.windows import Windows

__all__ = ["Background", "Destination", "House", "Measures", "Reading", "destinations", "policies"]

_T = TypeVar("_T")
#: Text above this many bytes is counted in a thread: about 2 ms of encoding.
_INLINE = 20_000
_POLICIES = 1_024
#: What part of a call's time a trial of the store may take.
_TRIAL = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One configured upstream as the exchange uses it, secrets revealed and kept out of `repr`."""

    name: str
    base_url: str
    serves: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    api_key_header: str = "auto"
    inject_paths: tuple[str, ...] = ()
    accept_client_credential: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    overflow_patterns: tuple[re.Pattern[str], ...] = ()


def policies(settings: Settings) -> Callable[[str, str], Policy]:
    """Give effective policies by upstream and model, each resolved once."""
    return lru_cache(maxsize=_POLICIES)(partial(resolve, settings))


def destinations(settings: Settings) -> tuple[Destination, ...]:
    """List the configured upstreams in their order; the first is the default."""
    return tuple(
        Destination(
            name=name,
            base_url=upstream.base_url,
            serves=upstream.serves,
            api_key=upstream.api_key.get_secret_value() if upstream.api_key else None,
            api_key_header=upstream.api_key_header,
            inject_paths=upstream.inject_paths,
            accept_client_credential=upstream.accept_client_credential,
            headers=tuple((key, value.get_secret_value()) for key, value in upstream.headers.items()),
            overflow_patterns=tuple(re.compile(pattern) for pattern in upstream.overflow_patterns),
        )
        for name, upstream in settings.upstreams.items()
    )


class Background:
    """Work beside the requests: held until done, ended at shutdown, its failures logged."""

    def __init__(self) -> None:
        """Start with none."""
        self._tasks: set[asyncio.Task[object]] = set()

    def spawn(self, work: Coroutine[None, None, object]) -> None:
        """Run it beside the request."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self, wait: float) -> None:
        """Give what runs `wait` seconds to end, then cancel it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=wait)
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            events.emit("background-failed", level=logging.ERROR, error=events.place(task.exception()))


class Measures:
    """Meters by dialect and encoding, and the threads that count long texts."""

    def __init__(self) -> None:
        """Load nothing yet: a meter is made when it is first asked for."""
        self._meters: dict[tuple[str, str], Meter] = {}
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="meter")

    def meter(self, dialect: Dialect, model: str) -> Meter:
        """Return the meter for a model's items."""
        encoding = encoding_for(model)
        found = self._meters.get((dialect.name, encoding))
        if found is None:
            found = self._meters[dialect.name, encoding] = Meter(dialect.weigh, count_with(encoding))
        return found

    async def estimate(self, dialect: Dialect, envelope: Envelope, items: tuple[Item, ...], model: str) -> int:
        """Count a request; long texts that are new are counted in a thread."""
        meter = self.meter(dialect, model)
        if meter.unknown((*parts(envelope), *items)) <= _INLINE:
            return meter.total(envelope, items)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(meter.total, envelope, items))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Reading:
    """The threads that read large bodies: only other large bodies wait for them."""

    def __init__(self) -> None:
        """Start none yet."""
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="read")

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do it in a thread; what has not begun when its client leaves never does."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True, kw_only=True)
class House:
    """What an exchange works with. `secret` keys the tenants."""

    settings: Settings
    policies: Callable[[str, str], Policy]
    upstreams: tuple[Destination, ...]
    dialects: dict[str, Dialect]
    ledger: Ledger
    upstream: Upstream
    windows: Windows
    compactor: Compactor
    learning: Learning
    secret: bytes = field(repr=False)
    background: Background = field(default_factory=Background)
    metrics: Metrics = field(default_factory=Metrics)
    measures: Measures = field(default_factory=Measures)
    reading: Reading = field(default_factory=Reading)
    ladder: Ladder = field(default_factory=Ladder)
    flights: Flights[Completion | None] = field(default_factory=Flights)
    anchors: Anchors = field(default_factory=Anchors)
    aside: Aside = field(default_factory=Aside)
    #: Who takes leases: this process.
    owner: str = field(default_factory=lambda: secrets.token_hex(8))
    summaries: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    #: Faults of our own (rule 2.11); 0 in every test run.
    internal_faults: int = 0
    #: Whether a commit did not land and none has since: a summary that cannot be stored costs time and money.
    unstored: bool = False
    #: Refusals by 500 of a request that carried an unproven surface, by operation id (rule 4.10).
    doubted: Known[str, int] = field(default_factory=lambda: Known(1_024))
    #: When a surface was last marked as applied, by operation id.
    marked: Known[str, float] = field(default_factory=lambda: Known(10_000))
    #: Surfaces this process saw succeed, and conversations it warned about, so that each is noted once.
    proven: Known[str, bool] = field(default_factory=lambda: Known(10_000))
    warned: Known[str, bool] = field(default_factory=lambda: Known(10_000))
    #: Surfaces this process saw rejected: they rest here also while the store cannot note it (rule 4.10).
    retired: Known[str, bool] = field(default_factory=lambda: Known(10_000))
    #: Conversations whose last stream ended in an overflow: their next look-up is not skipped (rule 9.3).
    forced: Known[str, str] = field(default_factory=lambda: Known(1_024))

    def once(self, about: str) -> bool:
        """Whether this is the first time that something is to be warned about in this process."""
        first = self.warned.get(about) is None
        self.warned.put(about, value=True)
        return first

    async def mark(self, conversation: str, operation: str, mark: str) -> None:
        """Note something about a surface; a store that is away has warned already and forgets it."""
        with suppress(StoreError):
            await self.ledger.mark(conversation, operation, mark)

    async def stores(self, records: Within, conversation: str) -> bool:
        """Whether the store takes what is written: after a commit that did not land a small note is tried first."""
        if self.unstored:
            with suppress(StoreError):
                wait = self.settings.redis.timeout * _TRIAL
                await records.note(conversation, "trial", "1", wait=wait)
                self.unstored = False
        return not self.unstored

    async def note(self, conversation: str, name: str, value: str) -> None:
        """Set a note of the conversation, or remove it with an empty value; a store that is away forgets it."""
        with suppress(StoreError):
            await self.ledger.note(conversation, name, value)

    def fault(self, what: str) -> None:
        """Count and log a fault of our own; call it from the `except` that caught it."""
        self.internal_faults += 1
        events.emit("internal-fault", level=logging.ERROR, what=what, error=events.place(sys.exc_info()[1]))
