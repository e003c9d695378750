"""The reply headers and the log's line of one request."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import Completion, Usage
from proxy.steps.report import Report

SUMMARY = Completion(text="secret text", finish="stop", model="m 1,\r\nx", usage=Usage(prompt=9, completion=2))


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({}, {"action": "pass"}),
        ({"skip": "below"}, {"action": "pass", "skip": "below"}),
        ({"skip": "redis", "action": "projected", "generation": 3}, {"action": "projected", "generation": "3"}),
        ({"conversation": "tenant.abc"}, {"action": "pass", "conversation": "abc"}),
        ({"raw": 9, "sent": 4}, {"action": "pass", "tokens": "raw=9, sent=4"}),
        ({"sent": 4}, {"action": "pass"}),
        ({"summaries": [SUMMARY]}, {"action": "pass", "summary": "model=m1x, in=9, out=2"}),
        ({"summaries": [SUMMARY] * 3}, {"action": "pass", "summary": "model=m1x, in=27, out=6"}),
        ({"shown": False, "generation": 3}, {}),
    ],
)
def test_the_headers_say_what_happened(fields: dict[str, Any], headers: dict[str, str]) -> None:
    """Rule 10.6, row by row."""
    assert Report(**fields).headers() == tuple((f"x-carryon-{name}", value) for name, value in headers.items())


def test_a_denied_retry_says_why() -> None:
    """Action, error and reason belong together."""
    report = Report(action="pressure")
    report.denied("no-cut")
    assert dict(report.headers()) == {
        "x-carryon-action": "overflow-refused",
        "x-carryon-error": "CONTEXT_WINDOW_EXCEEDED",
        "x-carryon-refused": "no-cut",
    }


def test_the_log_has_one_line_without_content_or_tenant(caplog: pytest.LogCaptureFixture) -> None:
    """Words and numbers only; the conversation by its opaque id."""
    with caplog.at_level("INFO", logger="carryon"):
        Report(conversation="tenant.abc", upstream="up", model="m", copies=2, summaries=[SUMMARY]).log(200)
    (record,) = caplog.records
    assert record.__dict__["conversation"] == "abc"
    assert record.__dict__["copies"] == 2
    assert "secret" not in str(record.__dict__)
    assert "tenant" not in str(record.__dict__)


@pytest.mark.parametrize(("error", "level"), [(None, "INFO"), ("PROXY_UPSTREAM_CONNECT", "WARNING")])
def test_an_answer_of_our_own_is_a_warning_with_its_code(
    error: str | None, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks for what is broken finds it in the request's line."""
    with caplog.at_level("INFO", logger="carryon"):
        Report().log(502, error=error)
    (record,) = caplog.records
    assert (record.levelname, record.__dict__.get("error")) == (level, error)
