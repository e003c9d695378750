"""Windows out of litellm's table."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from proxy.windows import packaged
from proxy.windows.packaged import Table


def _chat(tokens: Any, output: int = 8192, provider: str = "x") -> dict[str, Any]:
    return {"mode": "chat", "max_input_tokens": tokens, "max_output_tokens": output, "litellm_provider": provider}


@pytest.fixture(scope="module")
def real() -> Table:
    """Return the table as installed."""
    return packaged.load()


@pytest.mark.parametrize(
    ("model", "tokens", "kind"),
    [
        ("gpt-4o", 128_000, "total"),
        ("gpt-4o-2024-08-06", 128_000, "total"),
        ("openai/gpt-4o", 128_000, "total"),
        ("gpt-4", 8_192, "total"),
        ("gpt-5", 272_000, "input"),
        ("gpt-5-2031-01-01", 272_000, "input"),
        ("claude-sonnet-4-5-20250929", 200_000, "input"),
        ("anthropic/claude-sonnet-4-5", 200_000, "input"),
    ],
)
def test_well_known_models_are_found(real: Table, model: str, tokens: int, kind: str) -> None:
    """With a provider before them or a date behind them."""
    found = real.find(model)
    assert found is not None
    assert (found.tokens, found.kind) == (tokens, kind)
    assert found.adds_output is (kind == "total")


@pytest.mark.parametrize(
    "model", ["", "no-such-model", "text-embedding-3-small", "dall-e-3", "sample_spec", "/", "a/b/c"]
)
def test_what_is_no_chat_model_is_not_found(real: Table, model: str) -> None:
    """Nor what nobody knows."""
    assert real.find(model) is None


def test_where_providers_differ_the_place_decides() -> None:
    """The upstream's name or host; without a hint nothing is sure."""
    table = Table(
        {"alpha/m": _chat(8_000), "beta_ai/m": _chat(16_000), "beta/n": _chat(9_000), "gamma/n": _chat(9_000)}
    )
    assert table.find("m") is None
    assert _tokens(table, "m", "alpha") == 8_000
    assert _tokens(table, "m", "mine", "api.beta.ai") == 16_000
    assert _tokens(table, "beta_ai/m") == 16_000
    assert _tokens(table, "n") == 9_000


def test_input_and_output_that_make_a_named_total_are_an_input_limit() -> None:
    """Whoever sells the model."""
    table = Table(
        {"a": _chat(272_000, 128_000, "azure"), "b": _chat(1_050_000, 128_000, "openai"), "c": _chat(9_000, 1, "xai")}
    )
    assert [(r.kind if (r := table.find(m)) else None) for m in "abc"] == ["input", "total", "input"]


@pytest.mark.parametrize(
    "entry",
    [None, {}, 3, _chat(None), _chat("8000"), _chat(tokens=True), _chat(5), {**_chat(8000), "mode": "embedding"}],
)
def test_entries_without_a_sound_window_are_left_out(entry: Any) -> None:
    """The table is somebody else's."""
    assert Table({"m": entry}).find("m") is None


def test_litellm_itself_is_not_imported() -> None:
    """It would cost seconds and fetch a table from the network."""
    script = (
        "import sys; from proxy.windows import packaged; assert packaged.load().find('gpt-4o'); "
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_without_litellm_the_table_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are then asked for or written down."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert packaged.load().find("gpt-4o") is None


def _tokens(table: Table, model: str, *places: str) -> int | None:
    found = table.find(model, places)
    return found.tokens if found else None


@pytest.mark.parametrize("wrong", [[], {}, None, "x", -1, [[]]])
def test_a_wrong_entry_costs_no_other_its_window(wrong: Any) -> None:
    """One list where a word should be, and the rest of the table serves on."""
    right = _chat(65_536)
    entries = {f"wrong-{key}": {**right, key: wrong} for key in right} | {"wrong": wrong, "right": right}
    found = Table(entries).find("right")
    assert found is not None
    assert found.tokens == 65_536
