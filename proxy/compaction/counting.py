"""Tokens of texts, as the job measures them."""

from __future__ import annotations

from proxy.compaction.elision import Count
from proxy.compaction.job import Job

__all__ = ["counter", "empty", "worst"]


def counter(job: Job) -> Count:
    """Tokens of a text inside an item, without what the item itself costs."""
    dialect, own = job.view.dialect, empty(job)
    return lambda text: max(0, job.measure([dialect.user(text)]) - own)


def worst(job: Job) -> Count:
    """The same for a budget that must not be passed (see `View.worst`)."""
    view, count = job.view, counter(job)
    return lambda text: view.worst(count(text))


def empty(job: Job) -> int:
    """What an item costs that says nothing."""
    return job.measure([job.view.dialect.user("")])
