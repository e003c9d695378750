"""What holds for one upstream and model, and the budgets that follow from a window. Pure.

`resolve` merges the configuration (rule 11.2). `limits` does the arithmetic of the proactive trigger
(rules 6.2, 6.8), `overflow_limits` that of the reactive one (rule 7.2). All amounts are tokens unless a
name says otherwise. For every window from 64 tokens up, `window >= threshold > low_water > tail > 0`, and
`tail + surface <= low_water`: a compaction that fills its budgets still reaches low water.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proxy.settings.match import merged
from proxy.settings.shape import PolicyShape, Settings

__all__ = [
    "Limits",
    "OverflowLimits",
    "Policy",
    "PrunePolicy",
    "SummaryPolicy",
    "limits",
    "overflow_limits",
    "resolve",
]

WindowKind = Literal["input", "total"]

#: The surface budget is a fifth of the window, at most this (docs/decisions/0005).
SURFACE_CAP = 40_000
LOW_WATER_PERCENT = 69
LEAST_GAIN = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPolicy:
    """How summaries are made. `max_tokens` tokens, time-outs seconds."""

    method: Literal["model", "outline", "off"] = "model"
    upstream: str | None = None
    model: str | None = None
    max_tokens: int = 8192
    timeout: float = 30.0
    background_timeout: float = 180.0
    language: str = "conversation"
    max_concurrent: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePolicy:
    """How tool results are cut, in code points."""

    threshold_chars: int = 8192
    head_chars: int = 4096
    tail_chars: int = 1024
    exempt_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything the configuration says of one upstream and model. `window` is YAML's, None where it names none."""

    auto: bool = True
    threshold_ratio: float = 0.8
    threshold_tokens: int | None = None
    retain_ratio: float = 0.16
    retain_tokens: int | None = None
    max_overflow_retries: int = 1
    compaction_retries: int = 1
    reserve_output: Literal["auto", "off"] | int = "auto"
    dry_run: bool = False
    after_reply: bool = True
    window: int | None = None
    window_kind: WindowKind | None = None
    like: str | None = None
    compact_on_payload_too_large: bool = False
    summary: SummaryPolicy = SummaryPolicy()
    prune: PrunePolicy = PrunePolicy()
    pin_patterns: tuple[str, ...] = ()


def resolve(settings: Settings, upstream: str, model: str) -> Policy:
    """Merge defaults and every entry of `models` that matches, the most specific last."""
    return _policy(merged(settings.defaults, settings.models, upstream, model))


def _policy(shape: PolicyShape) -> Policy:
    plain = shape.model_dump(include=set(Policy.__dataclass_fields__) - {"summary", "prune"})
    return Policy(
        **plain,
        window=shape.context_window,
        after_reply=shape.pressure.after_reply,
        summary=SummaryPolicy(**shape.summary.model_dump()),
        prune=PrunePolicy(**shape.prune.model_dump()),
        pin_patterns=shape.pins.patterns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The numbers of one request. `surface` is the budget B; `hopeless_output` says that no compaction can help.

    `protected` are the newest tool tokens that pruning under pressure leaves alone. `prune_over`,
    `prune_head` and `prune_tail` are code points.
    """

    window: int
    kind: WindowKind
    reserve: int
    threshold: int
    low_water: int
    tail: int
    surface: int
    hopeless_output: bool
    protected: int
    prune_over: int
    prune_head: int
    prune_tail: int

    @property
    def fit(self) -> int:
        """What fits at all: the window less the reserve. Between threshold and this nobody waits (rule 6.6)."""
        return self.window - self.reserve

    def minimum_gain(self, measured: int) -> int:
        """Return what a replacement must free of `measured`: a tenth, and `min(1,024, W/16)` (rule 6.8).

        The second is never more than what going from threshold to low water frees, so that a low
        threshold does not put the gain out of reach.
        """
        least = min(LEAST_GAIN, self.window // 16, self.threshold - self.low_water)
        return max(-(-measured // 10), least, 1)


def limits(
    policy: Policy, *, window: int, kind: WindowKind, requested: int | None = None, adds_output: bool = True
) -> Limits:
    """Return the numbers for a window of `window` tokens and `requested` output tokens (None: the client named none).

    `adds_output` is false where the server only stops at its window instead of adding the requested
    output to the prompt. Windows below 64 tokens count as 64.
    """
    window = max(window, 64)
    reserve = _reserve(policy, window, kind, requested or 0, adds_output=adds_output)
    wanted = policy.threshold_tokens or _share(window, policy.threshold_ratio)
    threshold = max(3, min(wanted, window - reserve))
    low_water = LOW_WATER_PERCENT * threshold // 100
    retained = policy.retain_tokens or _share(window, policy.retain_ratio)
    surface = max(1, min(window // 5, SURFACE_CAP, low_water // 2))
    prune = policy.prune
    over = min(prune.threshold_chars, window)
    return Limits(
        window=window,
        kind=kind,
        reserve=reserve,
        threshold=threshold,
        low_water=low_water,
        tail=max(1, min(retained, low_water // 2)),
        surface=surface,
        hopeless_output=kind == "total" and adds_output and (requested or 0) > window - low_water,
        protected=min(SURFACE_CAP, window // 5),
        prune_over=over,
        prune_head=prune.head_chars * over // prune.threshold_chars,
        prune_tail=prune.tail_chars * over // prune.threshold_chars,
    )


def _share(window: int, ratio: float) -> int:
    """Return floor(window * ratio) as one reckons it by hand: 100 * 0.29 is 29, in floating point a little less."""
    return int(window * ratio + 1e-6)


def _reserve(policy: Policy, window: int, kind: WindowKind, requested: int, *, adds_output: bool) -> int:
    """Return the tokens kept free for the reply. A configured number holds for every kind, up to half the window."""
    if policy.reserve_output == "off":
        return 0
    if policy.reserve_output != "auto":
        return min(policy.reserve_output, window // 2)
    if kind == "input":
        return 0
    return min(requested, window // 2 if adds_output else window // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowLimits:
    """The numbers of one overflow. A projection that measures at most `fit` is worth a retry.

    `limits` holds the budgets of this compaction; its threshold, reserve and tail do not count.
    `hopeless_output`: the requested output alone fills what the refusal revealed.
    """

    fit: int
    limits: Limits
    hopeless_output: bool


def overflow_limits(
    policy: Policy,
    *,
    window: int | None,
    kind: WindowKind,
    rejected: int,
    revealed: int | None = None,
    revealed_kind: str = "",
    requested: int | None = None,
    adds_output: bool = True,
) -> OverflowLimits:
    """Return the numbers after a refusal of `rejected` measured tokens (rule 7.2).

    `window` is the window as known before (None: unknown), `revealed` the limit that the refusal
    named, `revealed_kind` its kind (empty: as `kind`), `requested` the client's requested output.
    """
    output = requested or 0
    total = (revealed_kind or kind) == "total" and adds_output
    room = None if window is None else window - (output if kind == "total" and adds_output else 0)
    half = max(1, rejected // 2)
    if revealed is not None:
        told = revealed - (output if total else 0)
        fit = told
    else:
        told = half
        # A window that would have held what was rejected is not the real one.
        fit = room if room is not None and 0 < room < rejected else half
    budget = min(told, window) if window is not None else told
    return OverflowLimits(
        fit=max(1, fit),
        limits=limits(policy, window=max(1, budget), kind="input", adds_output=False),
        hopeless_output=fit <= 0,
    )
