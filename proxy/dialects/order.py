"""What an upstream would reject in an order of items: calls and results that lack each other, what stands alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from proxy.core.transcript import Item

__all__ = ["faults", "loose", "repeated"]


def faults(items: Sequence[Item]) -> Iterator[str]:
    """Of messages where results directly follow the step that asked, before any other role; no assistant's is empty."""
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


def loose(items: Sequence[Item]) -> Iterator[str]:
    """Of items where results may come later, and where reasoning stands before what it led to."""
    waiting: dict[str, None] = {}
    for at, item in enumerate(items):
        for call in item.facts.answers:
            if call not in waiting:
                yield f"result without its call: {call}"
            waiting.pop(call, None)
        for call in item.facts.opens:
            if call in waiting:
                yield f"call id used twice: {call}"
            waiting[call] = None
        following = items[at + 1].facts.role if at + 1 < len(items) else ""
        if item.facts.role == "assistant" and not item.facts.significant and following != "assistant":
            yield f"reasoning without what follows it: {item.key.hex()[:16]}"
    yield from (f"call without its result: {call}" for call in waiting)


def repeated(names: Iterable[str], fault: str) -> Iterator[str]:
    """The fault for each name once more than the first time; an empty name is none."""
    counted = Counter(name for name in names if name)
    yield from (f"{fault}: {name}" for name, times in counted.items() for _ in range(times - 1))
