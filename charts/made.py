"""What is made in `charts/carryon` of other files: the schema's part for `config`, the table of values in its README.

`python charts/made.py` writes both anew; `tests/chart/test_made.py` holds them to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "carryon"
sys.path.insert(0, str(CHART.parents[1]))  # run as a script from a checkout, `proxy` need not be installed

from proxy.settings.schema import schema as settings  # noqa: E402 - it can be found only now

_BEGIN, _END = "<!-- values: made by charts/made.py -->", "<!-- /values -->"
#: What the chart sets by variables, so that the file cannot say it.
_SET_BY_THE_CHART = {
    "": ("secret", "state_dir"),
    "Admin": ("host", "port", "token"),
    "Listen": ("host", "port", "workers"),
    "Redis": ("url",),
}
_REFERENCE = {"type": "string", "pattern": "^(env|file):.+"}
#: What would put a secret into a ConfigMap, or what a template has to read.
_NARROWER = {
    ("UpstreamSettings", "api_key"): {"anyOf": [_REFERENCE, {"type": "null"}]},
    ("UpstreamSettings", "proxy"): {"anyOf": [{"type": "string", "pattern": "^[^@]+$"}, {"type": "null"}]},
    ("Timeouts", "drain"): {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$"},
    ("", "encryption_keys"): {"type": "array", "items": _REFERENCE},
}
#: Words of a schema that refuse nothing, or mean something else to another reader.
_DROPPED = {"$defs", "$schema", "default", "description", "format", "title", "writeOnly"}


def schema() -> dict[str, Any]:
    """Return the schema of the values: the chart's own keys as the file has them, `config` from Carryon's settings."""
    made = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    own = {name: shape for name, shape in made["definitions"].items() if not name.startswith("carryon")}
    return {**made, "definitions": {**own, **_config()}}


def _config() -> dict[str, Any]:
    whole = settings()
    shapes = {"": whole, **whole.pop("$defs")}
    for name, shape in shapes.items():
        mapping = next((part for part in shape.get("anyOf", ()) if "properties" in part), shape)
        for key in _SET_BY_THE_CHART.get(name, ()):
            mapping["properties"].pop(key)
        mapping["properties"].update({key: part for (where, key), part in _NARROWER.items() if where == name})
    return {f"carryon{name}": _drafted(shape) for name, shape in sorted(shapes.items())}


def _drafted(value: Any) -> Any:
    """Return it in the words of draft 7, without titles; names of keys are left alone."""
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for word, part in value.items():
        if word == "properties":
            result[word] = {name: _drafted(inner) for name, inner in sorted(part.items())}
        elif word == "$ref":
            result[word] = part.replace("#/$defs/", "#/definitions/carryon")
        elif word not in _DROPPED:
            result[word] = [_drafted(inner) for inner in part] if isinstance(part, list) else _drafted(part)
    return result


def schema_text() -> str:
    """Return what `values.schema.json` holds."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def readme_text() -> str:
    """Return what `README.md` holds: its own words, and the table between the marks."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    head, _, rest = text.partition(_BEGIN)
    rows = [f"| `{key}` | `{default}` | {said} |" for key, default, said in values()]
    return "\n".join(
        [f"{head}{_BEGIN}", "", "| value | default | |", "|---|---|---|", *rows, "", _END + rest.partition(_END)[2]]
    )


def values() -> Iterator[tuple[str, str, str]]:
    """Yield every value with its comment: key, default as YAML, what is said of it."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    whole = yaml.safe_load(text)
    said: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- ") or (said and stripped.startswith("#")):
            said.append(stripped.removeprefix("# -- ").removeprefix("# "))
        elif stripped and not stripped.startswith("#") and not stripped.startswith("- "):
            path = [*path[: (len(line) - len(line.lstrip())) // 2], stripped.partition(":")[0]]
            if said:
                yield ".".join(path), _default(whole, path), " ".join(said).replace("|", "\\|")
            said = []


def _default(whole: Any, path: list[str]) -> str:
    for key in path:
        whole = whole[key]
    return json.dumps(whole, ensure_ascii=False)


FILES: dict[str, Callable[[], str]] = {"values.schema.json": schema_text, "README.md": readme_text}

if __name__ == "__main__":
    for name, text in FILES.items():
        (CHART / name).write_text(text(), encoding="utf-8")
