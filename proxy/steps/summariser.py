"""Who writes a conversation's summaries, and how they are asked: its own model, or another that the policy names.

Another upstream gets its own key or none. Nothing of the client goes there but the text that is to be summarised:
no credential, no header, no query, no setting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import quote

from proxy import routes
from proxy.compaction.job import Summariser
from proxy.house import Destination, House
from proxy.message import Headers
from proxy.steps.sight import asking
from proxy.steps.turn import Turn, with_own
from proxy.upstream import Call

__all__ = ["Writer", "writer"]

_HEADERS: Headers = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
_DEPLOYED = re.compile(r"(/openai/deployments/)[^/]+/")
#: What a dialect's servers want to be told beside them.
_BESIDE: dict[str, Headers] = {"messages": (("anthropic-version", "2023-06-01"),)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The upstream and model that summarise for a turn. `own`: those of the conversation."""

    destination: Destination
    model: str
    own: bool

    def summariser(self, house: House, turn: Turn, window: int) -> Summariser | None:
        """What a compactor is told, None of the conversation's own model; `window` is for one whose own is unknown."""
        if self.own:
            return None
        upstream = house.settings.upstreams[self.destination.name]
        at_home = self.destination.name == turn.destination.name
        headers = asking(turn) if at_home else self._own(turn, ()).headers
        known = house.windows.known(upstream, self.model, headers=headers, tenant=turn.tenant)
        return Summariser(model=self.model, window=known.tokens if known else window)

    def call(self, turn: Turn, body: bytes) -> Call:
        """The call that asks: in the client's place at the conversation's upstream, in nobody's at another."""
        if self.destination.name == turn.destination.name:
            call = turn.call(body)
            return replace(call, url=_asking(call.url, "" if self.own else self.model))
        own = self._own(turn, _HEADERS)
        return Call(upstream=self.destination.name, method="POST", url=own.url, headers=own.headers, body=body)

    def _own(self, turn: Turn, headers: Headers) -> routes.Lent:
        """Another upstream's address for the dialect, and these headers with its own key or none."""
        dialect = turn.dialect.name
        lent = _lent(dialect, self.destination, (*headers, *_BESIDE.get(dialect, ())))
        return replace(lent, headers=with_own(lent.headers, self.destination))


def writer(house: House, turn: Turn) -> Writer:
    """Who summarises for this turn."""
    summary, at_home = turn.policy.summary, turn.destination
    destination = next((known for known in house.upstreams if known.name == summary.upstream), at_home)
    model = summary.model or turn.model
    own = (destination.name, model) == (at_home.name, turn.model)
    return Writer(destination=destination, model=model, own=own)


def _lent(dialect: str, destination: Destination, headers: Headers) -> routes.Lent:
    """The upstream's own address for a dialect, and its own key or none beside these headers of ours."""
    rest = next(path for path, name in routes.DIALECTS.items() if name == dialect)
    where = routes.Address(method="POST", path=f"/v1/{rest}", query="", rest=rest, dialect=dialect)
    # None is for a client without a key of this proxy, and here is no client.
    return cast("routes.Lent", routes.lend(where, destination, headers, default=destination.name))


def _asking(url: str, model: str) -> str:
    """The turn's URL, for an answer where the client asked to compact; where it names a deployment, that of `model`."""
    path, mark, query = url.partition("?")
    if path.endswith("/responses/compact"):
        path = path.removesuffix("/compact")
    if model:
        path = _DEPLOYED.sub(lambda found: f"{found[1]}{quote(model, safe='')}/", path, count=1)
    return path + mark + query
