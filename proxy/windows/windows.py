"""How big is this model's window (rule 6.1)? YAML, what the upstream reports, litellm's table, what was learned.

`Windows.known` answers at once from what is at hand and starts the asking in the background, so no
request ever waits for it. Who is asked how often is `asking`, what a reply means `reported`, the table `packaged`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from proxy.policy import Policy, WindowKind
from proxy.settings.shape import UpstreamSettings
from proxy.windows import packaged
from proxy.windows.asking import Ask, Asked, Headers
from proxy.windows.reported import Reported

__all__ = ["Ask", "Window", "Windows"]

_LOG = logging.getLogger(__name__)

Source = Literal["yaml", "learned", "asked", "packaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window in tokens. `adds_output`: the server adds the requested output to the prompt (rule 6.2)."""

    tokens: int
    kind: WindowKind
    source: Source
    adds_output: bool


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
        self._asked: dict[str, Asked] = {}

    def known(
        self,
        upstream: UpstreamSettings,
        model: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        learned: int = 0,
        tenant: str = "",
    ) -> Window | None:
        """Return the window as far as it is known now, None if it is not.

        `headers` are the credential headers (and `anthropic-version`) as they would be sent upstream;
        they are used for one question and not kept. `learned` is a learned limit (0: none). `tenant` is
        whose questions are counted as one's; without it `headers` tell askers apart. Call it
        inside a running event loop: what is not known is asked in the background.
        """
        window = self._first(upstream, model, tuple(headers), tenant)
        if not learned or (window and window.tokens <= learned):
            return window
        if window is None:
            return Window(tokens=learned, kind="total", source="learned", adds_output=True)
        return replace(window, tokens=learned, source="learned")

    def _first(self, upstream: UpstreamSettings, model: str, headers: Headers, tenant: str) -> Window | None:
        """Return the first known of YAML, asked, packaged."""
        policy = self._policies(upstream.name, model)
        name = policy.like or model
        named = policy if policy.window or not policy.like else self._policies(upstream.name, policy.like)
        tokens, kind = policy.window or named.window, policy.window_kind or named.window_kind
        # A window of YAML with its kind leaves nothing to ask.
        report = None if tokens and kind else self._of(upstream).report(name, headers, tenant)
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
        name = self._policies(upstream.name, model).like or model
        return self._table is None or self._of(upstream).waits(name)

    async def warm(self) -> None:
        """Read the packaged table now, so that the first request finds it."""
        if self._table is None:
            self._loading = self._loading or asyncio.ensure_future(self._read_table())
            await self._loading

    async def ask(
        self, upstream: UpstreamSettings, model: str, headers: Sequence[tuple[str, str]] = ()
    ) -> Reported | None:
        """Ask now and return what the upstream reports (for `carryon doctor`)."""
        asked = self._of(upstream)
        asked.report(model, tuple(headers))
        await asked.settled(model)
        return asked.report(model, tuple(headers))

    def _of(self, upstream: UpstreamSettings) -> Asked:
        """By name, not by address: two upstreams of one address may differ in proxy, authorities and credential."""
        asked = self._asked.get(upstream.name)
        if asked is None:
            asked = self._asked[upstream.name] = Asked(upstream, self._ask, self._clock)
        return asked

    async def close(self) -> None:
        """Cancel every question under way."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        for asked in self._asked.values():
            await asked.close()
