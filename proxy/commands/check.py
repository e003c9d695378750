"""`carryon check FILE`: the effective policy per model, for people; `effective.describe` gives the data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from proxy.commands.effective import describe
from proxy.policy import WindowKind, resolve
from proxy.settings import Settings, UpstreamSettings
from proxy.windows import packaged

__all__ = ["checked", "shown"]

#: Limits that explain when and how far a conversation is packed, in the order in which they are shown.
_LIMITS = ("threshold", "low_water", "tail", "reserve", "surface")
#: What the numbers of a known window say already.
_IN_NUMBERS = frozenset({"window_kind", "threshold_ratio", "threshold_tokens", "retain_ratio", "retain_tokens"})
#: What a policy says without a file, and its keys that the file spells otherwise.
_DEFAULTS = asdict(resolve(Settings(), "", ""))
_SPELLED = {"after_reply": "pressure.after_reply", "pin_patterns": "pins.patterns"}


def checked(settings: Settings) -> dict[str, Any]:
    """Say what a configuration comes to; windows it does not name are looked up in the packaged table."""
    table = packaged.load()

    def lookup(upstream: UpstreamSettings, model: str) -> tuple[int, WindowKind, str] | None:
        found = table.find(model, (upstream.name, urlsplit(upstream.base_url).hostname or ""))
        return (found.tokens, found.kind, "packaged") if found else None

    return describe(settings, lookup)


def shown(found: Mapping[str, Any], file: str) -> str:
    """Spell the same as text."""
    return "\n".join(_lines(found, file))


def _lines(found: Mapping[str, Any], file: str) -> Iterator[str]:
    yield f"{file}: good"
    yield f"listen     {found['listen']}"
    yield f"store      {found['store']}"
    for upstream in found["upstreams"]:
        serves = f", serves {', '.join(upstream['serves'])}" if upstream["serves"] else ""
        default = ", the default" if upstream["default"] else ""
        credential = "its own key" if upstream["credential"] == "its own key" else "the client's credential"
        yield f"upstream   {upstream['name']} = {upstream['base_url']} ({credential}{default}{serves})"
    for row in found["policies"]:
        yield f"model      {row['upstream']} / {row['model']}"
        yield f"           window {_window(row)}"
        if row["limits"]:
            yield "           " + ", ".join(f"{name} {row['limits'][name]:,}" for name in _LIMITS)
        special = _differences(row)
        if special:
            yield f"           {special}"


def _window(row: Mapping[str, Any]) -> str:
    if not row["limits"]:
        return "unknown here: asked from the upstream when a request needs it"
    return f"{row['limits']['window']:,} tokens ({row['limits']['kind']}, {row['window_source']})"


def _differences(row: Mapping[str, Any]) -> str:
    """Spell what a policy says otherwise than the defaults, key by key as a file would."""
    hidden = {"window"} | (_IN_NUMBERS if row["limits"] else set())
    told = {name: value for name, value in row["policy"].items() if name not in hidden}
    return ", ".join(f"{key} {_spelled(key, value)}" for key, value in _changes(told, _DEFAULTS, ""))


def _changes(found: Mapping[str, Any], known: Mapping[str, Any], above: str) -> Iterator[tuple[str, object]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _changes(value, known[name], f"{name}.")
        elif value != known[name]:
            yield f"{above}{_SPELLED.get(name, name)}", value


def _spelled(key: str, value: object) -> str:
    """Spell a value as a file would: text bare, durations with their unit."""
    if isinstance(value, float):
        return f"{value:g}s" if key.endswith("timeout") else f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
