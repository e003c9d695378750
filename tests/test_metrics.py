"""What Prometheus is told: real requests through a real house, labels that clients cannot make."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import Metrics
from proxy.steps.report import Report

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels."""
    families = text_string_to_metric_families(metrics.exposition()[1].decode())
    return {
        (one.name, tuple(one.labels[name] for name in sorted(one.labels))): one.value
        for family in families
        for one in family.samples
    }


def filled() -> Metrics:
    """One of each kind of request."""
    found = Metrics()
    found.watch(faults=lambda: 3, store_away=lambda: True)
    packed = Report(upstream="up", model="m", action="projected", raw=100, sent=40, copies=1, metrics=found)
    packed.log(200)
    Report(upstream="up", model="m", copies=2, action="overflow-refused", refused="no-gain", metrics=found).log(400)
    Report(skip="no-window", upstream="up", copies=1, metrics=found).log(200)
    Report(metrics=found).log(413, error="PROXY_BODY_TOO_LARGE")
    found.summary(50, 7)
    return found


def test_requests_are_counted_by_what_happened_to_them() -> None:
    """Each number where the page says."""
    found = samples(filled())
    assert found["carryon_requests_total", ("projected", "2xx", "up")] == 1
    assert found["carryon_requests_total", ("overflow-refused", "4xx", "up")] == 1
    assert found["carryon_retries_refused_total", ("no-gain",)] == 1
    assert found["carryon_skips_total", ("no-window",)] == 1
    assert found["carryon_own_answers_total", ("PROXY_BODY_TOO_LARGE",)] == 1
    assert found["carryon_copies_total", ("up",)] == 4
    assert found["carryon_tokens_total", ("raw",)] == 100
    assert found["carryon_tokens_total", ("sent",)] == 40
    assert found["carryon_summary_tokens_total", ("prompt",)] == 50
    assert found["carryon_request_seconds_count", ()] == 4
    assert found["carryon_internal_faults", ()] == 3
    assert found["carryon_store_up", ()] == 0


def test_the_page_names_every_metric_and_no_other() -> None:
    """`_created`, `_bucket`, `_sum` and `_count` are Prometheus's own."""
    families = text_string_to_metric_families(filled().exposition()[1].decode())
    told = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
    named = set(re.findall(r"^\| `(carryon_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert {name for name in told if not name.endswith("_created")} == named


def test_no_word_of_a_client_becomes_a_label() -> None:
    """A thousand models and conversations make no new series."""
    found = Metrics()
    for number in range(1_000):
        named = {"model": f"canary-{number}", "conversation": f"canary.{number}"}
        Report(upstream="up", copies=1, metrics=found, **named).log(200)
    text = found.exposition()[1]
    assert b"canary" not in text
    assert text.count(b"\n") < 70
