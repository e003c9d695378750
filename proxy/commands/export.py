"""`carryon export`: what is stored of a conversation, or a request as Carryon would send it (rule 12).

Leaving Carryon strands nobody: a request that is too long for its model without Carryon is laid under the surface that
is stored for it, and can go to the provider as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.boot import secret_of
from proxy.commands.kept import WAIT, found, named, nothing_stored, on_store, usage, wanted
from proxy.core import identity
from proxy.core.split import fields
from proxy.core.transcript import Transcript
from proxy.dialects import Dialect
from proxy.dialects.chat import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES
from proxy.settings import Settings
from proxy.settings.layers import read_text
from proxy.store import Entry
from proxy.store.catalogue import Kept
from proxy.store.redis import RedisLedger
from proxy.store.shown import brief, opened
from proxy.surfaces import apply

__all__ = ["DIALECTS", "Projected", "credential", "described", "exported", "projected", "rows", "tenants", "whose"]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
#: Records that are read at a time.
_TOGETHER = 500
#: A body of Azure's may leave the model to the path.
_UNNAMED = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A body under the surface that applies to it, and whose that is; without `entry` the body as it was."""

    body: bytes
    conversation: str = ""
    entry: Entry | None = None
    items: int = 0

    def __str__(self) -> str:
        """Say what was done, in a line."""
        if self.entry is None:
            return "no stored surface applies to this request; it is printed as it came"
        entry, name = self.entry, identity.opaque(self.conversation)
        return (
            f"surface {entry.generation} of conversation {name} stands for {entry.covered} of {self.items} items "
            f"({entry.before:,} tokens → {entry.after:,} when it was made)"
        )


def exported(settings: Settings, typed: str) -> dict[str, Any]:
    """Return a conversation with all that its surfaces hold. Raises `WrongError` where there is none."""
    one = wanted(typed)

    async def work(ledger: RedisLedger) -> dict[str, Any] | None:
        kept = await found(ledger, one)
        rows = [row async for row in opened(kept, ledger, text=True, wait=WAIT)]
        return {"conversation": brief(kept, time.time()), "surfaces": rows}

    described = on_store(settings, work, nothing=None)
    if described is None:
        raise nothing_stored()
    return described


