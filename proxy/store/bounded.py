"""A mapping bounded by weight that forgets what was used least recently. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Bounded"]

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Values by key; the sum of their weights stays at or under `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.weight = 0

    def __len__(self) -> int:
        """Return how many values are held."""
        return len(self._held)

    def get(self, key: K) -> V | None:
        """Return the value, which then counts as used just now."""
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        return held[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Keep a value; one that alone weighs more than the limit is not kept."""
        self.drop(key)
        if weight > self._limit:
            return
        self._held[key] = (value, weight)
        self.weight += weight
        while self.weight > self._limit:
            _, (_, lost) = self._held.popitem(last=False)
            self.weight -= lost

    def drop(self, key: K) -> None:
        """Forget a key."""
        held = self._held.pop(key, None)
        if held is not None:
            self.weight -= held[1]

    def drop_each(self, goes: Callable[[K], bool]) -> None:
        """Forget every key of which this is so. It looks at all of them."""
        for key in [key for key in self._held if goes(key)]:
            self.drop(key)
