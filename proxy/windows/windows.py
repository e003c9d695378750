"""How big is this model's window (rule 6.1)? YAML, what the upstream reports, litellm's table, what was learned.

`Windows.known` answers at once from what is at hand and starts the asking in the background, so no
request ever waits for it. What a reply of an upstream means is `reported`, the table `packaged`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from proxy.policy import Policy, WindowKind
from proxy.settings.shape import UpstreamSettings
from proxy.windows import packaged, reported
from proxy.windows.reported import Reported

__all__ = ["Ask", "Window", "Windows"]

_LOG = logging.getLogger(__name__)

Headers = tuple[tuple[str, str], ...]
#: The door for asking: method, URL, headers, body -> status and body. It may raise anything; it follows no redirect.
Ask = Callable[[str, str, Headers, bytes], Awaitable[tuple[int, bytes]]]
Source = Literal["yaml", "learned", "asked", "packaged"]

#: Seconds for one question, and how long answers, guesses and failures are kept.
ASK_SECONDS = 10.0
FRESH_SECONDS = 3600.0
GUESS_SECONDS = 60.0
FAILED_SECONDS = 300.0
DENIED_SECONDS = 30.0
LISTED_SECONDS = 20.0
#: A longer reply is not read; more models than this are not remembered.
REPLY_BYTES = 4 * 1024 * 1024
REMEMBERED = 2048
CONCURRENT = 4
#: Statuses that say that a path does not exist, whatever the model.
_ABSENT = frozenset({404, 405, 501})


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window in tokens. `adds_output`: the server adds the requested output to the prompt (rule 6.2)."""

    tokens: int
    kind: WindowKind
    source: Source
    adds_output: bool


@dataclass(frozen=True, slots=True)
class _Remembered:
    report: Reported | None
    until: float


@dataclass(slots=True)
class _Asked:
    """What one upstream reported, by model; the models it listed; the questions under way."""

    answers: dict[str, _Remembered] = field(default_factory=dict)
    flights: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    #: URLs that need not be asked again before this time, whatever the model.
    quiet: dict[str, float] = field(default_factory=dict)


