"""What the model would see of a turn, as one load of the ledger shows it, and how large it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy import events
from proxy.core.chain import passed, place
from proxy.core.identity import CREDENTIAL_HEADERS
from proxy.core.meter import measured, parts
from proxy.core.surface import raw_projection
from proxy.dialects.parts import MAY_BE_HEAVY
from proxy.house import House
from proxy.message import Headers
from proxy.policy import Limits, limits
from proxy.steps.turn import Turn
from proxy.store import Entry, Learned, Record, Records, StoreError
from proxy.store.within import Within
from proxy.surfaces import Applied, apply
from proxy.windows import Window

__all__ = [
    "Sight",
    "Size",
    "asking",
    "counted",
    "estimated",
    "evident",
    "force",
    "forced",
    "forgotten",
    "look",
    "size",
    "suits",
    "surely_below",
    "unseen",
    "with_applied",
]

#: A mark that a surface was applied is renewed at most this often, in seconds.
_MARK_EVERY = 600.0
#: An envelope's and a message's own tokens never exceed what their JSON takes in bytes, but for this.
_FRAME = 64
#: How much longer all calls of a request may take the store than one (rule 5.9: 200 ms for 150), less our own share.
_ALL = 1.3
#: How the names of notes begin that force packing; a place follows.
_FORCE = "force:"
_ASKING = frozenset({*CREDENTIAL_HEADERS, "anthropic-version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is known of the model when a turn comes in: its window, its limits, what was learned."""

    window: Window | None = None
    limits: Limits | None = None
    learned: Learned = field(default_factory=Learned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A projection with the load behind it. `estimate` is None where nothing was measured.

    `records` is the ledger as this request may still use it, `body` what is sent, None for the client's own bytes.
    `looked` is false where the look-up was skipped or the store did not answer: then it is no evidence.
    """

    applied: Applied
    records: Within
    body: bytes | None = None
    looked: bool = True
    store_away: bool = False
    estimate: int | None = None

    @property
    def entry(self) -> Entry | None:
        """The ledger's entry of the surface that applies."""
        return self.applied.entry

    @property
    def generation(self) -> int:
        """The generation of the surface that applies, 0 for none."""
        return self.applied.projection.generation


def size(house: House, turn: Turn) -> Size:
    """Find what the upstream's window asks of this turn; starts asking what is not known."""
    learned = house.learning.known(turn.keys)
    anchor = house.anchors.get(turn.conversation, turn.transcript)
    learned = learned if anchor is None else replace(learned, calibration=anchor)
    upstream = house.settings.upstreams[turn.destination.name]
    window = house.windows.known(upstream, turn.model, headers=asking(turn), learned=learned.limit, tenant=turn.tenant)
    if window is not None and window.source == "learned" and house.once(f"{turn.keys.limit} {window.tokens}"):
        events.emit("limit-learned", upstream=turn.destination.name, model=turn.model, limit=window.tokens)
    if window is None and not house.windows.asking(upstream, turn.model):
        _warn_once(house, turn)
    return Size(window=window, limits=_limits(turn, window), learned=learned)


def unseen(house: House, turn: Turn) -> Sight:
    """Give the turn as the client sent it, without a look at the ledger."""
    applied = Applied(record=Record(), projection=raw_projection(turn.transcript))
    return Sight(applied=applied, records=_records(house), looked=False)


def with_applied(turn: Turn, sight: Sight, applied: Applied) -> Sight:
    """Give the same sight after another load; nothing is measured yet."""
    return replace(sight, applied=applied, body=_body(turn, applied), estimate=None)


def surely_below(house: House, turn: Turn, known: Size) -> bool:
    """Whether the body's size in bytes alone proves it below the threshold: a token is at least a byte."""
    if known.limits is None or house.forced.get(turn.conversation):
        return False
    body = turn.transcript.body
    most = (len(body) + _FRAME) * max(1.0, known.learned.calibration)
    return most < known.limits.threshold and not MAY_BE_HEAVY.search(body)


async def look(house: House, turn: Turn, known: Size, records: Within | None = None) -> Sight:
    """Load the conversation and lay the surface that applies on the transcript.

    While the store is away, what this process remembers still applies (it is bound to content) but
    is no evidence. All that is done with the sight takes the store no longer than rule 5.9 allows, or than
    `records` allow where they are given.
    """
    records = records or _records(house)
    try:
        record = await records.load(turn.conversation)
        away = False
    except StoreError:
        record = records.remembered(turn.conversation) or Record()
        away = True
    try:
        applied = await _applied(house, turn, known, record, records)
    except StoreError:
        applied, away = Applied(record=record, projection=raw_projection(turn.transcript)), True
    if applied.entry is not None and not away and turn.may_mark:
        _mark_applied(house, turn, applied.entry)
    return Sight(applied=applied, records=records, body=_body(turn, applied), looked=not away, store_away=away)


async def evident(house: House, turn: Turn, known: Size, records: Within) -> Sight | None:
    """Load the evidence: confirmed durable, laid on the transcript; None if unconfirmed. Raises `StoreError`."""
    record = await records.confirm(turn.conversation)
    if record is None:
        return None
    applied = await _applied(house, turn, known, record, records)
    return Sight(applied=applied, records=records, body=_body(turn, applied))


def force(house: House, turn: Turn) -> None:
    """Note that this transcript is to be packed before it is sent again (rule 9.3)."""
    at = place(turn.transcript)
    if at and turn.may_pack:
        house.forced.put(turn.conversation, at)  # the next request may be here before the note is in the store
        house.background.spawn(house.note(turn.conversation, _FORCE + at, "1"))


def forced(house: House, turn: Turn, sight: Sight) -> frozenset[str]:
    """The places of this dialogue from which it is to be packed, as this process or the store knows."""
    noted = (name.removeprefix(_FORCE) for name, _ in sight.applied.record.notes if name.startswith(_FORCE))
    return passed(turn.transcript, (*noted, house.forced.get(turn.conversation) or ""))


def forgotten(house: House, turn: Turn, sight: Sight) -> None:
    """Remove those notes: they serve for one attempt."""
    for at in forced(house, turn, sight):
        house.background.spawn(house.note(turn.conversation, _FORCE + at, ""))
    house.forced.put(turn.conversation, "")


async def estimated(house: House, turn: Turn, sight: Sight) -> int:
    """Count what the model would see, uncalibrated."""
    items = sight.applied.projection.items
    return await house.measures.estimate(turn.dialect, turn.transcript.envelope, items, turn.model)


def counted(house: House, turn: Turn, sight: Sight) -> int | None:
    """Count the same where all of it was counted before; None where counting would take time."""
    meter = house.measures.meter(turn.dialect, turn.model)
    items, envelope = sight.applied.projection.items, turn.transcript.envelope
    return None if meter.unknown((*parts(envelope), *items)) else meter.total(envelope, items)


async def suits(house: House, turn: Turn, known: Size, entries: tuple[Entry, ...]) -> Callable[[Entry], bool]:
    """Choose stored surfaces: those of this model; another's only where the raw history needs one (rule 4.9).

    One that this process saw rejected does not, whether or not the store could note it.
    """
    needed = True
    if known.limits is not None and any(entry.model != turn.model for entry in entries):
        raw = await estimated(house, turn, unseen(house, turn))
        needed = measured(raw, known.learned.calibration) >= known.limits.threshold
    return lambda entry: (needed or entry.model == turn.model) and not house.retired.get(entry.operation)


async def _applied(house: House, turn: Turn, known: Size, record: Record, records: Records) -> Applied:
    chosen = await suits(house, turn, known, record.entries)
    return await apply(records, turn.conversation, record, turn.transcript, turn.dialect, suits=chosen)


def _body(turn: Turn, applied: Applied) -> bytes | None:
    """Render the projection, None where no surface applies."""
    if applied.entry is None:
        return None
    return turn.dialect.render(turn.transcript, applied.projection.items)


def _records(house: House) -> Within:
    """The ledger for one request."""
    timeout = house.settings.redis.timeout
    return Within(house.ledger, _ALL * timeout, each=timeout)


def asking(turn: Turn) -> Headers:
    """The credential with which the upstream is asked for its windows: the client's, ours, the operator's."""
    own = {turn.destination.api_key_header.lower(), *(name.lower() for name, _ in turn.destination.headers)}
    return tuple(pair for pair in turn.passage.call.headers if pair[0].lower() in _ASKING | own)


def _warn_once(house: House, turn: Turn) -> None:
    """Nobody knows this model's window: no pressure for it (rule 6.1)."""
    if house.once(f"window of {turn.model} at {turn.destination.name}"):
        events.emit("window-unknown", level=logging.WARNING, upstream=turn.destination.name, model=turn.model)


def _limits(turn: Turn, window: Window | None) -> Limits | None:
    if window is None:
        return None
    requested = turn.transcript.envelope.output
    return limits(
        turn.policy, window=window.tokens, kind=window.kind, requested=requested, adds_output=window.adds_output
    )


def _mark_applied(house: House, turn: Turn, entry: Entry) -> None:
    now = time.monotonic()
    marked = house.marked.get(entry.operation)
    if marked is None or now - marked > _MARK_EVERY:
        house.marked.put(entry.operation, now)
        house.background.spawn(house.mark(turn.conversation, entry.operation, "applied"))
