"""No regular expression takes much more than linear time, whatever the text: `re` holds the interpreter, and all wait.

Every compiled pattern of `proxy` is collected, and run as the code runs it on long texts made to hurt it: what leads
up to one of its repeats, then what the repeat takes, many times, then what it does not want.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import proxy
from proxy.core.overflow_evidence import bounded, fold

_PARSER = importlib.import_module("re._parser")
_METHODS = {"match", "search", "fullmatch", "findall", "finditer", "sub", "split"}
#: Lengths that are looked at; the first is where suspects are found, the growth of the last ones is what counts.
_SCREEN, _LENGTHS = 2_000, (2_500, 5_000, 10_000, 20_000, 40_000)
#: What takes less than this at a length is not judged there, what takes more at the first is (processor seconds).
_TOO_SHORT, _SUSPECT = 0.005, 0.004
#: A quadratic pattern takes four times as long for twice the length, a linear one twice.
_GROWTH = 3.0
_FILLS = (" ", "a", "1", "\n", "_", "a ", "a_", "<", '"', "'", ". ", "é", "a1 <'\"\n")
_TAILS = ("", "\x01", "\nx")


def _before(text: str) -> str:
    return fold(text)[-70:]  # what `read_numbers` looks at around a number


#: What a pattern sees of a text where that is not all of it, by module and name; the longest beginning counts.
_SEES: dict[str, Callable[[str], str]] = {
    "proxy.core.overflow": fold,
    "proxy.core.overflow_evidence": bounded,
    "proxy.core.overflow_evidence._HTTP_STATUS": lambda text: text[:4],
    "proxy.core.overflow_numbers._CUES": _before,
    "proxy.core.overflow_numbers._BREAK": _before,
    "proxy.core.overflow_numbers._COMPARED": _before,
    "proxy.core.overflow_numbers._TOO": _before,
    # Names of variables are read once, at start, and whoever gives them is nobody's enemy.
    "proxy.settings.layers._OTHER_SERVICE": lambda text: text[:1_000],
}

Found = dict[str, tuple[re.Pattern[Any], set[str]]]


def _held(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value: itself, or in the tables and records in it."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 5:
        inner: Iterable[object] = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            inner = value
        elif is_dataclass(value) and not isinstance(value, type):
            inner = (getattr(value, field.name) for field in fields(value))
        for one in inner:
            yield from _held(one, depth + 1)


def _uses() -> dict[str, set[str]]:
    """The methods that are called on a name: on a private one in its module, on another anywhere in `proxy`."""
    uses: dict[str, set[str]] = defaultdict(set)
    root = Path(proxy.__file__).parent
    for file in root.rglob("*.py"):
        module = ".".join(("proxy", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                of = node.value
                name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
                uses[f"{module}.{name}" if name.startswith("_") else name].add(node.attr)
    return uses


def _collected() -> Found:
    """Every pattern of `proxy` by the module and the name it stands under first, with the methods it is used by."""
    found: Found = {}
    uses, known = _uses(), set()
    for info in pkgutil.walk_packages(proxy.__path__, "proxy."):
        module = importlib.import_module(info.name)
        for name, value in sorted(vars(module).items()):
            for number, pattern in enumerate(_held(value)):
                if (key := (pattern.pattern, pattern.flags)) not in known:
                    known.add(key)
                    alone = isinstance(value, re.Pattern)
                    label = f"{info.name}.{name}" if alone else f"{info.name}.{name}[{number}]"
                    used = uses.get(label if name.startswith("_") else name) if alone else None
                    found[label] = (pattern, used or {"search"})
    return found


# -- texts that hurt --------------------------------------------------------------------------------------------


def _signs(items: Any) -> list[str]:
    """Signs that a set of signs takes, one for each thing it names."""
    kinds = {"DIGIT": "1", "SPACE": " ", "WORD": "a", "NOT_DIGIT": "a", "NOT_SPACE": "a", "NOT_WORD": "-"}
    named: list[str] = []
    for operation, argument in items:
        if str(operation) == "LITERAL":
            named.append(chr(argument))
        elif str(operation) == "RANGE":
            named.append(chr(argument[0]))
        elif str(operation) == "CATEGORY":
            named.append(kinds[str(argument).removeprefix("CATEGORY_")])
    if str(items[0][0]) != "NEGATE":
        return named
    spaces = {" ", "\n"} if " " in named else set()
    return [sign for sign in ("a", " ", "1", "-", "\n", "é") if sign not in {*named, *spaces}]


def _least(sequence: Any) -> str:
    """About the shortest text that a sequence of operations takes."""
    text = ""
    for operation, argument in sequence:
        match str(operation):
            case "LITERAL":
                text += chr(argument)
            case "NOT_LITERAL":
                text += "a" if argument != ord("a") else "b"
            case "ANY":
                text += "a"
            case "IN":
                text += next(iter(_signs(argument)), "")
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                text += _least(argument[2]) * min(argument[0], 100)
            case "SUBPATTERN":
                text += _least(argument[3])
            case "BRANCH":
                text += _least(argument[1][0])
            case "ASSERT":
                text += ""
    return text


def _pumped(body: Any) -> list[str]:
    """What a repeat may take many of."""
    if len(body) == 1 and str(body[0][0]) == "IN":
        return _signs(body[0][1])
    if len(body) == 1 and str(body[0][0]) in {"ANY", "NOT_LITERAL"}:
        return ["a", " ", "1"]
    return [_least(body)]


def _repeats(sequence: Any, led: str = "") -> Iterator[tuple[str, str]]:
    """For each long repeat: what leads up to it, and what it takes."""
    for at, (operation, argument) in enumerate(sequence):
        here = led + _least(sequence[:at])
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                if argument[1] > 50:
                    yield from ((here, pump) for pump in _pumped(argument[2]))
                yield from _repeats(argument[2], here)
            case "SUBPATTERN":
                yield from _repeats(argument[3], here)
            case "BRANCH":
                for branch in argument[1]:
                    yield from _repeats(branch, here)
            case "ASSERT" | "ASSERT_NOT":
                yield from _repeats(argument[1], here)


def _shapes(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """Texts as beginning, what fills them, and end."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    shapes = {("", fill, tail): None for fill in _FILLS for tail in _TAILS[:2]}
    for led, pump in islice(dict.fromkeys(_repeats(_PARSER.parse(source, flags))), 60):
        shapes |= {(led, pump, tail): None for tail in _TAILS}
        shapes |= {("", led + pump, "\x01"): None, ("", f"{led}{pump}{pump} ", "\x01"): None}
    return list(shapes)


