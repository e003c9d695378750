"""Regular expressions from the configuration: they compile, say something, and end in time.

Python's engine tries every way to divide a text among repeats. Where a repeat holds nothing but another one,
such as `(a+)+`, the ways double with every letter, and one long message would hold up all requests.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

from proxy.settings.units import fault

__all__ = ["regex"]

#: The parser of `re`; its result is lists of (operation, arguments).
_PARSER = importlib.import_module("re._parser")
_LONGEST = 2_000
_CURE = "write a Python regular expression, in single quotes"
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
_GROUPS = {"SUBPATTERN", "ATOMIC_GROUP"}


def regex(value: object) -> object:
    """Return the text of a regular expression that may be used on any text."""
    if not isinstance(value, str):
        return value
    if len(value) > _LONGEST:
        raise fault(f"is longer than {_LONGEST:,} characters", "write several shorter ones")
    try:
        with warnings.catch_warnings(action="ignore"):
            compiled, tree = re.compile(value), _PARSER.parse(value)
    except re.error as error:
        raise fault(f"is not a regular expression: {error.msg}", _CURE) from None
    except (OverflowError, RecursionError, ValueError, MemoryError):
        raise fault("is not a regular expression: it repeats or nests too much", _CURE) from None
    if compiled.search("") is not None:
        raise fault("matches every text, even an empty one", "write words that must be there")
    if any(_runs_away(operation) for operation in _all(tree)):
        cure = "do not repeat what is itself a repeat: (a+)+ is a+, (.*a)+ is .*a"
        raise fault("repeats a repeat, which takes forever on some texts", cure)
    return value


def _inner(arguments: Any) -> Iterator[Any]:
    """Yield the sequences within an operation's arguments."""
    if isinstance(arguments, _PARSER.SubPattern):
        yield arguments
    elif isinstance(arguments, tuple | list):
        for part in arguments:
            yield from _inner(part)


def _all(sequence: Any) -> Iterator[Any]:
    for operation in sequence:
        yield operation
        for inner in _inner(operation[1]):
            yield from _all(inner)


def _endless(operation: Any) -> bool:
    return str(operation[0]) in _REPEATS and operation[1][1] > 100


def _runs_away(operation: Any) -> bool:
    return _endless(operation) and _ambiguous(operation[1][2])


def _ambiguous(body: Any) -> bool:
    """Whether one text can be divided among rounds of this body in many ways."""
    repeats = [one for one in body if _endless(one) or _grouped(one)]
    if repeats and any(_any(one) for one in body):
        return True  # a dot beside a repeat may be part of it
    needed = [one for one in body if _PARSER.SubPattern(body.state, [one]).getwidth()[0]]
    return bool(repeats) and (not needed or (len(needed) == 1 and needed[0] in repeats))


def _any(operation: Any) -> bool:
    return str(operation[0]) == "ANY" or (_endless(operation) and str(operation[1][2][0][0]) == "ANY")


def _grouped(operation: Any) -> bool:
    name, arguments = operation
    return str(name) in {*_GROUPS, "BRANCH"} and any(map(_ambiguous, _inner(arguments)))
