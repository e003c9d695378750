"""The JSON schema of the configuration, for editors. `python -m proxy.settings.schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from proxy.settings.shape import Settings

__all__ = ["schema", "text"]

_REFERENCE = {"type": "string", "pattern": "^(env|file):.+"}
_SCALARS = {"integer", "number", "boolean"}


def schema() -> dict[str, Any]:
    """Return the schema: what people may write, so a plain URL for an upstream and references for values."""
    made = Settings.model_json_schema()
    definitions = made["$defs"]
    mapping = definitions["UpstreamSettings"]
    definitions["UpstreamSettings"] = {"anyOf": [{"type": "string", "format": "uri"}, mapping]}
    for shape in (made, mapping, *definitions.values()):
        shape.pop("description", None)
        for name, value in shape.get("properties", {}).items():
            shape["properties"][name] = _referable({k: v for k, v in value.items() if k != "default"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "Carryon configuration"}


def _referable(value: dict[str, Any]) -> dict[str, Any]:
    """Let `env:NAME` and `file:/path` stand for a value that is no text, or text of a fixed form."""
    if value.get("type") in _SCALARS or "enum" in value:
        return {"anyOf": [value, _REFERENCE]}
    if "anyOf" in value and not any(option.get("type") == "string" for option in value["anyOf"]):
        return {**value, "anyOf": [*value["anyOf"], _REFERENCE]}
    return value


def text() -> str:
    """Return the schema as the file `config/carryon.schema.json` holds it."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
