"""Where configuration comes from: one YAML file, the environment, the command line; each value keeps its origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from proxy.errors import ConfigError, Mistake

__all__ = ["Layer", "Origin", "environment", "key_name", "overrides", "yaml_file"]

_PREFIX = "CARRYON_"
_MERGE = "tag:yaml.org,2002:merge"
#: Made by Kubernetes for a Service named `carryon`.
_OWN_SERVICE = re.compile(r"CARRYON_(SERVICE_.*|PORT|PORT_.*)")
#: Made by Kubernetes for a Service named `carryon-<more>`; nothing that people write looks like this.
_OTHER_SERVICE = re.compile(
    r"CARRYON_\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)

Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was written: a file with its line, `NAME` of the environment, or the command line.

    `reference` is `env:NAME` or `file:/path` where the value was fetched from there; it is then never shown.
    """

    place: str
    line: int | None = None
    reference: str = ""
    hidden: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """A tree of plain values and the origin of each key in it, by path."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path_, Origin] = field(default_factory=dict)


def key_name(path: Path_) -> str:
    """Return a path as people write it: `models[1].like`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def yaml_file(path: Path, absent: str = "name an existing, readable file") -> Layer:
    """Read a file. Raises `ConfigError` where it is missing (`absent` is the cure), no YAML, or names a key twice."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _refused(path, None, "is not UTF-8 text", "save the file as UTF-8") from None
    except OSError as error:
        raise _refused(path, None, f"cannot be read: {error.strerror}", absent) from None
    try:
        return _walked(path, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or "cannot be understood"
        line = mark.line + 1 if mark else None
        raise _refused(path, line, f"is not YAML: {problem}", "mend the syntax at this line") from None
    except yaml.YAMLError:
        raise _refused(path, None, "is not YAML: it holds a special character", "save it as plain text") from None
    except ValueError as error:
        raise _refused(path, None, f"is not YAML: {error}", "put the value in quotes") from None
    except RecursionError:
        raise _refused(path, None, "is nested too deeply", "remove the nesting") from None


def _walked(path: Path, text: str) -> Layer:
    loader = yaml.SafeLoader(text)  # it reads the first characters already
    try:
        return _Walk(path, loader).layer(loader.get_single_node())
    finally:
        loader.dispose()


def _refused(path: Path, line: int | None, message: str, cure: str, key: str = "") -> ConfigError:
    return ConfigError(Mistake(file=str(path), line=line, key=key, message=message, cure=cure))


class _Walk:
    """One walk over composed nodes, which still know their lines."""

    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self.path = path
        self.loader = loader
        self.origins: dict[Path_, Origin] = {}
        self.open: set[int] = set()

    def layer(self, node: yaml.Node | None) -> Layer:
        if node is None:
            return Layer()
        if not isinstance(node, yaml.MappingNode):
            cure = "write keys and values, such as listen: {port: 8787}"
            raise _refused(self.path, node.start_mark.line + 1, "is not a mapping", cure)
        return Layer(self.mapping(node, ()), self.origins)

    def value(self, node: yaml.Node, at: Path_) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self.loader.construct_object(node)
        if id(node) in self.open:
            raise _refused(self.path, node.start_mark.line + 1, "holds itself", "remove the alias", key_name(at))
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, at)
            return self.sequence(node, at)
        finally:
            self.open.discard(id(node))

    def sequence(self, node: yaml.Node, at: Path_) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self.origins[*at, index] = self.origin(item)
            values.append(self.value(item, (*at, index)))
        return values

    def mapping(self, node: yaml.MappingNode, at: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        inherited: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                inherited |= self.inherited(value_node, at)
                continue
            key, line = self.key(key_node, at), key_node.start_mark.line + 1
            if key in result:
                first = self.origins[*at, key].line
                message = f"is written twice; it stands first at line {first}"
                raise _refused(self.path, line, message, "keep one of the two", key_name((*at, key)))
            self.origins[*at, key] = Origin(place=str(self.path), line=line)
            result[key] = self.value(value_node, (*at, key))
        return inherited | result

    def inherited(self, node: yaml.Node, at: Path_) -> dict[str, Any]:
        """Return what a merge key `<<` brings; keys written beside it win."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for part in nodes:
            value = self.value(part, at)
            if not isinstance(value, dict):
                line = part.start_mark.line + 1
                raise _refused(self.path, line, "<< is not a mapping", "merge mappings only", key_name(at))
            result = value | result
        return result

    def key(self, node: yaml.Node, at: Path_) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise _refused(self.path, node.start_mark.line + 1, "a key is not text", "write plain keys", key_name(at))
        return str(node.value)

    def origin(self, node: yaml.Node) -> Origin:
        return Origin(place=str(self.path), line=node.start_mark.line + 1)


def environment(environ: Mapping[str, str], names: Iterator[str] | tuple[str, ...] = ()) -> Layer:
    """Read `CARRYON_…`; `__` nests. `names` are the upstreams' names, whose letters a variable cannot spell."""
    spelled = {re.sub(r"\W", "_", name).lower(): name for name in names}
    layer = Layer()
    for variable in sorted(environ):
        if variable.startswith(_PREFIX) and variable != "CARRYON_CONFIG" and not _from_kubernetes(variable, environ):
            path = variable.removeprefix(_PREFIX).lower().split("__")
            if path[0] == "upstreams" and len(path) > 1:
                path[1] = spelled.get(path[1], path[1])
            _put(layer, tuple(path), _typed(environ[variable], variable, key_name(tuple(path))), Origin(place=variable))
    return layer


def _from_kubernetes(variable: str, environ: Mapping[str, str]) -> bool:
    if "__" in variable:
        return False
    if _OWN_SERVICE.fullmatch(variable) or _OTHER_SERVICE.fullmatch(variable):
        return True
    # `CARRYON_REDIS_PORT` beside `CARRYON_REDIS_SERVICE_HOST` is a link; alone it is a mistyped variable.
    return variable.endswith("_PORT") and f"{variable.removesuffix('_PORT')}_SERVICE_HOST" in environ


def _typed(text: str, variable: str, key: str) -> Any:
    """Return a list or mapping written in YAML's flow style, None for nothing, else the text as it is."""
    stripped = text.strip()
    if stripped in {"", "null"}:
        return None
    if stripped[0] not in "[{":
        return text
    try:
        return yaml.safe_load(stripped)
    except yaml.YAMLError:
        cure = "write it as in YAML on one line, or as JSON"
        raise ConfigError(Mistake(file=variable, key=key, message="is not a list or mapping", cure=cure)) from None


def overrides(values: Mapping[str, Any]) -> Layer:
    """Read the command line: dotted keys (`listen.port`) and typed values; None means not given."""
    layer = Layer()
    for key, value in values.items():
        if value is not None:
            _put(layer, tuple(key.split(".")), value, Origin(place="command line"))
    return layer


def _put(layer: Layer, path: tuple[str, ...], value: Any, origin: Origin) -> None:
    place = layer.tree
    for depth, part in enumerate(path[:-1], 1):
        layer.origins.setdefault(path[:depth], origin)
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            cure = f"set either {key_name(path[:depth])} as a whole or the keys below it"
            message = "is set both as a whole and in part"
            raise ConfigError(Mistake(file=origin.place, key=key_name(path), message=message, cure=cure))
        place = inner
    layer.origins[path] = origin
    place[path[-1]] = value
