"""Planning a replacement: from what a compactor proposes to the surface that would be stored."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from proxy.core.identity import covered_digests
from proxy.core.surface import Carry, Keep, Projection, Put, Surface, project
from proxy.core.transcript import Item

__all__ = ["Replacement", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A planned replacement: the surface to store and what the model would see with it."""

    surface: Surface
    digest: bytes
    projection: Projection


def replace(
    now: Projection,
    parts: Sequence[Put | Keep],
    through: int,
    item: Callable[[bytes], Item | None],
    *,
    carry: Carry,
    summary: str,
) -> Replacement | None:
    """Plan to spell the first `through` items of a projection by `parts` (indexes into its items).

    None where the parts do not make a surface: less than what is covered already, a cut that no
    coverage can name, an item out of range or out of order.
    """
    transcript = now.transcript
    covered = _covered(now, through)
    stored = _stored(now, parts, through)
    if covered is None or stored is None or covered < 1:
        return None
    summarised = _summarised(now, parts, through, item)
    surface = Surface(parts=stored, covered=covered, summarised=summarised, summary=summary, carry=_spellable(carry))
    projection = project(transcript, surface, item, generation=0, operation="")
    if projection is None:
        return None
    digest = covered_digests(transcript.digests, (covered,))[covered]
    return Replacement(surface=surface, digest=digest, projection=projection)


def _spellable(carry: Carry) -> Carry:
    """The same with `?` for lone surrogates (half of a cut emoji, which clients do send): nothing can store those."""
    try:
        msgspec.msgpack.encode(carry)
    except UnicodeEncodeError:
        return msgspec.convert(_spelled(msgspec.to_builtins(carry)), Carry)
    return carry


def _spelled(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_spelled(key): _spelled(inner) for key, inner in value.items()}
    return [_spelled(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _covered(now: Projection, through: int) -> int | None:
    """How many significant items the first `through` projected items stand for.

    Insignificant items at the very end have no next one to belong to: a cut may stand among them, and
    they stay raw.
    """
    if not now.fixed <= through <= len(now.items):
        return None
    if through == now.fixed:
        return now.covered
    last, significant = now.origins[through - 1], now.transcript.significant
    count = bisect_right(significant, last)
    ends_on_one = count > 0 and significant[count - 1] == last
    return count if ends_on_one or count == len(significant) else None


def _summarised(
    now: Projection, parts: Sequence[Put | Keep], through: int, item: Callable[[bytes], Item | None]
) -> int:
    """How many significant items the parts do not show one by one.

    From the end: an item kept, or a tool result put in place of the same result, is shown. What stands
    before is a summary of all that is left; inside an earlier surface that counts as all it covers.
    """
    left = through
    for shown in reversed(list(_spelled_out(parts))):
        at = left - 1
        put = None if isinstance(shown, int) else item(shown.raw)
        same = put is not None and at >= 0 and put.facts.answers and put.facts.answers == now.items[at].facts.answers
        if shown != at and not same:
            break
        left = at
    if left <= 0:
        return now.summarised
    if left <= now.fixed:
        return now.covered
    return bisect_right(now.transcript.significant, now.origins[left - 1])


def _spelled_out(parts: Sequence[Put | Keep]) -> Iterator[Put | int]:
    for part in parts:
        if isinstance(part, Put):
            yield part
        else:
            yield from range(part.start, part.stop)


def _stored(now: Projection, parts: Sequence[Put | Keep], through: int) -> tuple[Put | Keep, ...] | None:
    """The parts in terms of the client's significant items instead of the projection's items."""
    found: list[Put | Keep] = []
    after = 0
    for part in parts:
        if isinstance(part, Put):
            found.append(part)
            continue
        if not after <= part.start < part.stop <= through:
            return None
        after = part.stop
        for index in range(part.start, part.stop):
            _append_item(found, now, index)
    return tuple(found)


def _append_item(found: list[Put | Keep], now: Projection, index: int) -> None:
    origin = now.origins[index]
    if origin < 0:
        found.append(Put(now.items[index].raw))
        return
    if not now.items[index].facts.significant:
        return
    at = bisect_left(now.transcript.significant, origin)
    last = found[-1] if found else None
    if isinstance(last, Keep) and last.stop == at:
        found[-1] = Keep(last.start, at + 1)
    else:
        found.append(Keep(at, at + 1))
