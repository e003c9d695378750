"""Rule 7.3: a retry is authorised if and only if one load shows all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.evidence import Authorised, Denied, Fit, Seen, authorise, fits

REJECTED = Seen(epoch="e", generation=3, body=b"long", tokens=1_000)
NOW = Seen(epoch="e", generation=4, body=b"short", tokens=500)
FIT = Fit(limit=800)

# What differs from a good case: the rejected side, the evidence load, the fit, the projection's fault, the client.
CASES: dict[str, tuple[dict[str, object], str | None]] = {
    "all of it": ({}, None),
    "no record before": ({"rejected": replace(REJECTED, epoch=None, generation=0)}, None),
    "durability not confirmed": ({"now": None}, "unconfirmed"),
    "unconfirmed wins over everything": ({"now": None, "problem": "x"}, "unconfirmed"),
    "another epoch": ({"now": replace(NOW, epoch="f")}, "no-advance"),
    "another epoch with a far higher generation": ({"now": replace(NOW, epoch="f", generation=99)}, "no-advance"),
    "the record is gone": ({"now": replace(NOW, epoch=None, generation=0)}, "no-advance"),
    "nothing stored at all": (
        {"rejected": replace(REJECTED, epoch=None, generation=0), "now": replace(NOW, epoch=None, generation=0)},
        "no-advance",
    ),
    "the same generation": ({"now": replace(NOW, generation=3)}, "no-advance"),
    "a lower generation": ({"now": replace(NOW, generation=2)}, "no-advance"),
    "a branch advanced but no surface applies": ({"now": replace(NOW, generation=0)}, "no-advance"),
    "the same body under a higher generation": ({"now": replace(NOW, body=b"long", tokens=1_000)}, "unchanged"),
    "a projection that is not valid": ({"problem": "result without its call: a"}, "invalid"),
    "exactly the limit": ({"now": replace(NOW, tokens=800)}, None),
    "within the grace of two per cent": ({"now": replace(NOW, tokens=816)}, None),
    "beyond the grace": ({"now": replace(NOW, tokens=817)}, "too-large"),
    "output that the server adds": ({"now": replace(NOW, tokens=700), "fit": Fit(limit=800, output=117)}, "too-large"),
    "output that fits": ({"now": replace(NOW, tokens=700), "fit": Fit(limit=800, output=116)}, None),
    "no numbers, two per cent smaller": ({"now": replace(NOW, tokens=980), "fit": Fit(limit=None)}, None),
    "no numbers, not quite": ({"now": replace(NOW, tokens=981), "fit": Fit(limit=None)}, "too-large"),
    "below the limit but no smaller": ({"now": replace(NOW, tokens=1_000), "fit": Fit(limit=2_000)}, "too-large"),
}


@pytest.mark.parametrize(("differs", "reason"), CASES.values(), ids=CASES)
def test_every_branch_of_the_rule(differs: dict[str, object], reason: str | None) -> None:
    """One thing missing, and the original error goes out with the reason."""
    asked: dict[str, object] = {"rejected": REJECTED, "now": NOW, "fit": FIT, "problem": None}
    asked |= differs
    rejected, now = asked.pop("rejected"), asked.pop("now")
    expected = Authorised() if reason is None else Denied(reason=reason)
    assert authorise(rejected, now, **asked) == expected  # type: ignore[arg-type]


SEEN = st.builds(
    Seen,
    epoch=st.sampled_from([None, "e", "f"]),
    generation=st.integers(0, 3),
    body=st.sampled_from([b"a", b"b"]),
    tokens=st.integers(0, 2_000),
)
FITS = st.builds(Fit, limit=st.none() | st.integers(1, 1_500), output=st.integers(0, 500))


@given(SEEN, st.none() | SEEN, FITS, st.none() | st.just("x"))
def test_authorised_implies_the_whole_of_7_3(rejected: Seen, now: Seen | None, fit: Fit, problem: str | None) -> None:
    """Whatever is compared: no retry without a strictly greater generation, the same epoch, another body that fits."""
    if authorise(rejected, now, fit=fit, problem=problem) != Authorised():
        return
    assert now is not None
    assert problem is None
    assert now.epoch is not None
    assert rejected.epoch in (None, now.epoch)
    assert now.generation > rejected.generation
    assert now.body != rejected.body
    assert fits(rejected.tokens, now.tokens, fit)


@given(SEEN, SEEN, FITS)
def test_everything_in_place_is_always_authorised(rejected: Seen, now: Seen, fit: Fit) -> None:
    """The rule is `if and only if`: nothing else is asked for."""
    holds = (
        now.epoch is not None
        and rejected.epoch in (None, now.epoch)
        and now.generation > rejected.generation
        and now.body != rejected.body
        and fits(rejected.tokens, now.tokens, fit)
    )
    assert (authorise(rejected, now, fit=fit, problem=None) == Authorised()) == holds


@given(st.integers(0, 10_000), st.integers(0, 10_000), FITS)
def test_what_fits_is_smaller_than_what_was_refused(before: int, after: int, fit: Fit) -> None:
    """A limit does not help a body that did not shrink."""
    if fits(before, after, fit) and (before, after) != (0, 0):
        assert after < before
