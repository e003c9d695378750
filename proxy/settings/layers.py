"""Where configuration comes from: one YAML file, the environment, the command line; each value keeps its origin."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proxy.errors import ConfigError, Mistake
from proxy.settings.document import MOST_BYTES, Layer, Origin, Path_, document, key_name

__all__ = ["Layer", "Origin", "Path_", "environment", "key_name", "overrides", "read_text", "yaml_file"]

_PREFIX = "CARRYON_"
#: Where what the shell has opened stands.
_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
#: A line of a file that is neither empty, a comment nor the mark of a document.
_SAID = re.compile(r"(?!---)\s*[^\s#]")
#: Made by Kubernetes for a Service named `carryon`.
_OWN_SERVICE = re.compile(r"CARRYON_(SERVICE_.*|PORT|PORT_.*)")
#: Made by Kubernetes for a Service named `carryon-<more>`; nothing that people write looks like this.
_OTHER_SERVICE = re.compile(
    r"CARRYON_\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def yaml_file(path: Path, absent: str = "name an existing, readable file") -> Layer:
    """Read a file. Raises `ConfigError` where it is missing (`absent` is the cure), no YAML, or names a key twice."""
    place = str(path)
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise _refused(place, "is not UTF-8 text", "save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise _refused(place, f"cannot be read: {getattr(error, 'strerror', None) or error}", absent) from None
    tree, origins = document(text, place)
    if tree is not None and not isinstance(tree, dict):
        line = next((number for number, said in enumerate(text.splitlines(), 1) if _SAID.match(said)), 1)
        cure = "write keys and values, such as listen: {port: 8787}"
        raise _refused(place, "is not a mapping", cure, line=line)
    return Layer(tree or {}, origins)


def read_text(path: Path) -> str:
    """Read a file of settings. Raises `OSError`, and `ValueError` where it is too large, not UTF-8 or no file."""
    with os.fdopen(_opened(os.fspath(path.expanduser())), "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    return data.decode("utf-8")


def _opened(path: str) -> int:
    """Open what can be read to its end: a file, or a pipe that the shell has opened for us (`<(…)`, `/dev/stdin`).

    A pipe by name, a terminal or a device may have no end, and nobody would see what is waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    kind = os.fstat(descriptor).st_mode
    shells = stat.S_ISFIFO(kind) and path.startswith(_DESCRIPTORS)
    if stat.S_ISREG(kind) or shells or path == os.devnull:
        os.set_blocking(descriptor, True)
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise ValueError("it is a pipe, a device or a socket, not a file")


def _refused(place: str, message: str, cure: str, *, key: str = "", line: int | None = None) -> ConfigError:
    return ConfigError(Mistake(file=place, line=line, key=key, message=message, cure=cure))


def environment(environ: Mapping[str, str], names: Iterable[str] = ()) -> Layer:
    """Read `CARRYON_…`; `__` nests. `names` are the upstreams' names, whose letters a variable cannot spell."""
    spelled: dict[str, list[str]] = {}
    for name in names:
        spelled.setdefault(re.sub(r"\W", "_", name).lower(), []).append(name)
    layer = Layer()
    whole: dict[Path_, str] = {}
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable == "CARRYON_CONFIG" or _from_kubernetes(variable, environ):
            continue
        path = variable.removeprefix(_PREFIX).lower().split("__")
        if path[0] == "upstreams" and len(path) > 1:
            meant = spelled.get(path[1], [path[1]])
            if len(meant) > 1:
                message = f"may mean any of the upstreams {', '.join(meant)}"
                raise _refused(variable, message, "give them names that differ in more than signs and case")
            path[1] = meant[0]
        _once(whole, tuple(path), variable)
        _put(layer, tuple(path), _typed(environ[variable], variable, tuple(path), layer), Origin(place=variable))
    return layer


def _once(whole: dict[Path_, str], path: Path_, variable: str) -> None:
    """Refuse a variable beside one that sets the same key, or the mapping around it; sorted, that one comes first."""
    first = next((whole[path[:depth]] for depth in range(1, len(path) + 1) if path[:depth] in whole), None)
    if first is not None:
        message = "is set twice" if path in whole else "is set both as a whole and in part"
        raise _refused(variable, f"{message}: {first} sets it too", "keep one of the two", key=key_name(path))
    whole[path] = variable


def _from_kubernetes(variable: str, environ: Mapping[str, str]) -> bool:
    if "__" in variable:
        return False
    if _OWN_SERVICE.fullmatch(variable) or _OTHER_SERVICE.fullmatch(variable):
        return True
    # `CARRYON_REDIS_PORT` beside `CARRYON_REDIS_SERVICE_HOST` is a link; alone it is a mistyped variable.
    return variable.endswith("_PORT") and f"{variable.removesuffix('_PORT')}_SERVICE_HOST" in environ


def _typed(text: str, variable: str, path: Path_, layer: Layer) -> Any:
    """Return a list or mapping written in YAML's flow style, None for nothing, else the text as it is."""
    stripped = text.strip()
    if stripped in {"", "null"}:
        return None
    if stripped[0] not in "[{":
        return text
    try:
        value, origins = document(stripped, variable, path, lines=False)
    except ConfigError as error:
        if "is not YAML" not in error.message:
            raise
        cure = "write it as in YAML on one line, or as JSON"
        raise _refused(variable, "is not a list or mapping", cure, key=key_name(path)) from None
    layer.origins.update(origins)
    return value


def overrides(values: Mapping[str, Any]) -> Layer:
    """Read the command line: dotted keys (`listen.port` of `--port`) and typed values; None means not given."""
    layer = Layer()
    for key, value in values.items():
        if value is not None:
            _put(layer, tuple(key.split(".")), value, Origin(place=f"--{key.rpartition('.')[2]}"))
    return layer


def _put(layer: Layer, path: tuple[str, ...], value: Any, origin: Origin) -> None:
    place = layer.tree
    for depth, part in enumerate(path[:-1], 1):
        layer.origins.setdefault(path[:depth], origin)
        place = place.setdefault(part, {})
    layer.origins[path] = origin
    place[path[-1]] = value
