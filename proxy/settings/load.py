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
from proxy.settings import compactors, rules
from proxy.settings.layers import Layer, Origin, Path_, environment, key_name, overrides, read_text, yaml_file
from proxy.settings.shape import Settings

__all__ = ["load", "located"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: pydantic's own findings by the beginning of their type: what is wrong ("": its own words), and what to do.
_FINDINGS = (
    ("missing", "is required", "write it"),
    ("int_", "is not a whole number", "write a whole number"),
    ("finite_number", "is no finite number", "write a number"),
    ("float_", "is not a number", "write a number"),
    ("bool_", "is neither true nor false", "write true or false"),
    ("string_pattern", "has not the right form", "write it in the form {pattern}"),
    ("string_too_short", "is empty", "write a value, or remove the key"),
    ("string", "is not text", "write text, in quotes where YAML would read a number"),
    ("literal", "is not one of the words known here", "choose one of {expected}"),
    ("greater_than_equal", "is less than {ge}", "write a larger number, {ge} or more"),
    ("less_than_equal", "is more than {le}", "write a smaller number, {le} or less"),
    ("less_than", "is not less than {lt}", "write a smaller number, below {lt}"),
    ("too_short", "is empty", "name at least one"),
    ("tuple", "is not a list", "write a list: [a, b]"),
    ("dict", "is not a mapping", "write a mapping: {{key: value}}"),
    ("model", "is not a mapping", "write a mapping: {{key: value}}"),
    ("path", "is not a path", "write a path"),
    ("", "", "mend the value"),
)
#: Forms that are told in words.
_FORMS = {
    r"^[0-9a-f]{64}$": "write the SHA-256 of the key, 64 digits and small letters: printf %s KEY | sha256sum",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$": "use at most 64 letters, digits, dots, dashes and underscores",
    r"^/[^?#\s]+$": "write a path that begins with /, such as /audio/speech",
    r"^[\w.-]+$": "write builtin, or the name of an entry point",
    r"^[\w -]{2,40}$": "write conversation, or a language: English",
}


def load(
    file: Path | None = None, environ: Mapping[str, str] | None = None, given: Mapping[str, Any] | None = None
) -> Settings:
    """Load, merge, check. The command line stands over the environment, that over the file.

    `file` None: the one that `CARRYON_CONFIG` names, if any. `given` holds the command line by dotted
    key (`listen.port`), and two words of its own: `upstream`, a URL that becomes the default upstream
    `default`, and `window`, a window in tokens for every model. Raises `ConfigError` with all mistakes.
    """
    layer, named = _layered(file, environ or {}, given or {})
    return _checked(*_fetched(layer, environ or {}), named)


def located(
    error: ConfigError, file: Path | None, environ: Mapping[str, str], given: Mapping[str, Any] | None = None
) -> ConfigError:
    """Return a mistake that was found later, such as a port that is taken, with the place where its key was written."""
    origins = _layered(file, environ, given or {})[0].origins
    return ConfigError(
        *(m if m.file else _mistake(origins, tuple(m.key.split(".")), m.message, m.cure, m.key) for m in error.mistakes)
    )


def _layered(file: Path | None, environ: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Layer, str]:
    """Return all that was written, one over the other, and the name of the file."""
    named = file or (Path(environ["CARRYON_CONFIG"]) if environ.get("CARRYON_CONFIG") else None)
    cure = "name an existing, readable file" if file else "let CARRYON_CONFIG name an existing, readable file"
    base = yaml_file(named, cure) if named else Layer()
    upstreams = base.tree.get("upstreams")
    below = environment(environ, tuple(map(str, upstreams)) if isinstance(upstreams, dict) else ())
    words = dict(given)
    url, window = words.pop("upstream", None), words.pop("window", None)
    layer = reduce(_over, (base, below, overrides(words)))
    _only_upstream(layer, url)
    _every_window(layer, window)
    return layer, str(named or "")


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
    others = layer.tree.get("upstreams") or {}
    if url is not None and isinstance(others, dict):
        layer.tree["upstreams"] = {"default": url} | {k: v for k, v in others.items() if k != "default"}
        layer.origins["upstreams", "default"] = Origin(place="--upstream")


def _every_window(layer: Layer, window: int | None) -> None:
    """`--window` holds for every model, whatever the file says of some."""
    defaults, models = layer.tree.get("defaults") or {}, layer.tree.get("models") or ()
    if window is None or not isinstance(defaults, dict):
        return
    layer.tree["defaults"] = {**defaults, "context_window": window, "like": None}
    layer.origins["defaults", "context_window"] = Origin(place="--window")
    for entry in models if isinstance(models, list) else ():
        if isinstance(entry, dict):
            entry.pop("context_window", None)
            entry.pop("like", None)


def _fetched(layer: Layer, environ: Mapping[str, str]) -> tuple[Layer, dict[Path_, Mistake]]:
    """Replace `env:NAME` and `file:/path` by what they name; remember where it came from, to keep it hidden.

    Returns what is not there as well, by its path.
    """
    origins, absent = dict(layer.origins), {}

    def visit(value: Any, at: Path_) -> Any:
        if isinstance(value, dict):
            return {key: visit(inner, (*at, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [visit(inner, (*at, index)) for index, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            text = _text(_named(_text(value), environ) if value.startswith(("env:", "file:")) else value)
        except _AbsentError as error:
            absent[at] = _mistake(origins, at, *error.args)
            return value
        if text is value:
            return value
        origins[at] = replace(_origin(origins, at), reference=value, hidden=text)
        return text

    return Layer(visit(layer.tree, ()), origins), absent


class _AbsentError(Exception):
    """What a reference names is not there, or a value is no text: message and cure."""


def _text(value: str) -> str:
    """Return a text that can be sent, stored and printed: half a character has no bytes in UTF-8."""
    if not value.isascii() and _SURROGATE.search(value):
        raise _AbsentError(
            "holds a lone surrogate, or a byte that is not UTF-8", r"write it anew in UTF-8, without \ud800 to \udfff"
        )
    return value


def _named(reference: str, environ: Mapping[str, str]) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        if not _VARIABLE.fullmatch(name):
            raise _AbsentError("is not the name of a variable after env:", "write env:NAME")
        if not environ.get(name):
            raise _AbsentError(f"the environment variable {name} is not set", f"set {name}, or write the value here")
        return environ[name]
    if not name or "\0" in name:
        raise _AbsentError("is not the path of a file after file:", "write file:/path")
    try:
        text = read_text(Path(name)).rstrip("\r\n")
    except (OSError, ValueError, RuntimeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeError) else getattr(error, "strerror", None) or error
        message = f"the file {name} cannot be read: {why}"
        raise _AbsentError(message, "name a readable file, or write the value") from None
    if not text:
        raise _AbsentError(f"the file {name} is empty", "write the value into it, or write the value here")
    return text


def _checked(layer: Layer, absent: Mapping[Path_, Mistake], file: str) -> Settings:
    """Validate the shape, then the rules between keys. What a missing reference stands for is judged no further."""
    found = list(absent.values())
    settings = None
    try:
        settings = Settings.model_validate(layer.tree)
    except ValidationError as error:
        details = [(_path(detail["loc"]), dict(detail)) for detail in error.errors(include_url=False)]
        found += [_explained(at, detail, layer) for at, detail in details if at not in absent]
    if settings is not None and not absent:
        wrongs = (*rules.wrongs(settings), *compactors.absent(settings.compactor))
        found = [_mistake(layer.origins, w.at, w.message, w.cure, w.key or None) for w in wrongs]
    if found or settings is None:
        raise ConfigError(*_placed(found, file))
    return settings


def _path(location: tuple[str | int, ...]) -> Path_:
    """Return where pydantic found something, without its own words for kinds of values."""
    return tuple(part for part in location if part != "[key]")


def _placed(mistakes: list[Mistake], file: str) -> Iterator[Mistake]:
    return (m if m.file else replace(m, file=file) for m in mistakes)


def _explained(at: Path_, detail: dict[str, Any], layer: Layer) -> Mistake:
    """Turn one finding of pydantic into a mistake with its cure; a hidden value never shows."""
    kind, context = str(detail["type"]), detail.get("ctx") or {}
    if kind == "extra_forbidden":
        return _mistake(layer.origins, at, "is not a key of the configuration", _nearest(at, layer.origins))
    if "cure" in context:
        return _mistake(layer.origins, at, str(detail["msg"]), str(context["cure"]))
    message, cure = next((message, cure) for known, message, cure in _FINDINGS if kind.startswith(known))
    cure = _FORMS.get(str(context.get("pattern")), cure.format_map(context))
    if detail.get("input", "") is None and kind != "missing":
        mapping = kind.startswith(("model", "dict"))
        message, cure = "holds nothing", f"{'write its keys below it' if mapping else cure}, or remove it"
    return _mistake(layer.origins, at, message.format_map(context) or str(detail["msg"]), cure)


def _nearest(at: Path_, origins: dict[Path_, Origin]) -> str:
    """Name the key that was probably meant."""
    names = _fields(at[:-1])
    if not names:
        return "remove it"
    name = str(at[-1])
    close = difflib.get_close_matches(name, names, n=1)
    above = [where for where, fields in _places() if name in fields]
    longer = {field for _, fields in _places() for field in fields if field.endswith(f"_{name}")}
    variable = not _origin(origins, at).line and _origin(origins, at).place.startswith("CARRYON_")
    hint = "; nesting is written __" if variable else ""
    if close:
        return f"write {close[0]}, or remove it{hint}"
    if above:
        return f"move it: it stands in {' or in '.join(above)}{hint}"
    if len(longer) == 1:
        (full,) = longer
        return f"write {full}, in {' or in '.join(where for where, fields in _places() if full in fields)}{hint}"
    return f"remove it; the keys here are {', '.join(names)}{hint}"


def _places() -> Iterator[tuple[str, list[str]]]:
    """Yield the mappings of the configuration, by name, and the keys that stand in each."""
    yield "the file itself", _fields(())
    above = [(name,) for name in _fields(()) if name not in rules.MEMBERS]
    yield from (
        (".".join(at), _fields(at)) for at in [*above, *(("defaults", name) for name in _fields(("defaults",)))]
    )
    yield from ((f"an entry of {name}", _fields((name, 0))) for name in rules.MEMBERS)


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
    """Say what is wrong at a path. What came from a variable or a file is not shown: it may be a secret."""
    origin = _origin(origins, at)
    inside = {known for path, known in origins.items() if known.hidden and path[: len(at)] == at}
    for known in inside | {origin}:
        if known.hidden and (known is origin or known.hidden in message):
            message = f"{message.replace(known.hidden, '…')} (value of {known.reference})"
    return Mistake(file=origin.place, line=origin.line, key=key or key_name(at), message=message, cure=cure)
