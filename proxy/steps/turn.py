"""One request, read: whose it is, where it goes, what it says, and what may be done with it.

All of it is decided before anything is asked or sent; the result is frozen.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from proxy import events, routes
from proxy.core import identity, split
from proxy.core.transcript import Transcript
from proxy.dialects import Dialect
from proxy.errors import Answer
from proxy.house import Destination, House
from proxy.learning import Keys, keys
from proxy.message import Headers, Incoming, outbound
from proxy.policy import Policy
from proxy.steps.wishes import Wishes, wishes
from proxy.upstream import Call

__all__ = ["Passage", "Turn", "read", "spoken", "with_own"]

_SIGNED = ("digest", "content-digest", "content-md5", "signature", "signature-input", "x-amz-content-sha256")
_BETAS = ("openai-beta", "anthropic-beta")
#: Characters of a model's name: nobody has one this long, and what is known of models is kept by their names.
_LONGEST_MODEL = 512
_NOT_SENT_WITH_A_PROJECTION = ("content-encoding", "content-length")

_NO_KEY = Answer(
    status=401,
    code="PROXY_UNAUTHORIZED",
    message="a key of this proxy is required, and yours is missing or unknown",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A request that is only passed on. `inspect` names the dialect whose errors are still recognised."""

    call: Call
    destination: Destination
    dialect: str | None = None
    inspect: bool = False
    skip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a conversation. `passage` is the request as the client sent it.

    `may_write` is false where nothing new may be stored: no surface, no note, nothing learned (`x-carryon:
    no-store`, dry run). `may_pack` is false where pressure must not start. `hindrance` says why an overflow
    must be handed over, empty where it may be recovered.
    """

    passage: Passage
    dialect: Dialect
    transcript: Transcript
    policy: Policy
    tenant: str
    conversation: str
    keys: Keys
    may_write: bool
    may_pack: bool
    hindrance: str = ""

    @property
    def destination(self) -> Destination:
        """The upstream it goes to."""
        return self.passage.destination

    @property
    def model(self) -> str:
        """The model the client named."""
        return self.transcript.envelope.model

    @property
    def opaque(self) -> str:
        """The conversation's id as logs and headers name it."""
        return identity.opaque(self.conversation)

    @property
    def may_mark(self) -> bool:
        """Whether surfaces may be noted as applied, proven or retired: under `no-store` too, for its own sake."""
        return not self.policy.dry_run

    def call(self, body: bytes | None) -> Call:
        """Make the call that sends `body` in place of the client's, None for the client's own bytes."""
        if body is None:
            return self.passage.call
        kept = tuple(pair for pair in self.passage.call.headers if pair[0].lower() not in _NOT_SENT_WITH_A_PROJECTION)
        return replace(self.passage.call, headers=kept, body=body)


def read(house: House, incoming: Incoming) -> Turn | Passage | Answer:
    """Read a request. An `Answer` is ours to give; a `Passage` goes on as it came."""
    try:
        where = routes.address(incoming.method, incoming.target)
        dialect = house.dialects.get(where.dialect or "")
        transcript = _transcript(house, incoming, dialect, where.deployment or "")
        passage = _passage(house, incoming, where, dialect, transcript)
    except routes.NoRouteError as error:
        return Answer(status=404, code="PROXY_NOT_FOUND", message=str(error))
    if passage is None:
        return _NO_KEY
    if dialect is None or transcript is None:
        return passage
    try:
        return _turn(house, incoming, where, dialect, transcript, passage)
    except Exception:  # noqa: BLE001 - protects the client from every fault between routing and sending
        house.fault("a request that could not be read is forwarded as it came")
        return passage


def spoken(incoming: Incoming) -> str | None:
    """Name the dialect of a request by its path alone: the shape of an answer of our own."""
    try:
        return routes.address(incoming.method, incoming.target).dialect
    except routes.NoRouteError:
        return None


def _transcript(house: House, incoming: Incoming, dialect: Dialect | None, model: str) -> Transcript | None:
    """Split the body, None where that cannot be done."""
    if dialect is None or incoming.plain is None:
        return None
    try:
        found = dialect.split(incoming.plain, model=model)
    except Exception:  # noqa: BLE001 - a body we fail to split goes on as it came
        house.fault("a request that could not be split is forwarded as it came")
        return None
    return None if found is None or len(found.envelope.model) > _LONGEST_MODEL else found


