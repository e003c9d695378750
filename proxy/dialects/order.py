"""What an upstream would reject in an order of messages where results directly follow the step that asked.

Results stand before any other role; every call of a step is answered once; no assistant message is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.core.transcript import Item

__all__ = ["faults"]


def faults(items: Sequence[Item]) -> Iterator[str]:
    """Every fault, in order."""
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
