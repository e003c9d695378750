"""The rungs on which a model writes the summary: which one, decided by arithmetic before any call, and its calls.

S1 asks on the live prefix, which only the conversation's own model has cached. S2 sends the head as text, S3 the
same part by part, each call with the summary so far. Where none fits, or one fails, the outline is left (S4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from proxy import events
from proxy.compaction import flatten, summarise, wording
from proxy.compaction.counting import counter, worst
from proxy.compaction.job import Job, View
from proxy.compaction.wording import Part
from proxy.dialects import Completion

__all__ = ["Rung", "chosen", "climbed"]

#: Calls of S3: while a client waits, and in the background.
_CALLS_WAITING, _CALLS = 3, 8
#: Tokens around the one item of a request, at most.
_FRAME = 16
#: Another model may count other tokens than the conversation's meter does: so much of its window is relied on.
_RELIED_ON = 0.75
#: The summary so far is spelled as JSON, which takes more: so many fourths of its share.
_SPELLED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A way to a summary of the first `cut` items in at most `share` tokens; `parts` is empty on the live prefix."""

    name: str
    cut: int
    share: int
    parts: tuple[str, ...] = ()


def chosen(job: Job, *, cut: int, beside: Sequence[int], surface: int) -> Rung | None:
    """The first rung that fits; None where a model is not worth asking or none fits.

    `beside` are the items among them that stay as they are, `surface` the tokens that the carrier has left.
    """
    view, policy = job.view, job.view.policy.summary
    share = summarise.share(surface=surface, most=policy.max_tokens, head=sum(view.tokens[:cut]), waits=view.waits)
    if share < summarise.LEAST_SHARE:
        return None
    rung = Rung(name="S1", cut=cut, share=share)
    if job.seconds_left <= 0:  # none is climbed: which one is all the same, and a long head takes its time
        return rung
    if view.summariser is None and _asked(job, rung, Part(text="")) is not None:
        return rung
    return _flattened(job, rung, beside)


async def climbed(job: Job, rung: Rung) -> str | None:
    """The summary, None where it did not come about: all that is long is done in threads, replies may be huge."""
    items = job.view.items[: rung.cut]
    text: str | None = ""
    for number, part in enumerate(rung.parts or ("",), 1):
        about = Part(text=part, number=number, parts=max(1, len(rung.parts)), earlier=text or "")
        asked = await asyncio.to_thread(_asked, job, rung, about)
        if asked is None or job.seconds_left <= 0:
            return None
        answer = await job.ask(
            () if rung.parts else items, asked.text, max_tokens=asked.max_tokens, alone=bool(rung.parts)
        )
        text = await asyncio.to_thread(_judged, job, rung, asked, answer, about)
        if text is None:
            if answer is not None:
                events.emit("summary-rejected", level=logging.WARNING, finish=answer.finish)
            return None
    return text


def _flattened(job: Job, rung: Rung, beside: Sequence[int]) -> Rung | None:
    """S2 where the head as text fits one request, else S3 where it fits as many as may be made."""
    view, count = job.view, worst(job)
    fixed = {parts: _room(job, rung, parts) for parts in (1, 2)}
    calls = _CALLS_WAITING if view.waits else _CALLS
    spoken = [_spoken(view, rung.cut, beside, how) for how in flatten.CUTS]
    if not any(spoken[0]):
        return None
    for units in spoken:
        if flatten.size([line for unit in units for line in unit], count) <= fixed[1]:
            return Rung(name="S2", cut=rung.cut, share=rung.share, parts=(_whole(units),))
    base = rung.share * _SPELLED // 4
    rooms = (fixed[2], fixed[2] - base)
    for units in spoken if rooms[1] >= rung.share else ():
        parts = flatten.chunks(units, rooms, calls, count)
        if parts is not None:
            return Rung(name="S3", cut=rung.cut, share=rung.share, parts=tuple(parts))
    return None


def _spoken(view: View, cut: int, beside: Sequence[int], how: flatten.Cut) -> list[list[str]]:
    """The lines of the head by its units."""
    apart = set(beside)
    return [
        [
            line
            for at in range(start, min(stop, cut))
            if at not in apart and (line := flatten.line(view.dialect.said(view.items[at].raw), how))
        ]
        for start, stop in view.units
        if start < cut
    ]


def _whole(units: Sequence[Sequence[str]]) -> str:
    return "\n".join(line for unit in units for line in unit)


def _room(job: Job, rung: Rung, parts: int) -> int:
    """Tokens that a request in so many parts leaves for its transcript."""
    empty = wording.folded(Part(text="", number=parts, parts=parts), _told(rung), job.view.policy.summary.language)
    return _window(job.view) - _FRAME - worst(job)(empty) - rung.share


def _asked(job: Job, rung: Rung, part: Part) -> summarise.Ask | None:
    """One request of a rung, None where it would not fit."""
    view, language = job.view, job.view.policy.summary.language
    if rung.parts:
        text, prefix = wording.folded(part, _told(rung), language), _FRAME
    else:
        text, prefix = wording.live(_told(rung), language), view.worst(view.envelope + sum(view.tokens[: rung.cut]))
    count = partial(_measured, job)
    return summarise.planned(text, share=rung.share, prefix=prefix, window=_window(view), count=count)


def _measured(job: Job, text: str) -> int:
    """Tokens of an item that says this."""
    return job.view.worst(job.measure([job.view.dialect.user(text)]))


def _told(rung: Rung) -> int:
    return int(rung.share * summarise.TOLD)


def _window(view: View) -> int:
    return int(view.summariser.window * _RELIED_ON) if view.summariser else view.limits.window


def _judged(job: Job, rung: Rung, asked: summarise.Ask, answer: Completion | None, part: Part) -> str | None:
    """The text of a reply that is a summary and small enough, else None."""
    view, count = job.view, counter(job)
    said = (view.dialect.said(item.raw) for item in view.items[: rung.cut])
    texts = (text for one in said for text in (one.text, *(result.text for result in one.results)))
    text = summarise.accepted(answer, asked.text, (part.text, part.earlier, *texts))
    if text is None:
        return None
    size = count(text)
    return text if size <= rung.share and size < sum(view.tokens[: rung.cut]) else None
