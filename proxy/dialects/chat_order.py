"""What an upstream would reject in the order of chat messages.

Results stand directly after the step that asked for them, before any other role; every call of a
step is answered once; no assistant message is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from proxy.core.transcript import Item

__all__ = ["first_problem"]


def first_problem(items: Sequence[Item], given: Sequence[Item]) -> str | None:
    """The first fault of `items` that is not in `given` as well, None for none.

    A client's own oddity (a call it never answers) is the client's to send; only what a replacement
    would add is a fault of ours.
    """
    faults = list(_faults(items))
    if not faults:
        return None
    added = Counter(faults) - Counter(_faults(given))
    return next((fault for fault in faults if fault in added), None)


def _faults(items: Sequence[Item]) -> Iterator[str]:
    waiting: list[str] = []
    for item in items:
        facts = item.facts
        if facts.answers:
            for call in facts.answers:
                if call in waiting:
                    waiting.remove(call)
                else:
                    yield f"result without its call: {call}"
            continue
        yield from (f"call without its result: {call}" for call in waiting)
        waiting = list(facts.opens)
        if len(set(waiting)) != len(waiting):
            yield f"call id used twice in one step: {waiting}"
        if facts.role == "assistant" and not facts.significant:
            yield f"empty assistant message: {item.key.hex()[:16]}"
    yield from (f"call without its result: {call}" for call in waiting)
