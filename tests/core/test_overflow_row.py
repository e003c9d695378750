from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.overflow import Kind
from proxy.core.overflow_row import classify_row

OVERFLOW = Kind.CONTEXT_WINDOW_EXCEEDED
PROMPT = "prompt is too long: 210000 tokens > 200000 maximum"


def test_every_unambiguous_line_of_the_fixture_is_right(
    refusals: list[dict[str, Any]],
) -> None:
    """Verdict, limit and requested tokens, and whether compaction cures it, wherever the fixture says."""
    wrong = []
    right = 0
    for row in refusals:
        verdict = classify_row(row)
        overflow = row["verdict"] == "CONTEXT_WINDOW_EXCEEDED"
        same = (verdict.kind is OVERFLOW) is overflow
        if overflow:
            same = same and (verdict.limit, verdict.requested) == (row["limit"], row["requested"])
            same = same and row.get("compactable", verdict.compactable) == verdict.compactable
        right += same and not row.get("ambiguous", False)
        if not same and not row.get("ambiguous"):
            wrong.append((row["id"], verdict))
    print(f"\noverflow fixture: {right} unambiguous lines right, {len(wrong)} wrong")
    assert wrong == []


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([PROMPT, "error", "context_length_exceeded"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "message",
                    "code",
                    "type",
                    "choices",
                    "delta",
                    "usage",
                    "response",
                    "detail",
                    "base_resp",
                    "finish_reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["id", "status", "headers", "body", "delivery", "event", "endpoint", "preceded_by", "api"]),
        ODD,
        max_size=7,
    ),
)
def test_an_odd_line_is_classified_and_never_raises(row: dict[str, object]) -> None:
    """`carryon classify --jsonl` reads what people paste."""
    assert classify_row(row).kind in Kind


@pytest.mark.parametrize(
    ("row", "overflow"),
    [
        ({"status": "400", "body": {"error": {"message": PROMPT}}}, True),
        ({"status": 200, "body": {"error": {"message": PROMPT}}}, True),
        ({"status": 200, "body": {"choices": [{"message": {"content": PROMPT}}]}}, False),
        ({"status": 400, "body": {"error": {"message": PROMPT}}, "endpoint": "/v1/embeddings"}, False),
        ({"status": True, "delivery": 7, "body": {"error": {"message": PROMPT}}, "event": [], "headers": "x"}, True),
    ],
)
def test_what_a_line_leaves_out_is_told_by_the_rest(row: dict[str, object], *, overflow: bool) -> None:
    """Without `delivery` the status says whether the answer came inside a 200; odd types count as absent."""
    assert (classify_row(row).kind is OVERFLOW) is overflow