def _text(shape: tuple[str, str, str], length: int) -> str:
    led, pump, tail = shape
    return led + pump * (length // max(1, len(pump))) + tail


def _took(run: Callable[[], object], rounds: int = 1) -> float:
    """Seconds of this thread on the processor: others on the machine do not count."""
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        run()
        best = min(best, time.thread_time() - began)
    return best


@lru_cache(maxsize=4_096)
def _seen(place: str, text: str) -> str:
    return _SEES[place](text)


def _runs(label: str, pattern: re.Pattern[Any], methods: set[str], text: str) -> list[Callable[[], object]]:
    place = max((place for place in _SEES if label.startswith(place)), key=len, default="")
    seen: Any = _seen(place, text) if place else text
    subject = seen.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else seen
    empty: Any = b"" if isinstance(subject, bytes) else ""
    uses: dict[str, Callable[[], object]] = {
        "match": lambda: pattern.match(subject),
        "search": lambda: pattern.search(subject),
        "fullmatch": lambda: pattern.fullmatch(subject),
        "findall": lambda: pattern.findall(subject),
        "finditer": lambda: list(pattern.finditer(subject)),
        "sub": lambda: pattern.sub(empty, subject),
        "split": lambda: pattern.split(subject),
    }
    return [uses[method] for method in sorted(methods)]


def _grows(at: Callable[[int], Callable[[], object]]) -> str:
    """What is wrong with the growth of the work with the length, empty for nothing."""
    last, before = 0, 0.0
    for length in _LENGTHS:
        took = _took(at(length), 3)
        if before and took >= _TOO_SHORT and took > before * _GROWTH * length / (2 * last):
            return f"{last} signs took {before * 1e3:.1f} ms, {length} took {took * 1e3:.1f} ms"
        last, before = length, took
    return ""


def _offence(label: str, pattern: re.Pattern[Any], methods: set[str]) -> str:
    """Why a pattern is too slow, empty where it is not: a suspect text is looked at closely, and the slowest one."""
    slowest, worst = 0.0, (("", "a", ""), 0)

    def grown(shape: tuple[str, str, str], number: int) -> str:
        wrong = _grows(lambda length: _runs(label, pattern, methods, _text(shape, length))[number])
        return f"{label} on {shape}: {wrong}" if wrong else ""

    for shape in _shapes(pattern):
        for length in (_SCREEN // 8, _SCREEN):  # what is worse than quadratic comes back from the first alone
            for number, run in enumerate(_runs(label, pattern, methods, _text(shape, length))):
                took = _took(run)
                if took > 10 * _SUSPECT and (took := _took(run)) > 10 * _SUSPECT:
                    return f"{label}: {length} signs of {shape} take {took:.2f} s"
                if took > _SUSPECT and (wrong := grown(shape, number)):
                    return wrong
                if took > slowest:
                    slowest, worst = took, (shape, number)
    return grown(*worst) if slowest > _SUSPECT / 10 else ""


FOUND = _collected()


def _families() -> list[str]:
    return sorted({label.split("[")[0].rpartition(".")[0] for label in FOUND})


@pytest.mark.parametrize("module", _families())
def test_no_pattern_takes_more_than_linear_time(module: str) -> None:
    """Twice the text takes about twice the time, whatever the text."""
    mine = {label: found for label, found in FOUND.items() if label.split("[")[0].rpartition(".")[0] == module}
    assert [wrong for label, (pattern, uses) in mine.items() if (wrong := _offence(label, pattern, uses))] == []


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"^\+\+\+ \s*(\S.*?)\s*$", "finditer"),
        (r"<(?=\s*/?\s*conversation_)", "sub"),
        (r"\w+Error:", "search"),
        (r"<think>.*?</think>", "sub"),
        (r"(\d+) (\d+)\n", "search"),
    ],
)
def test_patterns_that_were_too_slow_are_found(source: str, method: str) -> None:
    """What is quadratic is told from what is not: the patterns that were cured are."""
    assert _offence("old", re.compile(source, re.MULTILINE | re.IGNORECASE), {method})


def test_all_patterns_are_collected() -> None:
    """Those of modules and those in tables, each once; no pattern is compiled where nobody finds it."""
    modules = {"proxy.compaction.files._PATCH", "proxy.core.split._KEY", "proxy.store.index._HEAD"}
    assert modules <= FOUND.keys()
    assert sum("[" in label for label in FOUND) > 100
    local = [
        f"{file.name}:{call.lineno}"
        for file in Path(proxy.__file__).parent.rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "re.compile"
        and isinstance(call.args[0], ast.Constant)
    ]
    assert local == []
