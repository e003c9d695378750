"""What `carryon check` shows."""

from __future__ import annotations

import json

from proxy.commands.effective import describe
from proxy.settings import UpstreamSettings
from proxy.settings.shape import Settings

SETTINGS = Settings.model_validate(
    {
        "secret": "hunter2hunter2hunter2",
        "upstreams": {"a": {"base_url": "http://a", "api_key": "hunter2"}, "b": "http://b"},
        "models": [
            {"model": "gpt-5*", "context_window": 272000, "window_kind": "input"},
            {"upstream": "b", "model": "alias", "like": "gpt-5-mini"},
            {"upstream": "b", "model": "known", "auto": False},
            {"upstream": "b", "threshold_ratio": 0.5},
        ],
    }
)


def test_every_model_that_the_file_names_has_a_row_for_each_upstream_it_holds_for() -> None:
    """The catch-all last."""
    rows = [(row["upstream"], row["model"]) for row in describe(SETTINGS)["policies"]]
    assert rows == [("a", "gpt-5*"), ("a", "*"), ("b", "gpt-5*"), ("b", "alias"), ("b", "known"), ("b", "*")]


def test_a_row_has_the_effective_policy_and_the_numbers_for_a_known_window() -> None:
    """Unknown windows have none."""

    def lookup(_upstream: UpstreamSettings, model: str) -> tuple[int, str, str] | None:
        return (10_000, "total", "packaged") if model == "known" else None

    rows = {(r["upstream"], r["model"]): r for r in describe(SETTINGS, lookup)["policies"]}  # type: ignore[arg-type]
    assert rows["a", "gpt-5*"]["limits"]["threshold"] == 217_600
    assert rows["b", "gpt-5*"]["policy"]["threshold_ratio"] == 0.5
    assert rows["b", "alias"]["limits"]["window"] == 272_000
    assert rows["b", "known"]["limits"]["threshold"] == 5_000
    assert rows["b", "known"]["window_source"] == "packaged"
    assert rows["b", "*"]["limits"] is None
    assert rows["b", "*"]["window_source"] is None


def test_what_is_shown_is_json_without_secrets() -> None:
    """For `--json` and logs."""
    shown = describe(SETTINGS)
    assert "hunter2" not in json.dumps(shown)
    assert shown["upstreams"][0] == {
        "name": "a", "base_url": "http://a/v1", "default": True, "serves": [], "credential": "its own key",
    }  # fmt: skip
