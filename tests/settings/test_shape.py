"""Names, types and defaults of the configuration."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.settings.shape import ModelPolicy, Settings


def test_every_key_has_a_default() -> None:
    """`carryon serve` needs no file."""
    settings = Settings()
    assert settings.default_upstream.name == "openai"
    assert settings.default_upstream.base_url == "https://api.openai.com/v1"
    assert settings.redis.timeout == pytest.approx(0.15)
    assert settings.listen.max_body == 64 * 1024 * 1024


def test_settings_do_not_change() -> None:
    """What was checked at start stays as it was checked."""
    with pytest.raises(ValidationError, match="frozen"):
        Settings().listen.port = 1


def test_the_first_upstream_is_the_default_and_each_knows_its_name() -> None:
    """A plain URL stands for a mapping."""
    settings = Settings.model_validate(
        {"upstreams": {"b": "http://b", "a": {"base_url": "http://a/x", "serves": ["m*"]}}}
    )
    assert settings.default_upstream.name == "b"
    assert [(u.name, u.base_url) for u in settings.upstreams.values()] == [("b", "http://b/v1"), ("a", "http://a/x")]


def test_the_name_of_an_upstream_is_not_a_key_inside_it() -> None:
    """It is the key outside."""
    with pytest.raises(ValidationError, match="Extra"):
        Settings.model_validate({"upstreams": {"a": {"base_url": "http://a", "name": "b"}}})


@pytest.mark.parametrize(
    ("value", "meant"), [("auto", "auto"), ("off", "off"), (False, "off"), (4096, 4096), ("4096", 4096)]
)
def test_reserve_output_is_auto_off_or_tokens(value: object, meant: object) -> None:
    """YAML reads a bare `off` as false, a variable a number as text."""
    assert ModelPolicy.model_validate({"reserve_output": value}).reserve_output == meant


@pytest.mark.parametrize("value", [True, "on", -1, 1.5, None])
def test_reserve_output_is_nothing_else(value: object) -> None:
    """`true` says nothing."""
    with pytest.raises(ValidationError, match="neither auto nor off"):
        ModelPolicy.model_validate({"reserve_output": value})


def test_a_bare_off_is_a_summary_method() -> None:
    """YAML reads it as false."""
    assert ModelPolicy.model_validate({"summary": {"method": False}}).summary.method == "off"


def test_secrets_do_not_show() -> None:
    """Neither in `repr` nor in `str`."""
    settings = Settings.model_validate(
        {
            "secret": "hunter2" * 4,
            "redis": {"url": "redis://:hunter2@host"},
            "upstreams": {"a": {"base_url": "http://a", "api_key": "hunter2", "proxy": "http://u:hunter2@p",
                                "headers": {"x": "hunter2"}}},
        }
    )  # fmt: skip
    assert "hunter2" not in repr(settings) + str(settings)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"listen": {"port": True}}, "yes or no where a number"),
        ({"defaults": {"threshold_ratio": True}}, "yes or no where a number"),
        ({"defaults": {"context_window": True}}, "yes or no where a number"),
        ({"defaults": {"summary": {"max_tokens": False}}}, "yes or no where a number"),
        ({"defaults": {"auto": 1}}, "a number where yes or no"),
        ({"response_headers": 0}, "a number where yes or no"),
        ({"defaults": {"retain_ratio": float("nan")}}, "finite"),
        ({"defaults": {"reserve_output": [1]}}, "neither auto nor off"),
        ({"upstreams": {"a": {"base_url": "http://a", "api_key": " "}}}, "is empty"),
        ({"listen": {"max_connections": 10**9}}, "less than or equal"),
    ],
)
def test_yes_is_no_number_and_one_is_not_yes(tree: dict[str, object], message: str) -> None:
    """YAML reads `yes` as true and Python counts true as 1: a port would be 1, a ratio 100 %."""
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate(tree)


def test_words_for_yes_and_digits_in_text_are_understood() -> None:
    """Variables are text."""
    tree = {"listen": {"port": "9"}, "defaults": {"auto": "no", "reserve_output": "off", "threshold_ratio": "0.5"}}
    settings = Settings.model_validate(tree)
    assert (settings.listen.port, settings.defaults.auto, settings.defaults.threshold_ratio) == (9, False, 0.5)
