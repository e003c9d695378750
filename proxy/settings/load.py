"""Settings from file, environment and command line. Every mistake is found here, before anything starts (rule 11.1)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from proxy.errors import ConfigError, Mistake
from proxy.settings import rules
from proxy.settings.layers import Layer, Origin, Path_, environment, key_name, overrides, yaml_file
from proxy.settings.shape import Settings

__all__ = ["load"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What to do about pydantic's own findings, by the beginning of their type.
_CURES = (
    ("missing", "write it"),
    ("int_", "write a whole number"),
    ("float_", "write a number"),
    ("bool_", "write true or false"),
    ("string_pattern", "write it in the form {pattern}"),
    ("string_too_short", "write a value, or remove the key"),
    ("string", "write text, in quotes where YAML would read a number"),
    ("literal", "choose one of {expected}"),
    ("greater", "write a larger number"),
    ("less", "write a smaller number"),
    ("too_short", "name at least one"),
    ("tuple", "write a list: [a, b]"),
    ("list", "write a list: [a, b]"),
    ("dict", "write a mapping: {{key: value}}"),
    ("model", "write a mapping: {{key: value}}"),
    ("path", "write a path"),
)


def load(
    file: Path | None = None, environ: Mapping[str, str] | None = None, given: Mapping[str, Any] | None = None
) -> Settings:
    """Load, merge, check. The command line stands over the environment, that over the file.

    `file` None: the one that `CARRYON_CONFIG` names, if any. `given` holds the command line by dotted
    key (`listen.port`), and two words of its own: `upstream`, a URL that becomes the default upstream
    `default`, and `window`, a window in tokens for every model. Raises `ConfigError` with all mistakes.
    """
    environ = environ or {}
    named = file or (Path(environ["CARRYON_CONFIG"]) if environ.get("CARRYON_CONFIG") else None)
    cure = "name an existing, readable file" if file else "let CARRYON_CONFIG name an existing, readable file"
    base = yaml_file(named, cure) if named else Layer()
    upstreams = base.tree.get("upstreams")
    below = environment(environ, tuple(map(str, upstreams)) if isinstance(upstreams, dict) else ())
    words = dict(given or {})
    url, window = words.pop("upstream", None), words.pop("window", None)
    layer = reduce(_over, (base, below, overrides(words)))
    _only_upstream(layer, url)
    _every_window(layer, window)
    return _checked(_fetched(layer, environ), str(named or ""))


def _over(low: Layer, high: Layer) -> Layer:
    return Layer(_merge(low.tree, high.tree, ()), low.origins | high.origins)


def _merge(low: dict[str, Any], high: dict[str, Any], at: tuple[str, ...]) -> dict[str, Any]:
    result = dict(low)
    for key, value in high.items():
        below = low.get(key)
        if isinstance(below, str) and isinstance(value, dict) and at == ("upstreams",):
            below = {"base_url": below}  # a plain URL stands for this mapping
        if isinstance(below, dict) and isinstance(value, dict):
            result[key] = _merge(below, value, (*at, key))
        else:
            result[key] = value
    return result


def _only_upstream(layer: Layer, url: str | None) -> None:
    """`--upstream` puts an upstream named `default` before all others."""
    if url is not None:
        others = layer.tree.get("upstreams") or {}
        layer.tree["upstreams"] = {"default": url} | {k: v for k, v in others.items() if k != "default"}
        layer.origins["upstreams", "default"] = Origin(place="--upstream")


def _every_window(layer: Layer, window: int | None) -> None:
    """`--window` holds for every model, whatever the file says of some."""
    if window is None:
        return
    layer.tree["defaults"] = {**(layer.tree.get("defaults") or {}), "context_window": window}
    layer.origins["defaults", "context_window"] = Origin(place="--window")
    for entry in layer.tree.get("models") or ():
        if isinstance(entry, dict):
            entry.pop("context_window", None)
            entry.pop("like", None)


def _fetched(layer: Layer, environ: Mapping[str, str]) -> Layer:
    """Replace `env:NAME` and `file:/path` by what they name; remember where it came from, to keep it hidden."""
    origins, mistakes = dict(layer.origins), []

    def visit(value: Any, at: Path_) -> Any:
        if isinstance(value, dict):
            return {key: visit(inner, (*at, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [visit(inner, (*at, index)) for index, inner in enumerate(value)]
        if not isinstance(value, str) or not value.startswith(("env:", "file:")):
            return value
        try:
            text = _named(value, environ)
        except _AbsentError as absent:
            mistakes.append(_mistake(origins, at, *absent.args))
            return value
        origins[at] = replace(_origin(origins, at), reference=value, hidden=text)
        return text

    tree = visit(layer.tree, ())
    if mistakes:
        raise ConfigError(*mistakes)
    return Layer(tree, origins)


class _AbsentError(Exception):
    """What a reference names is not there: message and cure."""


def _named(reference: str, environ: Mapping[str, str]) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        if not _VARIABLE.fullmatch(name):
            raise _AbsentError("is not the name of a variable after env:", "write env:NAME")
        if not environ.get(name):
            raise _AbsentError(f"the environment variable {name} is not set", f"set {name}, or write the value here")
        return environ[name]
    try:
        return Path(name).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        message = f"the file {name} cannot be read: {why}"
        raise _AbsentError(message, "name a readable file, or write the value") from None


def _checked(layer: Layer, file: str) -> Settings:
    """Validate the shape, then the rules between keys."""
    try:
        settings = Settings.model_validate(layer.tree)
    except ValidationError as error:
        found = [_explained(dict(detail), layer) for detail in error.errors(include_url=False)]
        raise ConfigError(*_placed(found, file)) from None
    found = [_mistake(layer.origins, w.at, w.message, w.cure, w.key or None) for w in rules.wrongs(settings)]
    if found:
        raise ConfigError(*_placed(found, file))
    return settings


def _placed(mistakes: list[Mistake], file: str) -> Iterator[Mistake]:
    return (m if m.file else replace(m, file=file) for m in mistakes)


def _explained(detail: dict[str, Any], layer: Layer) -> Mistake:
    """Turn one finding of pydantic into a mistake with its cure; a hidden value never shows."""
    at: Path_ = tuple(p for p in detail["loc"] if p != "[key]")
    context = detail.get("ctx") or {}
    message = str(detail["msg"])
    cure = context.get("cure")
    if detail["type"] == "extra_forbidden":
        message, cure = "is not a key of the configuration", _nearest(at, layer.origins)
    elif cure is None:
        cure = next((c.format_map(context) for kind, c in _CURES if detail["type"].startswith(kind)), "mend the value")
    message = message[:1].lower() + message[1:]
    hidden = _origin(layer.origins, at)
    if hidden.hidden:
        message = f"{message.replace(hidden.hidden, '…')} (value of {hidden.reference})"
    return _mistake(layer.origins, at, message, cure)


def _nearest(at: Path_, origins: dict[Path_, Origin]) -> str:
    """Name the key that was probably meant."""
    names = _fields(at[:-1])
    if not names:
        return "remove it"
    close = difflib.get_close_matches(str(at[-1]), names, n=1)
    variable = not _origin(origins, at).line and _origin(origins, at).place.startswith("CARRYON_")
    hint = "; nesting is written __" if variable else ""
    if close:
        return f"write {close[0]}, or remove it{hint}"
    return f"remove it; the keys here are {', '.join(names)}{hint}"


def _fields(at: Path_) -> list[str]:
    """Return the keys that may stand at a path."""
    shape: Any = Settings
    for part in at:
        if shape is Settings and part in {"upstreams", "models", "client_keys"}:
            shape = rules.MEMBERS[part]
        elif str(part) in shape.model_fields:
            shape = shape.model_fields[str(part)].annotation
        if not (isinstance(shape, type) and issubclass(shape, BaseModel)):
            return []
    return list(shape.model_fields)


def _origin(origins: Mapping[Path_, Origin], at: Path_) -> Origin:
    """Return the origin of a path, or of the nearest mapping around it."""
    return next((origins[at[:n]] for n in range(len(at), 0, -1) if at[:n] in origins), Origin(place=""))


def _mistake(origins: Mapping[Path_, Origin], at: Path_, message: str, cure: str, key: str | None = None) -> Mistake:
    origin = _origin(origins, at)
    return Mistake(file=origin.place, line=origin.line, key=key or key_name(at), message=message, cure=cure)
