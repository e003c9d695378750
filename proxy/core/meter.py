"""How many tokens is this? An estimate by item, remembered by the item's bytes.

`measured = calibration * estimate`: the calibration is learned per upstream and model, and the same
meter stands on both sides of every comparison. The encoder is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.core.known import Known
from proxy.core.transcript import Envelope, Item

__all__ = ["CALIBRATION_RANGE", "Meter", "Weight", "measured", "parts"]

_KNOWN_ITEMS = 100_000
#: What an upstream may be believed to count, in estimates: less or more is a mistake of somebody's.
CALIBRATION_RANGE = (0.5, 4.0)
#: Tokens that open the reply, on every request.
_PRIMING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What the meter counts of an item: its texts, and tokens that are known without an encoder."""

    texts: tuple[str, ...]
    fixed: int


class Meter:
    """Counts items of one dialect with one encoder. Estimates are whole tokens, never negative."""

    def __init__(self, weigh: Callable[[bytes], Weight], count: Callable[[str], int]) -> None:
        """`weigh` is the dialect's, `count` gives the tokens of a text."""
        self._weigh, self._count = weigh, count
        self._known: Known[bytes, int] = Known(_KNOWN_ITEMS)

    def unknown(self, items: Iterable[Item]) -> int:
        """How many bytes of these items were not counted yet: what an estimate would cost."""
        return sum(len(item.raw) for item in items if self._known.get(item.key) is None)

    def item(self, item: Item) -> int:
        """The estimate of one item."""
        known = self._known.get(item.key)
        if known is None:
            known = self.raw(item.raw)
            self._known.put(item.key, known)
        return known

    def raw(self, raw: bytes) -> int:
        """The estimate of bytes that are not (yet) an item of a transcript."""
        weight = self._weigh(raw)
        return weight.fixed + sum(self._count(text) for text in weight.texts)

    def envelope(self, envelope: Envelope) -> int:
        """The estimate of all that surrounds the items."""
        return _PRIMING + sum(self.item(item) for item in parts(envelope))

    def total(self, envelope: Envelope, items: Iterable[Item]) -> int:
        """The estimate of a whole request."""
        return self.envelope(envelope) + sum(self.item(item) for item in items)


def parts(envelope: Envelope) -> tuple[Item, ...]:
    """Everything in an envelope that is measured."""
    return (*envelope.leading, *envelope.rest)


def measured(estimate: int, calibration: float) -> int:
    """Tokens as the upstream is thought to count them."""
    return math.ceil(estimate * calibration)
