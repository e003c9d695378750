"""How strong a wording must be to count as an overflow: the status demands it."""

from __future__ import annotations

from enum import Enum

__all__ = ["Strength", "demanded"]


class Strength(Enum):
    """How much a status demands of a wording."""

    NOTHING_COUNTS = 0
    FORBIDDEN = 1  # only the one wording for 401 and 403
    STRONG = 2
    WEAK = 3
    GRAMMAR = 4


_STRENGTHS = {
    400: Strength.GRAMMAR,
    413: Strength.GRAMMAR,
    422: Strength.GRAMMAR,
    401: Strength.FORBIDDEN,
    403: Strength.FORBIDDEN,
    408: Strength.NOTHING_COUNTS,
    499: Strength.NOTHING_COUNTS,
    504: Strength.NOTHING_COUNTS,
}
#: Statuses that a 200 may name inside and that demand as much as outside.
_ALSO_INSIDE = (408, 429, 499, 504)


def demanded(status: int, inner: int, *, in_band: bool, doubted: bool = False) -> Strength:
    """Say what a status asks of a wording; of an error inside a 200 the status it names counts, if any.

    What is `doubted` to be an error at all needs a wording that is known.
    """
    if not in_band:
        return _STRENGTHS.get(status, Strength.STRONG)
    if inner in _ALSO_INSIDE:
        return _STRENGTHS.get(inner, Strength.STRONG)
    return Strength.WEAK if doubted else Strength.GRAMMAR
