"""The values people write: durations, sizes, names of headers, paths, secrets. Each refusal carries its cure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError

__all__ = ["Duration", "FilePath", "HeaderName", "Secret", "Size", "fault"]

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
#: The largest that means anything: what Redis and the clock can count with room to spare (seconds, bytes).
_LONGEST = 10 * 366 * 86400.0
_LARGEST = 1024.0**5
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def fault(message: str, cure: str) -> PydanticCustomError:
    """Return a validation error that carries its cure to whoever reports it."""
    return PydanticCustomError("carryon", "{message}", {"message": message, "cure": cure})


def _amount(value: object, units: dict[str, float] | dict[str, int], most: float, cure: str) -> float:
    """Return a positive amount in the smallest unit, from text such as `1.5s`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise fault("is not an amount with a unit", cure)
    match = _AMOUNT.fullmatch(str(value).strip())
    if match is None:
        raise fault("is not an amount with a unit", cure)
    number, unit = match.groups()
    if not unit:
        raise fault(f"{number} has no unit", cure)
    if unit.lower() not in units:
        raise fault(f"{unit} is not a unit here", cure)
    amount = float(number) * units[unit.lower()]
    if not amount > 0:
        raise fault("must be more than nothing", cure)
    if amount > most:
        raise fault("is more than can be meant", cure)
    return amount


def _duration(value: object) -> float:
    return _amount(value, _SECONDS, _LONGEST, "write a duration with its unit: 150ms, 10s, 5m, 2h or 7d")


def _size(value: object) -> int:
    cure = "write a size with its unit: 512B, 16KiB, 64MiB, 1GiB, 16KB or 64MB"
    return max(1, int(_amount(value, _BYTES, _LARGEST, cure)))


def _header_name(value: object) -> object:
    if isinstance(value, str) and not _TOKEN.fullmatch(value):
        raise fault("is not the name of a header", "write a header name such as X-Team-Id")
    return value


def _path(value: object) -> object:
    cure = "write a path, whole or from ~"
    if isinstance(value, str) and (not value.strip() or "\0" in value):
        raise fault("names no file or directory", cure)
    if not isinstance(value, str) or not value.startswith("~"):
        return value
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise fault("begins in the home of nobody", cure) from None


def _filled(value: object) -> object:
    """Refuse an empty secret: it would be taken for none, and what it protects would be open."""
    if isinstance(value, str) and not value.strip():
        raise fault("is empty", "write a value, best as env:NAME or file:/path, or remove the key")
    return value


#: Seconds, from text with a unit.
Duration = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+(\.\d+)?\s*(ms|s|m|h|d)|env:.+|file:.+)$"}),
]
#: Bytes, from text with a unit.
Size = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+(\.\d+)?\s*([KkMmGgTt]i?)?[Bb]|env:.+|file:.+)$"}),
]
#: The name of an HTTP header.
HeaderName = Annotated[str, BeforeValidator(_header_name)]
#: A path, from the home of its user where it begins with `~`.
FilePath = Annotated[Path, BeforeValidator(_path)]
#: A text that is never shown.
Secret = Annotated[SecretStr, BeforeValidator(_filled)]
