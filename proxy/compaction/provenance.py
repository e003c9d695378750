"""Who wrote a summary, and what it took: for the surface, the log and the client."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.surface import Provenance
from proxy.dialects import Completion

__all__ = ["provenance"]

_LONGEST = 128


def provenance(answers: Sequence[Completion], operation: str = "") -> Provenance | None:
    """The last of these replies' model and the usage of all that told it; None where nobody answered."""
    if not answers:
        return None
    told = [answer.usage for answer in answers if answer.usage is not None]
    return Provenance(
        model=_word(answers[-1].model),
        prompt=sum(usage.prompt for usage in told) if told else None,
        completion=sum(usage.completion for usage in told) if told else None,
        calls=len(answers),
        operation=operation,
    )


def _word(text: str) -> str:
    """A model's name as logs, headers and the store may hold it: a reply may say anything there."""
    return "".join(c for c in text if c.isascii() and c.isprintable() and c not in " ,;")[:_LONGEST] or "unknown"
