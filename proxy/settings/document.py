"""A YAML text becomes plain values that know their lines. What is no plain value is refused, and no value is shown.

Numbers are decimal: what YAML 1.1 reads as octal, hexadecimal or base sixty (`010`, `0x1F`, `12:30`) stays
text, and so do dates; whoever wants a number of them then gets it as written, or a mistake.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from proxy.errors import ConfigError, Mistake

__all__ = ["MOST_BYTES", "Layer", "Origin", "Path_", "document", "key_name"]

#: Larger than any configuration, small enough to read at start: bytes of a text, values (aliases spelled out), levels.
MOST_BYTES = 1 << 20
MOST_VALUES = 20_000
MOST_LEVELS = 20

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_AS_TEXT = {f"{_TAG}timestamp", f"{_TAG}value"}
_SCALARS = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str")}
_GROUPS: dict[type[yaml.Node], str] = {yaml.MappingNode: f"{_TAG}map", yaml.SequenceNode: f"{_TAG}seq"}
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]{0,30})")
#: What YAML's own words quote: signs and tokens may be shown, anything longer may be a secret.
_QUOTED = re.compile(r"'(?!<)[^']{5,}'")
#: What to do about YAML's own findings, by a part of their words.
_CURES = (
    ("'\\t'", "indent with spaces"),
    ("undefined alias", "put text that begins with * in quotes"),
    ("another document", "keep one document: remove the line ---"),
    ("end of stream", "close the quote or bracket that is open"),
    ("mapping values", "put text that holds a colon in quotes, or mend the indentation"),
    ("block end", "give keys of one level the same indentation"),
)

Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was written: a file with its line, `NAME` of the environment, or `--option`.

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
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_spelled(part)}" for part in path)
    return text.removeprefix(".")


def _spelled(part: str) -> str:
    """Return a key as it may be printed: a terminal obeys what is not printable, and nobody reads a page of letters."""
    short = part if len(part) <= 80 else f"{part[:79]}…"
    return short if short and short.isprintable() else repr(short)


def document(text: str, place: str, at: Path_ = (), *, lines: bool = True) -> tuple[Any, dict[Path_, Origin]]:
    """Return the value of a text, None for an empty one, and the origins of what is in it.

    `place` names the text, `at` is the path of the value; without `lines` it is one line that nobody counts.
    Raises `ConfigError`.
    """
    walk = _Walk(place, at, lines=lines)
    try:
        return walk.whole(text), walk.origins
    except yaml.MarkedYAMLError as error:
        mark, begun = error.problem_mark or error.context_mark, error.context_mark
        problem = _QUOTED.sub("…", error.problem or "cannot be understood")
        if mark and begun and begun.line < mark.line:
            problem += f"; it begins at line {begun.line + 1}"
        where = f" at column {mark.column + 1}" if mark else ""
        cure = next((cure for words, cure in _CURES if words in problem), "mend the syntax at this line")
        walk.stop(mark, f"is not YAML{where}: {problem}", cure)
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        message, cure = "is not YAML: it holds a special character", "save it as plain text"
        raise ConfigError(_mistake(place, line if lines else None, key_name(at), message, cure)) from None
    except RecursionError:
        walk.stop(None, "is nested too deeply", "remove the nesting")


def _mistake(place: str, line: int | None, key: str, message: str, cure: str) -> Mistake:
    return Mistake(file=place, line=line, key=key, message=message, cure=cure)


class _Walk:
    """One walk over composed nodes, which still know their lines."""

    def __init__(self, place: str, at: Path_, *, lines: bool) -> None:
        self.place = place
        self.at = at
        self.lines = lines
        self.origins: dict[Path_, Origin] = {}
        self.mistakes: list[Mistake] = []
        self.open: set[int] = set()
        self.values = 0

    def whole(self, text: str) -> Any:
        loader = yaml.SafeLoader(text)  # it reads the first characters already
        try:
            node = loader.get_single_node()
            self.construct = loader.construct_object
            value = None if node is None else self.value(node, self.at)
        finally:
            loader.dispose()
        if self.mistakes:
            raise ConfigError(*self.mistakes)
        return value

    def line(self, mark: yaml.Mark | None) -> int | None:
        return mark.line + 1 if mark and self.lines else None

    def stop(self, mark: yaml.Mark | None, message: str, cure: str, at: Path_ | None = None) -> NoReturn:
        at = self.at if at is None else at
        raise ConfigError(*self.mistakes, _mistake(self.place, self.line(mark), key_name(at), message, cure))

    def wrong(self, node: yaml.Node, at: Path_, message: str, cure: str) -> None:
        """Note a mistake beside which the rest can still be read."""
        self.mistakes.append(_mistake(self.place, self.line(node.start_mark), key_name(at), message, cure))

    def value(self, node: yaml.Node, at: Path_) -> Any:
        self.values += 1
        if self.values > MOST_VALUES:
            self.stop(node.start_mark, f"holds more than {MOST_VALUES:,} values", "write less, or fewer aliases", at)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, at)
        if id(node) in self.open:
            self.stop(node.start_mark, "holds itself", "remove the alias", at)
        if len(self.open) >= MOST_LEVELS:
            self.stop(node.start_mark, "is nested too deeply", "remove the nesting", at[:3])
        if node.tag != _GROUPS[type(node)]:
            self.tagged(node, at)
        self.open.add(id(node))
        try:
            return self.mapping(node, at) if isinstance(node, yaml.MappingNode) else self.sequence(node, at)
        finally:
            self.open.discard(id(node))

    def scalar(self, node: yaml.ScalarNode, at: Path_) -> Any:
        text = str(node.value)
        based = node.tag == f"{_TAG}int" and not _DECIMAL.fullmatch(text)
        if based or node.tag in _AS_TEXT or (node.tag == f"{_TAG}float" and ":" in text):
            return text
        if node.tag not in _SCALARS:
            return self.tagged(node, at)
        try:
            return self.construct(node)
        except (ValueError, KeyError, yaml.YAMLError):
            return self.wrong(node, at, "is not what its tag says", "remove the tag")

    def tagged(self, node: yaml.Node, at: Path_) -> None:
        """Refuse a tag. It is not shown: it may be a password that begins with an exclamation mark."""
        cure = "remove it; text that begins with ! stands in quotes, a value from elsewhere is env:NAME or file:/path"
        self.wrong(node, at, "has a YAML tag, which is not read here", cure)

    def sequence(self, node: yaml.Node, at: Path_) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self.origins[*at, index] = Origin(place=self.place, line=self.line(item.start_mark))
            values.append(self.value(item, (*at, index)))
        return values

    def mapping(self, node: yaml.MappingNode, at: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        inherited: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                inherited |= self.inherited(value_node, at)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.wrong(key_node, at, "a key is not text", "write plain keys")
                continue
            key = str(key_node.value)
            if key in result:
                first = self.origins[*at, key].line
                message = "is written twice" + (f"; it stands first at line {first}" if first else "")
                self.wrong(key_node, (*at, key), message, "keep one of the two")
                continue
            self.origins[*at, key] = Origin(place=self.place, line=self.line(key_node.start_mark))
            result[key] = self.value(value_node, (*at, key))
        return inherited | result

    def inherited(self, node: yaml.Node, at: Path_) -> dict[str, Any]:
        """Return what a merge key `<<` brings; keys written beside it win."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for part in nodes:
            value = self.value(part, at)
            if isinstance(value, dict):
                result = value | result
            else:
                self.wrong(part, at, "<< is not a mapping", "merge mappings only")
        return result
