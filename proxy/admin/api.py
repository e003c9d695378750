"""The admin API: what is stored of conversations, as JSON.

Text of a conversation is in an answer only with `admin.show_text`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from proxy import events
from proxy.admin.probes import JSON, NOWHERE
from proxy.core.identity import opaque
from proxy.errors import Answer
from proxy.message import Incoming, Outgoing, own
from proxy.store import Ledger, StoreError
from proxy.store.catalogue import START, Kept
from proxy.store.shown import brief, opened

__all__ = ["PREFIX", "Api"]

PREFIX = "/api/"
#: Seconds that one call to the store may take: nobody's request waits for it.
WAIT = 5.0
#: Conversations on a page, unless `limit` says otherwise, and at most. A page ends after so many steps of a walk.
USUAL, MOST, STEPS = 100, 1_000, 50

UNKNOWN = Answer(status=404, code="PROXY_NOT_FOUND", message="No conversation with this id is stored.")
BAD_QUERY = Answer(
    status=400,
    code="PROXY_BAD_REQUEST",
    message="The query is not understood: there are tenant (32 hex digits, or anonymous), limit (1 to 1000) and "
    "cursor (as the page before gave it). A token is sent in a header only.",
)
HIDDEN = Answer(
    status=403,
    code="PROXY_FORBIDDEN",
    message="Texts are shown only with admin.show_text: true. The command carryon export prints them.",
)
AWAY = Answer(
    status=503,
    code="PROXY_STORE_UNAVAILABLE",
    message="The store does not answer; Carryon's log says why.",
    headers=(("Retry-After", "5"),),
)
_PATH = re.compile(r"/api/conversations(?:/(?:(anonymous|[0-9a-f]{32})\.)?([0-9a-f]{32})(/export)?)?")
_CURSOR = re.compile(r"[0-9]{1,20}")
_CURSORS = 1 << 64


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request of the API, taken apart; `conversation` is empty for all of them."""

    method: str
    tenant: str
    conversation: str
    export: bool
    query: Mapping[str, str]


class Api:
    """Answers requests that the guard let through."""

    def __init__(self, ledger: Ledger, *, show_text: bool = False) -> None:
        self._ledger, self._text = ledger, show_text

    async def __call__(self, incoming: Incoming) -> Outgoing:
        """Answer one request."""
        asked = _asked(incoming)
        if isinstance(asked, Answer):
            return own(asked)
        try:
            return await self._answer(asked)
        except StoreError:
            return own(AWAY)
        except ValueError:  # of the catalogue: no tenant can be called so
            return own(BAD_QUERY)

    async def _answer(self, asked: _Asked) -> Outgoing:
        if not asked.conversation:
            return await self._listed(asked.query)
        name = await self._found(asked)
        if name is None:
            return own(UNKNOWN)
        if asked.method == "DELETE":
            return await self._forget(name)
        kept = await self._ledger.catalogue.read([name], wait=WAIT)
        if not kept:
            return own(UNKNOWN)
        return self._exported(kept[0]) if asked.export else await self._shown(kept[0])

    async def _forget(self, name: str) -> Outgoing:
        gone = await self._ledger.catalogue.forget([name], wait=WAIT)
        for one in gone:
            events.emit("forgotten", conversation=opaque(one))
        return _json({"forgotten": len(gone)})

    async def _listed(self, query: Mapping[str, str]) -> Outgoing:
        """One page: newest first within the page; the order of pages is the store's own."""
        limit, cursor = int(query.get("limit", USUAL)), query.get("cursor", START)
        names: dict[str, None] = {}
        for _ in range(STEPS):
            page = await self._ledger.catalogue.page(cursor, tenant=query.get("tenant", ""), count=limit, wait=WAIT)
            names.update(dict.fromkeys(page.names))
            cursor = page.cursor
            if cursor == START or len(names) >= limit:
                break
        kept = await self._ledger.catalogue.read(tuple(names), wait=WAIT)
        now = time.time()
        rows = [brief(one, now) for one in sorted(kept, key=lambda one: one.applied, reverse=True)]
        return _json({"conversations": rows, "cursor": None if cursor == START else cursor})

    async def _found(self, asked: _Asked) -> str | None:
        if asked.tenant:
            return f"{asked.tenant}.{asked.conversation}"
        async for name in self._ledger.catalogue.names(beginning=asked.conversation, notes=True, wait=WAIT):
            return name
        return None

    async def _shown(self, kept: Kept) -> Outgoing:
        rows = [row async for row in opened(kept, self._ledger, text=self._text, wait=WAIT)]
        return _json({"conversation": brief(kept, time.time()), "surfaces": rows})

    def _exported(self, kept: Kept) -> Outgoing:
        if not self._text:
            return own(HIDDEN)
        headers = (("Content-Type", "application/jsonl"), *JSON[1:])
        return Outgoing(status=200, headers=headers, body=_lines(kept, self._ledger))


async def _lines(kept: Kept, ledger: Ledger) -> AsyncIterator[bytes]:
    yield json.dumps({"conversation": brief(kept, time.time())}).encode() + b"\n"
    try:
        async for row in opened(kept, ledger, text=True, wait=WAIT):
            yield (await asyncio.to_thread(json.dumps, {"surface": row})).encode() + b"\n"
    except StoreError as error:
        raise ConnectionError("the store broke off") from error


def _asked(incoming: Incoming) -> _Asked | Answer:
    path, _, query = incoming.target.partition("?")
    found = _PATH.fullmatch(path)
    methods = {"GET", "HEAD", "DELETE"} if found and found[2] and not found[3] else {"GET", "HEAD"}
    if found is None or incoming.method not in methods:
        return NOWHERE
    fields = _fields(query, {} if found[2] else _FIELDS)
    if fields is None:
        return BAD_QUERY
    return _Asked(incoming.method, found[1] or "", found[2] or "", bool(found[3]), fields)


_FIELDS: dict[str, Callable[[str], bool]] = {
    "tenant": bool,
    "limit": lambda text: bool(re.fullmatch("[0-9]{1,4}", text)) and 1 <= int(text) <= MOST,
    "cursor": lambda text: bool(_CURSOR.fullmatch(text)) and int(text) < _CURSORS,
}


def _fields(query: str, known: Mapping[str, Callable[[str], bool]]) -> dict[str, str] | None:
    """Return the fields of a query, None where one is unknown, twice there, or no such thing."""
    pairs = parse_qsl(query, keep_blank_values=True)
    good = all(name in known and known[name](value) for name, value in pairs)
    return dict(pairs) if good and len(dict(pairs)) == len(pairs) else None


def _json(data: object) -> Outgoing:
    return Outgoing(status=200, headers=JSON, body=json.dumps(data).encode() + b"\n")
