"""May this request be sent once more? One pure function over two loads of the ledger (rule 7.3).

What the compactor returned, raised or claimed is not an argument here. The left side is the load
that built the rejected body, the right side one load after compaction, which also confirmed that
what it shows is durable. There is no third read. Whether the client is still there is no argument
either: one that left cancels the recovery.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Authorised", "Denied", "Fit", "Seen", "authorise", "fits"]

_GRACE = 1.02
_SHRINK = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One side of the comparison: the ledger as loaded, and the body it makes of the transcript.

    `epoch` is None where the load found no record. `generation` is that of the surface in the body,
    0 for none. `tokens` is measured with the same calibration on both sides.
    """

    epoch: str | None
    generation: int
    body: bytes
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How small is small enough: the limit the refusal revealed, None where it gave no numbers.

    `output` is the requested output that the server adds to the prompt, 0 where it does not.
    """

    limit: int | None
    output: int = 0


@dataclass(frozen=True, slots=True)
class Authorised:
    """Send once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The original error goes out; `reason` is the value of `x-carryon-refused`."""

    reason: str


def authorise(rejected: Seen, now: Seen | None, *, fit: Fit, problem: str | None) -> Authorised | Denied:
    """Decide a retry. `now` is None where the evidence load did not confirm durability.

    `problem` is the dialect's objection to the new projection, None for none.
    """
    if now is None:
        return Denied(reason="unconfirmed")
    checks = (
        (now.epoch is not None and rejected.epoch in (None, now.epoch), "no-advance"),
        (now.generation > rejected.generation, "no-advance"),
        (now.body != rejected.body, "unchanged"),
        (problem is None, "invalid"),
        (fits(rejected.tokens, now.tokens, fit), "too-large"),
    )
    failed = next((reason for holds, reason in checks if not holds), None)
    return Authorised() if failed is None else Denied(reason=failed)


def fits(before: int, after: int, fit: Fit) -> bool:
    """Whether a body of `after` tokens may be expected to pass where one of `before` was refused."""
    if fit.limit is not None:
        return after + fit.output <= fit.limit * _GRACE and after < before
    return after <= before * _SHRINK