def rows(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the same in lines: the conversation, then each surface."""
    yield {"conversation": described["conversation"]}
    for surface in described["surfaces"]:
        yield {"surface": surface}


def described(found: Projected) -> dict[str, Any]:
    """Describe a projected request, for programs; `body` is the text to send."""
    entry = found.entry
    return {
        "conversation": identity.opaque(found.conversation) if entry else None,
        "generation": entry.generation if entry else None,
        "covered": entry.covered if entry else 0,
        "items": found.items,
        "body": found.body.decode("utf-8", "surrogateescape"),
    }


def projected(settings: Settings, body: bytes, *, whose: Sequence[str] = ("",), dialect: str = "") -> Projected:
    """Lay the stored surface that is bound to this request's items on it: the deepest, then the newest.

    `whose` are tenants, an empty one is all of them. Raises `ConfigError` where the body is no request.
    """
    readings = _readings(body, dialect)

    async def work(ledger: RedisLedger) -> Projected:
        for candidate in await _candidates(ledger, whose, readings):
            laid = await _laid(ledger, candidate)
            if laid is not None:
                return laid
        return Projected(body=body)

    return on_store(settings, work, nothing=Projected(body=body))


def credential(reference: str, environ: Mapping[str, str]) -> str:
    """Return the credential that `env:NAME` or `file:PATH` names. Raises `ConfigError`; it never shows one."""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        text = environ.get(name, "")
        why = f"the environment variable {name} is not set"
    elif kind == "file" and name:
        try:
            text, why = read_text(Path(name)).strip(), f"the file {name} is empty"
        except (OSError, ValueError) as error:
            text, why = "", f"the file {name} cannot be read: {getattr(error, 'strerror', None) or error}"
    else:
        text, why = "", "is neither env:NAME nor file:PATH"
    if not text:
        raise usage("--credential", why, "write env:NAME or file:PATH: what is typed here stays in the shell's history")
    return text


def whose(settings: Settings, tenant: str, reference: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tenants to look among: the one named, those of a credential, else all (an empty one)."""
    if tenant and reference:
        raise usage("--credential", "and --tenant both say whose it is", "keep one of the two")
    return tenants(settings, credential(reference, environ)) if reference else (tenant,)


def tenants(settings: Settings, credential: str) -> tuple[str, ...]:
    """Return the tenants that a client may be who shows this credential, in whichever header."""
    by, header = settings.tenant.by, settings.tenant.header
    names = [header] if by == "header" and header else identity.CREDENTIAL_HEADERS
    shown = [((name, credential),) for name in names] + [(("authorization", f"Bearer {credential}"),)]
    found = {identity.credentials(headers, "", by=by, header=header) for headers in shown}
    found.add(identity.credentials((), f"key={credential}", by=by, header=header))
    return tuple(sorted(identity.tenant(secret_of(settings), fields_) for fields_ in found if fields_))


@dataclass(frozen=True, slots=True)
class _Reading:
    """The request as one dialect reads it, with the digest of each prefix of its items."""

    dialect: Dialect
    transcript: Transcript
    bound: Mapping[int, bytes]

    def depth(self, kept: Kept) -> int:
        """How many items the deepest surface of a record is bound to that is made from these; 0 for none."""
        return max((e.covered for e in kept.record.entries if self.bound.get(e.covered) == e.digest), default=0)


def _readings(body: bytes, dialect: str) -> list[_Reading]:
    """Read the body in every dialect that it may be of, the likeliest first."""
    known = fields(body) or {}
    order = ("messages", "chat", "responses") if "system" in known else ("chat", "messages", "responses")
    found = []
    if dialect not in {"", *DIALECTS}:
        raise usage("--dialect", "is not known here", f"write one of {', '.join(DIALECTS)}")
    for name in (dialect,) if dialect else order:
        transcript = DIALECTS[name].split(body, model=_UNNAMED)
        if transcript is not None:
            every = range(1, len(transcript.significant) + 1)
            bound = identity.covered_digests(transcript.digests, every)
            found.append(_Reading(DIALECTS[name], transcript, bound))
    if not found:
        cure = "name a file with the JSON that a client sends: messages or input, and a model"
        raise usage("--request", f"holds no request of {dialect or 'a known dialect'}", cure)
    return found


_Candidate = tuple[int, int, Kept, _Reading]


async def _candidates(ledger: RedisLedger, whose: Sequence[str], readings: Sequence[_Reading]) -> list[_Candidate]:
    """Find the records with a surface bound to these items: the deepest first, then what was used last."""
    found: list[_Candidate] = []
    for tenant in whose:
        names = await named(ledger, tenant)
        for at in range(0, len(names), _TOGETHER):
            for kept in await ledger.catalogue.read(names[at : at + _TOGETHER], wait=WAIT):
                depths = ((reading.depth(kept), reading) for reading in readings)
                found += [(depth, kept.applied, kept, reading) for depth, reading in depths if depth]
    return sorted(found, key=lambda one: one[:2], reverse=True)


async def _laid(ledger: RedisLedger, candidate: _Candidate) -> Projected | None:
    _, _, kept, reading = candidate
    transcript, dialect = reading.transcript, reading.dialect
    applied = await apply(ledger, kept.conversation, kept.record, transcript, dialect)
    items = applied.projection.items
    if applied.entry is None or dialect.invalid(items, transcript.items) is not None:
        return None
    return Projected(
        body=dialect.render(transcript, items),
        conversation=kept.conversation,
        entry=applied.entry,
        items=len(transcript.significant),
    )
