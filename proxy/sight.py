"""What the model would see of a turn, as one load of the ledger shows it, and how large it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.meter import measured, parts
from proxy.core.surface import raw_projection
from proxy.house import House
from proxy.policy import Limits, limits
from proxy.store import Entry, Learned, Record, StoreError
from proxy.surfaces import Applied, apply
from proxy.turn import Turn
from proxy.windows import Window

__all__ = ["Sight", "Size", "counted", "estimated", "evident", "look", "size", "surely_below", "unseen"]

#: A mark that a surface was applied is renewed at most this often, in seconds.
_MARK_EVERY = 600.0
#: Requests with any of these may weigh more tokens than bytes.
_NOT_TEXT = (b'"image_url"', b'"file"', b'"input_audio"', b'"file_id"')
#: An envelope's and a message's own tokens never exceed what their JSON takes in bytes, but for this.
_FRAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is known of the model when a turn comes in: its window, its limits, what was learned."""

    window: Window | None = None
    limits: Limits | None = None
    learned: Learned = Learned()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A projection with the load behind it. `estimate` is None where nothing was measured.

    `looked` is false where the look-up was skipped or the store did not answer: then it is no
    evidence.
    """

    applied: Applied
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

    def body(self, turn: Turn) -> bytes | None:
        """The projection's bytes, None where no surface applies."""
        if self.entry is None:
            return None
        return turn.dialect.render(turn.transcript, self.applied.projection.items)


def size(house: House, turn: Turn) -> Size:
    """What the upstream's window asks of this turn; starts asking what is not known."""
    learned = house.learning.known(turn.keys)
    upstream = house.settings.upstreams[turn.destination.name]
    headers = tuple(pair for pair in turn.passage.call.headers if pair[0].lower() in _ASKING)
    window = house.windows.known(upstream, turn.model, headers=headers, learned=learned.limit)
    return Size(window=window, limits=_limits(turn, window), learned=learned)


def unseen(turn: Turn) -> Sight:
    """The turn as the client sent it, without a look at the ledger."""
    return Sight(applied=Applied(record=Record(), projection=raw_projection(turn.transcript)), looked=False)


def surely_below(turn: Turn, known: Size) -> bool:
    """Whether the body's size in bytes alone proves it below the threshold: a token is at least a byte."""
    if known.limits is None or any(mark in turn.transcript.body for mark in _NOT_TEXT):
        return False
    most = (len(turn.transcript.body) + _FRAME) * max(1.0, known.learned.calibration)
    return most < known.limits.threshold


async def look(house: House, turn: Turn, known: Size, *, wait: float | None = None) -> Sight:
    """Load the conversation and lay the surface that applies on the transcript.

    While the store is away, what this process remembers still applies (it is bound to content) but
    is no evidence (SPEC 5.9).
    """
    try:
        record = await house.ledger.load(turn.conversation, wait=wait)
        away = False
    except StoreError:
        record = house.ledger.remembered(turn.conversation) or Record()
        away = True
    try:
        applied = await _applied(house, turn, known, record)
    except StoreError:
        applied, away = Applied(record=record, projection=raw_projection(turn.transcript)), True
    if applied.entry is not None and not away:
        _mark_applied(house, turn, applied.entry)
    return Sight(applied=applied, looked=not away, store_away=away)


async def evident(house: House, turn: Turn, known: Size) -> Sight | None:
    """The evidence load: confirmed durable, laid on the transcript; None where it is not confirmed. Raises `StoreError`."""
    record = await house.ledger.confirm(turn.conversation)
    if record is None:
        return None
    return Sight(applied=await _applied(house, turn, known, record))


async def estimated(house: House, turn: Turn, sight: Sight) -> int:
    """Count what the model would see, uncalibrated."""
    items = sight.applied.projection.items
    return await house.measures.estimate(turn.dialect, turn.transcript.envelope, items, turn.model)


def counted(house: House, turn: Turn, sight: Sight) -> int | None:
    """The same where all of it was counted before, None where counting would take time."""
    meter = house.measures.meter(turn.dialect, turn.model)
    items, envelope = sight.applied.projection.items, turn.transcript.envelope
    return None if meter.unknown((*parts(envelope), *items)) else meter.total(envelope, items)


async def suits(house: House, turn: Turn, known: Size, entries: tuple[Entry, ...]) -> Callable[[Entry], bool]:
    """Which stored surfaces may apply: those of this model; another's only where the raw history needs one (SPEC 4.9)."""
    if known.limits is None or all(entry.model == turn.model for entry in entries):
        return lambda _: True
    raw = await estimated(house, turn, unseen(turn))
    needed = measured(raw, known.learned.calibration) >= known.limits.threshold
    return lambda entry: needed or entry.model == turn.model


async def _applied(house: House, turn: Turn, known: Size, record: Record) -> Applied:
    chosen = await suits(house, turn, known, record.entries)
    return await apply(house.ledger, turn.conversation, record, turn.transcript, turn.dialect, suits=chosen)


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


_ASKING = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "anthropic-version"})