class Windows:
    """Knows windows. One instance lives as long as the process; `close` it.

    `policies` resolves upstream and model to a policy (for `like`), `ask` is the door to upstreams,
    `clock` gives seconds that only rise.
    """

    def __init__(
        self,
        policies: Callable[[str, str], Policy],
        ask: Ask,
        *,
        clock: Callable[[], float] = time.monotonic,
        table: Callable[[], packaged.Table] = packaged.load,
    ) -> None:
        """Take the doors; nothing is read or asked yet."""
        self._policies = policies
        self._ask = ask
        self._clock = clock
        self._load = table
        self._table: packaged.Table | None = None
        self._loading: asyncio.Task[None] | None = None
        self._asked: dict[str, _Asked] = {}
        self._slots = asyncio.Semaphore(CONCURRENT)

    def known(
        self,
        upstream: UpstreamSettings,
        model: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        learned: int = 0,
        learned_kind: str = "",
    ) -> Window | None:
        """Return the window as far as it is known now, None if it is not.

        `headers` are the credential headers (and `anthropic-version`) as they would be sent upstream;
        they are used for one question and not kept. `learned` is a learned limit (0: none). Call it
        inside a running event loop: what is not known is asked in the background.
        """
        window = self._first(upstream, model, tuple(headers))
        if not learned or (window and window.tokens <= learned):
            return window
        if window is None:
            return Window(tokens=learned, kind=_kind(learned_kind), source="learned", adds_output=True)
        return replace(window, tokens=learned, kind=_kind(learned_kind or window.kind), source="learned")

    def _first(self, upstream: UpstreamSettings, model: str, headers: Headers) -> Window | None:
        """Return the first known of YAML, asked, packaged."""
        policy = self._policies(upstream.name, model)
        name = policy.like or model
        named = policy if policy.window or not policy.like else self._policies(upstream.name, policy.like)
        tokens, kind = policy.window or named.window, policy.window_kind or named.window_kind
        # A window of YAML with its kind leaves nothing to ask.
        report = None if tokens and kind else self._report(upstream, name, headers)
        if tokens:
            adds = report.adds_output if report else True
            return Window(tokens=tokens, kind=kind or "total", source="yaml", adds_output=adds)
        source: Source = "asked"
        if report is None:
            report, source = self._packaged(upstream, name), "packaged"
        if report is None:
            return None
        return Window(tokens=report.tokens, kind=kind or report.kind, source=source, adds_output=report.adds_output)

    def _packaged(self, upstream: UpstreamSettings, model: str) -> Reported | None:
        if self._table is None:
            if self._loading is None:
                self._loading = asyncio.ensure_future(self._read_table())
            return None
        return self._table.find(model, (upstream.name, urlsplit(upstream.base_url).hostname or ""))

    async def _read_table(self) -> None:
        try:
            self._table = await asyncio.to_thread(self._load)
        except Exception:  # noqa: BLE001 - a broken package of somebody else must not break requests
            _LOG.warning("the packaged table of windows cannot be read", exc_info=True)
            self._table = packaged.Table({})

    def asking(self, upstream: UpstreamSettings, model: str) -> bool:
        """Whether nothing is known yet only because the first answer, or the packaged table, is still to come."""
        asked, name = self._asked.get(upstream.base_url), self._policies(upstream.name, model).like or model
        return self._table is None or (asked is not None and name in asked.flights and name not in asked.answers)

    async def warm(self) -> None:
        """Read the packaged table now, so that the first request finds it."""
        if self._table is None:
            self._loading = self._loading or asyncio.ensure_future(self._read_table())
            await self._loading

    async def ask(
        self, upstream: UpstreamSettings, model: str, headers: Sequence[tuple[str, str]] = ()
    ) -> Reported | None:
        """Ask now and return what the upstream reports (for `carryon doctor`)."""
        self._report(upstream, model, tuple(headers))
        flight = self._asked[upstream.base_url].flights.get(model)
        if flight is not None:
            await asyncio.shield(flight)
        remembered = self._asked[upstream.base_url].answers.get(model)
        return remembered.report if remembered else None

    def _report(self, upstream: UpstreamSettings, model: str, headers: Headers) -> Reported | None:
        """Return what was reported; where that is old or missing, start one question. Old answers serve on."""
        asked = self._asked.setdefault(upstream.base_url, _Asked())
        remembered = asked.answers.get(model)
        stale = remembered is None or remembered.until <= self._clock()
        if stale and model not in asked.flights and len(asked.flights) < REMEMBERED:
            asked.flights[model] = asyncio.ensure_future(self._question(asked, upstream, model, headers))
        return remembered.report if remembered else None

    async def _question(self, asked: _Asked, upstream: UpstreamSettings, model: str, headers: Headers) -> None:
        try:
            async with self._slots:
                await self._ask_all(asked, upstream, model, headers)
        finally:
            del asked.flights[model]

    async def _ask_all(self, asked: _Asked, upstream: UpstreamSettings, model: str, headers: Headers) -> None:
        """Ask the list of models, then llama.cpp, then Ollama; the first that tells for sure ends it."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(upstream.base_url))
        show = msgspec.json.encode({"model": model})
        denied = False
        best: dict[str, Reported] = {}
        for method, url, body, read in (
            ("GET", f"{upstream.base_url}/models", b"", reported.listed),
            ("GET", f"{origin}/props", b"", reported.props),
            ("POST", f"{origin}/api/show", show, reported.shown),
            ("GET", f"{origin}/api/ps", b"", reported.running),
        ):
            if asked.quiet.get(url, 0.0) > self._clock() or (read is reported.running and not best):
                continue
            status, data = await self._answer(method, url, headers, body)
            denied = denied or status in {401, 403, 429}
            if method == "GET" and status in _ABSENT:
                asked.quiet[url] = self._clock() + FAILED_SECONDS
            elif read is reported.listed and status == 200:
                asked.quiet[url] = self._clock() + LISTED_SECONDS
            reports = read(data, model) if status == 200 else {}
            best |= reports
            if model in best and not best[model].guess:
                break
        for name, report in best.items():
            self._remember(asked, name, report, GUESS_SECONDS if report.guess else FRESH_SECONDS)
        if model in best:
            return
        # An old answer stays in use when the upstream has stopped answering.
        old = asked.answers.get(model)
        self._remember(asked, model, old.report if old else None, DENIED_SECONDS if denied else FAILED_SECONDS)

    async def _answer(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        """Ask one question; any failure is status 0."""
        if body:
            headers = (*headers, ("content-type", "application/json"))
        try:
            async with asyncio.timeout(ASK_SECONDS):
                status, data = await self._ask(method, url, headers, body)
        except Exception:  # noqa: BLE001 - asking is a courtesy: nothing may come of its failure
            _LOG.debug("asking for a window failed", exc_info=True)
            return 0, b""
        return (status, data) if len(data) <= REPLY_BYTES else (0, b"")

    def _remember(self, asked: _Asked, model: str, report: Reported | None, seconds: float) -> None:
        asked.answers.pop(model, None)
        asked.answers[model] = _Remembered(report, self._clock() + seconds)
        while len(asked.answers) > REMEMBERED:
            del asked.answers[next(iter(asked.answers))]

    async def close(self) -> None:
        """Cancel every question under way."""
        tasks = [task for asked in self._asked.values() for task in asked.flights.values()]
        tasks += [self._loading] if self._loading else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _kind(text: str) -> WindowKind:
    return "input" if text == "input" else "total"
