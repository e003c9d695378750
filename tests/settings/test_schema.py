"""The JSON schema for editors."""

from __future__ import annotations

from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from proxy.settings.schema import schema, text

CONFIG = Path(__file__).parents[2] / "config"


def test_the_schema_file_is_as_generated() -> None:
    """Make it anew with `python -m proxy.settings.schema > config/carryon.schema.json`."""
    assert (CONFIG / "carryon.schema.json").read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("file", sorted(CONFIG.rglob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_file_satisfies_the_schema(file: Path) -> None:
    """An editor shows no mistake in it."""
    jsonschema.validate(yaml.safe_load(file.read_text(encoding="utf-8")), schema())


@pytest.mark.parametrize(
    "wrong",
    [
        {"listn": {}},
        {"listen": {"port": "x"}},
        {"timeouts": {"drain": 5}},
        {"listen": {"max_body": "5"}},
        {"upstreams": {"a": 1}},
    ],
)
def test_the_schema_refuses_what_loading_refuses(wrong: dict[str, object]) -> None:
    """Unknown keys, wrong types, amounts without units."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema())


@pytest.mark.parametrize(
    "right",
    [
        {"listen": {"port": "env:PORT"}},
        {"timeouts": {"drain": "env:DRAIN"}},
        {"upstreams": {"a": "http://a"}},
        {"log": {"level": "env:LEVEL"}},
        {"models": [{"reserve_output": 4096}, {"reserve_output": "off"}]},
    ],
)
def test_the_schema_allows_references_and_plain_urls(right: dict[str, object]) -> None:
    """Any value may be `env:NAME`."""
    jsonschema.validate(right, schema())
