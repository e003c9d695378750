"""Which policy holds, and the arithmetic of both triggers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy import Limits, Policy, PrunePolicy, SummaryPolicy, limits, overflow_limits, resolve
from proxy.settings.shape import Settings

WINDOWS = st.integers(1024, 1_000_000) | st.sampled_from(
    [1024, 2048, 4096, 8192, 16384, 32768, 128_000, 200_000, 272_000]
)
OUTPUTS = st.none() | st.integers(0, 2_000_000)
POLICIES = st.builds(
    Policy,
    threshold_ratio=st.floats(0.05, 1.0),
    retain_ratio=st.floats(0.001, 0.99),
    threshold_tokens=st.none() | st.integers(64, 1_000_000),
    retain_tokens=st.none() | st.integers(1, 1_000_000),
    reserve_output=st.sampled_from(["auto", "off"]) | st.integers(0, 1_000_000),
)


def _limits(window: int, requested: int | None = None, **named: Any) -> Limits:
    return limits(Policy(), window=window, kind=named.pop("kind", "total"), requested=requested, **named)


def test_the_defaults_of_the_configuration_are_those_of_a_policy() -> None:
    """There is one set of defaults."""
    assert resolve(Settings(), "openai", "m") == Policy()


def test_a_policy_is_merged_from_every_entry_that_matches() -> None:
    """Nested mappings become nested policies."""
    settings = Settings.model_validate(
        {
            "defaults": {"pins": {"patterns": ["never"]}, "summary": {"timeout": "5s"}},
            "models": [
                {"model": "gpt-*", "context_window": 9000, "threshold_ratio": 0.5},
                {
                    "model": "gpt-5",
                    "window_kind": "input",
                    "summary": {"max_tokens": 100},
                    "prune": {"exempt_tools": ["x"]},
                },
            ],
        }
    )
    policy = resolve(settings, "openai", "gpt-5")
    assert (policy.window, policy.window_kind, policy.threshold_ratio) == (9000, "input", 0.5)
    assert policy.summary == SummaryPolicy(timeout=5.0, max_tokens=100)
    assert policy.prune == PrunePolicy(exempt_tools=("x",))
    assert policy.pin_patterns == ("never",)
    assert resolve(settings, "openai", "other").window is None


@pytest.mark.parametrize(
    ("window", "kind", "requested", "adds", "reserve", "threshold"),
    [
        (100_000, "total", None, True, 0, 80_000),
        (100_000, "total", 10_000, True, 10_000, 80_000),
        (100_000, "total", 30_000, True, 30_000, 70_000),
        (100_000, "total", 90_000, True, 50_000, 50_000),
        (100_000, "total", 90_000, False, 25_000, 75_000),
        (100_000, "input", 90_000, True, 0, 80_000),
        (1_024, "total", 512, True, 512, 512),
    ],
)
def test_the_threshold_leaves_room_for_the_reply(
    *,
    window: int,
    kind: str,
    requested: int | None,
    adds: bool,
    reserve: int,
    threshold: int,
) -> None:
    """Half the window at most where the server adds it, a quarter where it stops, nothing for an input limit."""
    made = _limits(window, requested, kind=kind, adds_output=adds)
    assert (made.reserve, made.threshold, made.fit) == (reserve, threshold, window - reserve)
    assert made.low_water == threshold * 69 // 100


@pytest.mark.parametrize(
    ("reserve", "kind", "kept"),
    [("off", "total", 0), (4_000, "total", 4_000), (4_000, "input", 4_000), (90_000, "total", 50_000)],
)
def test_a_configured_reserve_takes_the_place_of_what_the_client_asks_for(reserve: Any, kind: Any, kept: int) -> None:
    """Up to half the window."""
    assert limits(Policy(reserve_output=reserve), window=100_000, kind=kind, requested=20_000).reserve == kept


@pytest.mark.parametrize(
    ("requested", "kind", "adds", "hopeless"),
    [
        (65_500, "total", True, False),
        (65_501, "total", True, True),
        (90_000, "total", False, False),
        (90_000, "input", True, False),
    ],
)
def test_output_that_leaves_no_room_for_a_packed_prompt_is_not_cured_by_packing(
    *, requested: int, kind: str, adds: bool, hopeless: bool
) -> None:
    """W less low water (34,500) is the bound, where the server adds the output."""
    made = _limits(100_000, requested, kind=kind, adds_output=adds)
    assert made.hopeless_output is hopeless


def test_shares_are_reckoned_as_by_hand() -> None:
    """Floating point does not take a token away."""
    assert limits(Policy(threshold_ratio=0.29, retain_ratio=0.07), window=10_000, kind="total").threshold == 2_900
    assert _limits(100_000).low_water == 55_200


def test_tokens_take_the_place_of_ratios() -> None:
    """Still bounded by window and reserve."""
    policy = Policy(threshold_tokens=10_000, retain_tokens=1_000)
    assert limits(policy, window=100_000, kind="total").threshold == 10_000
    assert limits(policy, window=100_000, kind="total").tail == 1_000
    assert limits(policy, window=8_000, kind="total").threshold == 8_000


@given(window=WINDOWS, requested=OUTPUTS, adds=st.booleans(), kind=st.sampled_from(["input", "total"]), policy=POLICIES)
def test_the_order_of_the_numbers_holds_for_every_window_and_policy(
    *, window: int, requested: int | None, adds: bool, kind: Any, policy: Policy
) -> None:
    """Window, threshold, low water, tail; a compaction that fills its budgets reaches low water."""
    made = limits(policy, window=window, kind=kind, requested=requested, adds_output=adds)
    assert made.window >= made.threshold > made.low_water > made.tail > 0
    assert made.threshold <= made.fit
    assert made.surface > 0
    assert made.tail + made.surface <= made.low_water


@given(window=WINDOWS, requested=OUTPUTS, adds=st.booleans(), policy=POLICIES, over=st.integers(0, 2_000_000))
def test_the_least_gain_is_reached_by_going_to_low_water(
    *, window: int, requested: int | None, adds: bool, policy: Policy, over: int
) -> None:
    """From any size at or over the threshold."""
    made = limits(policy, window=window, kind="total", requested=requested, adds_output=adds)
    measured = made.threshold + over
    assert measured - made.low_water >= made.minimum_gain(measured) >= 1


@given(window=WINDOWS, requested=OUTPUTS, adds=st.booleans())
def test_with_the_default_policy_the_least_gain_is_as_specified(
    *, window: int, requested: int | None, adds: bool
) -> None:
    """A tenth of what was measured, and min(1,024, W/16)."""
    made = _limits(window, requested, adds_output=adds)
    for measured in (made.threshold, made.threshold * 3 + 1):
        assert made.minimum_gain(measured) == max(-(-measured // 10), min(1024, window // 16))


@given(window=st.integers(-5, 1023), policy=POLICIES)
def test_even_absurd_windows_give_an_order(window: int, policy: Policy) -> None:
    """What refusals reveal may be small."""
    made = limits(policy, window=window, kind="total")
    assert made.threshold > made.low_water > made.tail > 0


def test_the_surface_is_a_fifth_of_the_window() -> None:
    """At most 40,000 tokens, as are the newest tool tokens that pruning leaves alone."""
    made = _limits(100_000)
    assert made.surface == 20_000
    assert _limits(1_000_000).surface == 40_000
    assert (made.protected, _limits(1_000_000).protected) == (20_000, 40_000)


def test_pruning_shrinks_with_small_windows() -> None:
    """min(8,192, W) code points become half head and an eighth tail."""
    assert (_limits(2_048).prune_over, _limits(2_048).prune_head, _limits(2_048).prune_tail) == (2_048, 1_024, 256)
    assert (_limits(9_000).prune_over, _limits(9_000).prune_head, _limits(9_000).prune_tail) == (8_192, 4_096, 1_024)


@pytest.mark.parametrize(
    ("known", "revealed", "fit", "budget"),
    [
        ({"window": 100_000}, {"revealed": 50_000}, 50_000, 50_000),
        ({"window": 100_000}, {"revealed": 50_000, "requested": 10_000}, 40_000, 40_000),
        ({"window": 100_000}, {"revealed": 50_000, "requested": 10_000, "adds_output": False}, 50_000, 50_000),
        ({"window": 100_000}, {"revealed": 50_000, "requested": 10_000, "revealed_kind": "input"}, 50_000, 50_000),
        ({"window": 100_000, "kind": "input"}, {"revealed": 50_000, "requested": 10_000}, 50_000, 50_000),
        ({"window": 40_000}, {"revealed": 50_000}, 50_000, 40_000),
        ({"window": None}, {"revealed": 50_000, "requested": 10_000}, 40_000, 40_000),
        ({"window": None}, {}, 60_000, 60_000),
        ({"window": 100_000}, {}, 100_000, 60_000),
        ({"window": 100_000}, {"requested": 10_000}, 90_000, 60_000),
        ({"window": 200_000}, {}, 60_000, 60_000),
        ({"window": 50_000}, {}, 50_000, 50_000),
    ],
)
def test_what_a_refusal_reveals_is_what_must_fit(
    known: dict[str, Any], revealed: dict[str, Any], fit: int, budget: int
) -> None:
    """Less the output where the server adds it; nothing revealed: the window if it was broken, else half."""
    made = overflow_limits(Policy(), **({"kind": "total"} | known), **revealed, rejected=120_000)
    assert made.fit == fit
    assert made.limits.window == budget
    assert made.limits.surface == min(budget // 5, 40_000)


def test_output_above_the_revealed_limit_is_hopeless() -> None:
    """No history fits beside it."""
    made = overflow_limits(
        Policy(), window=None, kind="total", rejected=9_000, revealed=8_192, requested=8_192, revealed_kind="total"
    )
    assert made.hopeless_output
    assert made.fit == 1


@given(
    policy=POLICIES,
    window=st.none() | WINDOWS,
    kind=st.sampled_from(["input", "total"]),
    rejected=st.integers(0, 5_000_000),
    revealed=st.none() | st.integers(1, 2_000_000),
    requested=OUTPUTS,
    adds=st.booleans(),
)
def test_an_overflow_always_has_sound_numbers(
    *,
    policy: Policy,
    window: int | None,
    kind: Any,
    rejected: int,
    revealed: int | None,
    requested: int | None,
    adds: bool,
) -> None:
    """Whatever the refusal says."""
    made = overflow_limits(
        policy, window=window, kind=kind, rejected=rejected, revealed=revealed, requested=requested, adds_output=adds
    )
    assert made.fit >= 1
    assert made.fit <= max(rejected, revealed or 1, 1)
    assert window is None or made.limits.window <= max(window, 64)
    assert made.limits.threshold > made.limits.low_water > made.limits.tail > 0
