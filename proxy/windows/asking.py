"""Asking one upstream for its windows, beside the requests: who asks, how often, and what is remembered.

What was told serves everybody. What was asked in vain is remembered of the one who asked: neither names that one
tenant invents nor its bad credential cost another tenant an answer, a question or its turn (rule I6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from proxy import events
from proxy.settings.shape import UpstreamSettings
from proxy.store.bounded import Bounded
from proxy.windows import reported
from proxy.windows.reported import EVERY, Reported

__all__ = ["Ask", "Asked", "Headers"]

_LOG = logging.getLogger(__name__)

Headers = tuple[tuple[str, str], ...]
#: The door for asking: upstream, method, URL, headers, body -> status and body. It may raise anything; it follows no
#: redirect.
Ask = Callable[[str, str, str, Headers, bytes], Awaitable[tuple[int, bytes]]]
_Read = Callable[[bytes, str], dict[str, Reported]]

#: Seconds for one question, and how long answers, guesses and failures are kept.
ASK_SECONDS = 10.0
FRESH_SECONDS = 3600.0
GUESS_SECONDS = 60.0
FAILED_SECONDS = 300.0
DENIED_SECONDS = 30.0
LISTED_SECONDS = 20.0
#: A longer reply is not read, one longer than the second is read in a thread.
REPLY_BYTES = 4 * 1024 * 1024
INLINE_BYTES = 128 * 1024
#: Windows and askers that are remembered, and characters of the names that one asker asked for in vain.
REMEMBERED = 2048
ASKERS = 1024
MISSED = 4096
#: Questions at one time: of one asker, of all, and how many of them are being sent.
EACH = 2
WAITING = 64
CONCURRENT = 4
#: Statuses that say that a path does not exist, whatever the model, and those that say no to the one who asks.
_ABSENT = frozenset({404, 405, 501})
_DENIED = frozenset({401, 403, 429})


@dataclass(frozen=True, slots=True)
class _Told:
    report: Reported
    until: float


@dataclass(slots=True)
class _Asker:
    """One tenant: the names it asked for in vain and the URLs it need not ask, until when; how much is under way."""

    misses: Bounded[str, float] = field(default_factory=lambda: Bounded(MISSED))
    quiet: dict[str, float] = field(default_factory=dict)
    flying: int = 0


@dataclass(frozen=True, slots=True)
class _Flight:
    task: asyncio.Task[None]
    #: Whether the asker never had an answer.
    first: bool


class Asked:
    """What one upstream told of its windows, and the questions under way. `close` it."""

    def __init__(self, upstream: UpstreamSettings, ask: Ask, clock: Callable[[], float]) -> None:
        """Ask nothing yet."""
        self._upstream = upstream
        self._ask = ask
        self._clock = clock
        self._told: Bounded[str, _Told] = Bounded(REMEMBERED)
        #: What holds whatever the model is called.
        self._every: _Told | None = None
        self._askers: Bounded[object, _Asker] = Bounded(ASKERS)
        self._flights: dict[str, _Flight] = {}
        self._slots = asyncio.Semaphore(CONCURRENT)

    def report(self, model: str, headers: Headers, tenant: str = "") -> Reported | None:
        """Return what was told; where that is old or missing, start one question. Old answers serve on.

        `tenant` tells askers apart; without it their headers do.
        """
        told = self._find(model)
        if told is None or told.until <= self._clock():
            self._start(model, headers, tenant or hash(headers))
        return told.report if told else None

    def waits(self, model: str) -> bool:
        """Whether nothing is known only because the first answer is still to come."""
        flight = self._flights.get(model)
        return flight is not None and flight.first and self._find(model) is None

    async def settled(self, model: str) -> None:
        """Wait for the question about this model, if one is under way."""
        flight = self._flights.get(model)
        if flight is not None:
            await asyncio.shield(flight.task)

    async def close(self) -> None:
        """Cancel every question under way."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, model: str) -> _Told | None:
        return self._told.get(model) or self._every

    def _start(self, model: str, headers: Headers, key: object) -> None:
        asker = self._askers.get(key)
        if asker is None:
            self._askers.put(key, asker := _Asker())
        missed = asker.misses.get(model)
        if missed is not None and missed > self._clock():
            return
        full = asker.flying >= EACH or len(self._flights) >= WAITING
        if full or model in self._flights or not reported.is_name(model):
            return
        asker.flying += 1
        task = asyncio.ensure_future(self._question(asker, model, headers))
        self._flights[model] = _Flight(task, first=missed is None)

    async def _question(self, asker: _Asker, model: str, headers: Headers) -> None:
        try:
            async with self._slots:
                told = self._find(model)
                if told is None or told.until <= self._clock():  # else another's answer told it meanwhile
                    await self._ask_all(asker, model, headers)
        except Exception as error:  # noqa: BLE001 - nobody waits for this task: a fault of ours must not go unseen
            events.emit("background-failed", level=logging.ERROR, error=events.place(error))
            self._miss(asker, model, FAILED_SECONDS)
        finally:
            asker.flying -= 1
            del self._flights[model]

    async def _ask_all(self, asker: _Asker, model: str, headers: Headers) -> None:
        """Ask the list of models, then llama.cpp, then Ollama; the first that tells for sure ends it."""
        denied = False
        best: dict[str, Reported] = {}
        for method, url, body, read in self._questions(model):
            if asker.quiet.get(url, 0.0) > self._clock() or (read is reported.running and model not in best):
                continue
            status, data = await self._answer(method, url, headers, body)
            denied = denied or status in _DENIED
            if method == "GET" and status in _ABSENT:
                asker.quiet[url] = self._clock() + FAILED_SECONDS
            elif read is reported.listed and status == 200:
                asker.quiet[url] = self._clock() + LISTED_SECONDS
            best |= await _read(read, data, model) if status == 200 else {}
            found = best.get(model) or best.get(EVERY)
            if found is not None and not found.guess:
                break
        for name, report in best.items():
            self._remember(name, report)
        if model not in best and EVERY not in best:
            self._miss(asker, model, DENIED_SECONDS if denied else FAILED_SECONDS)

    def _questions(self, model: str) -> Iterator[tuple[str, str, bytes, _Read]]:
        base = self._upstream.base_url
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(base))
        yield "GET", f"{base}/models", b"", reported.listed
        yield "GET", f"{origin}/props", b"", reported.props
        yield "POST", f"{origin}/api/show", msgspec.json.encode({"model": model}), reported.shown
        yield "GET", f"{origin}/api/ps", b"", reported.running

    async def _answer(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        """Ask one question; any failure is status 0."""
        if body:
            headers = (*headers, ("content-type", "application/json"))
        try:
            async with asyncio.timeout(ASK_SECONDS):
                status, data = await self._ask(self._upstream.name, method, url, headers, body)
        except Exception:  # noqa: BLE001 - asking is a courtesy: nothing may come of its failure
            _LOG.debug("asking for a window failed", exc_info=True)
            return 0, b""
        return (status, data) if len(data) <= REPLY_BYTES else (0, b"")

    def _remember(self, name: str, report: Reported) -> None:
        told = _Told(report, self._clock() + (GUESS_SECONDS if report.guess else FRESH_SECONDS))
        if name == EVERY:
            self._every = told
        else:
            self._told.put(name, told)

    def _miss(self, asker: _Asker, model: str, seconds: float) -> None:
        """Note a question that was in vain. What was told before stays in use: the upstream has stopped answering."""
        asker.misses.put(model, self._clock() + seconds, weight=len(model))


async def _read(read: _Read, data: bytes, model: str) -> dict[str, Reported]:
    if len(data) > INLINE_BYTES:
        return await asyncio.to_thread(read, data, model)
    return read(data, model)