def _passage(
    house: House, incoming: Incoming, where: routes.Address, dialect: Dialect | None, transcript: Transcript | None
) -> Passage | None:
    """Make the request as it goes on; None where a key of this proxy is missing."""
    # Where the path or the configuration leave no choice, the body need not name one.
    chooses = where.upstream is None and len(house.upstreams) > 1
    model = transcript.envelope.model if transcript else _model(incoming.plain) if chooses else None
    target = routes.choose(where, house.upstreams, model or where.deployment)
    destination = next(known for known in house.upstreams if known.name == target.name)
    headers = outbound(incoming.headers)
    if house.settings.tenant.by == "header":
        own = (house.settings.tenant.header or "").lower()
        headers = tuple(pair for pair in headers if pair[0].lower() != own)
    keys_ = house.settings.client_keys
    lent = routes.lend(where, destination, headers, default=house.upstreams[0].name, keys=keys_)
    if lent is None:
        return None
    call = Call(
        upstream=destination.name,
        method=incoming.method,
        url=lent.url,
        headers=with_own(lent.headers, destination),
        body=incoming.body,
    )
    return Passage(
        call=call, destination=destination, dialect=dialect.name if dialect else None, inspect=dialect is not None
    )


def _model(body: bytes | None) -> str | None:
    """The model that a body names which nobody splits: of another dialect, or of no shape we know."""
    fields = split.fields(body) if body else None
    start, stop = (fields or {}).get("model", (0, 0))
    try:
        model = json.loads(body[start:stop]) if body else None
    except (ValueError, RecursionError):
        return None
    return model if isinstance(model, str) else None


def _turn(
    house: House,
    incoming: Incoming,
    where: routes.Address,
    dialect: Dialect,
    transcript: Transcript,
    passage: Passage,
) -> Turn | Passage:
    named = MappingProxyType({name.lower(): value for name, value in reversed(incoming.headers)})
    wished = wishes(named)
    _warn(house, wished)
    if wished.off:
        return replace(passage, skip="off")
    settings, model, destination = house.settings.tenant, transcript.envelope.model, passage.destination
    shown = identity.credentials(incoming.headers, where.query, by=settings.by, header=settings.header)
    if not shown and not settings.anonymous:
        return replace(passage, skip="anonymous")
    tenant = identity.tenant(house.secret, shown)
    policy = house.policies(destination.name, model)
    hindrance = _hindrance(transcript, named, policy)
    if hindrance == "server-history":
        return replace(passage, skip=hindrance)
    own_compaction = dialect.own_compaction(named, where.rest or "", transcript)
    may_write = not wished.no_store and not policy.dry_run
    return Turn(
        passage=passage,
        dialect=dialect,
        transcript=transcript,
        policy=policy,
        tenant=tenant,
        conversation=_conversation(tenant, destination, dialect, transcript, named),
        keys=keys(
            tenant=tenant,
            upstream=f"{destination.name} {destination.base_url}",
            model=model,
            betas="\n".join(named.get(name, "") for name in _BETAS),
        ),
        may_write=may_write,
        may_pack=may_write and policy.auto and not own_compaction and not transcript.envelope.compacts,
        hindrance=hindrance if may_write else hindrance or "off",
    )


def _warn(house: House, wished: Wishes) -> None:
    """Name headers that were meant for us and say nothing, once: whoever misspells `no-store` wants to know."""
    for name in wished.unread:
        if house.once(f"header {name}"):
            events.emit("header-unread", level=logging.WARNING, header=name[:64])


def _conversation(
    tenant: str, destination: Destination, dialect: Dialect, transcript: Transcript, named: Mapping[str, str]
) -> str:
    return identity.conversation(
        tenant=tenant,
        upstream=destination.name,
        dialect=dialect.name,
        scope=identity.scope(named, transcript.envelope.ids),
        transcript=transcript,
    )


def _hindrance(transcript: Transcript, named: Mapping[str, str], policy: Policy) -> str:
    """Why an overflow of this request must be handed over, empty where it may be recovered."""
    signed = any(name in named for name in _SIGNED) or named.get("authorization", "").startswith("AWS4-")
    if transcript.envelope.server_history or signed:
        return "server-history"
    return "off" if not policy.auto or policy.max_overflow_retries == 0 else ""


def with_own(headers: Headers, destination: Destination) -> Headers:
    """Headers the operator configured for the upstream, in place of the client's of the same name."""
    if not destination.headers:
        return headers
    own = {name.lower() for name, _ in destination.headers}
    return (*(pair for pair in headers if pair[0].lower() not in own), *destination.headers)
