"""`carryon check FILE`: the effective policy per model, for people; `effective.describe` gives the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.commands.effective import describe
from proxy.policy import WindowKind
from proxy.settings import Settings, UpstreamSettings
from proxy.windows import packaged

__all__ = ["checked", "shown"]

#: Limits that explain when and how far a conversation is packed, in the order in which they are shown.
_LIMITS = ("threshold", "low_water", "tail", "reserve", "surface")
#: Policies that are shown only where they differ from the defaults.
_HIDDEN = frozenset({"window", "window_kind", "like", "threshold_ratio", "retain_ratio"})


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
    defaults = found["policies"][-1]["policy"]
    for row in found["policies"]:
        yield f"model      {row['upstream']} / {row['model']}"
        yield f"           window {_window(row)}"
        if row["limits"]:
            yield "           " + ", ".join(f"{name} {row['limits'][name]:,}" for name in _LIMITS)
        special = _differences(row["policy"], defaults)
        if special:
            yield f"           {special}"


def _window(row: Mapping[str, Any]) -> str:
    if not row["limits"]:
        return "unknown here: asked from the upstream when a request needs it"
    return f"{row['limits']['window']:,} tokens ({row['limits']['kind']}, {row['window_source']})"


def _differences(policy: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    names = (name for name in policy if name not in _HIDDEN and policy[name] != defaults[name])
    return ", ".join(f"{name} {policy[name]}" for name in names)
