"""The values people write: durations, sizes, URLs, patterns. Each refusal carries its cure."""

from __future__ import annotations

import math
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

__all__ = ["Duration", "HeaderName", "Regex", "Size", "base_url", "fault"]

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
#: What clients append to a base URL: one that ends so would have it twice.
_ENDPOINT = re.compile(r"/(?:chat/completions|responses|messages|models|embeddings)$")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def fault(message: str, cure: str) -> PydanticCustomError:
    """Return a validation error that carries its cure to whoever reports it."""
    return PydanticCustomError("carryon", "{message}", {"message": message, "cure": cure})


def _amount(value: object, units: dict[str, float] | dict[str, int], cure: str) -> float:
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
    if not amount > 0 or math.isinf(amount):
        raise fault("must be more than nothing", cure)
    return amount


def _duration(value: object) -> float:
    return _amount(value, _SECONDS, "write a duration with its unit: 150ms, 10s, 5m, 2h or 7d")


def _size(value: object) -> int:
    return max(1, int(_amount(value, _BYTES, "write a size with its unit: 512B, 16KiB, 64MiB, 1GiB, 16KB or 64MB")))


def _header_name(value: object) -> object:
    if isinstance(value, str) and not _TOKEN.fullmatch(value):
        raise fault("is not the name of a header", "write a header name such as X-Team-Id")
    return value


def _regex(value: object) -> object:
    try:
        re.compile(value) if isinstance(value, str) else None
    except re.error as error:
        raise fault(
            f"is not a regular expression: {error.msg}", "write a Python regular expression, in single quotes"
        ) from None
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
#: The text of a Python regular expression that compiles.
Regex = Annotated[str, BeforeValidator(_regex)]


def base_url(value: object) -> object:
    """Return an upstream's base URL without a final slash; one without a path gets `/v1` (rule 11.4).

    The value is never echoed: a misplaced credential would stand in it.
    """
    if not isinstance(value, str):
        return value
    cure = "write scheme, host and path only: https://api.example.com/v1"
    if not value.isascii() or not value.isprintable() or " " in value:
        raise fault("holds a character that may not stand in a URL", cure)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise fault("is not a URL", cure) from None
    if parts.scheme not in {"http", "https"}:
        raise fault("does not begin with http:// or https://", cure)
    if parts.username is not None or parts.password is not None:
        raise fault("holds a credential", "take it out of the URL and name it in api_key, best as env:NAME")
    if not parts.hostname or port == 0:
        raise fault("names no host", cure)
    if "?" in value or "#" in value:
        raise fault("holds a query or a fragment", cure)
    path = parts.path.rstrip("/") or "/v1"
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise fault("holds dot segments", cure)
    if _ENDPOINT.search(path):
        cure = "write the base URL only: http://127.0.0.1:8080/v1"
        raise fault("ends in the path of a call, which every request brings along", cure)
    return f"{parts.scheme}://{parts.netloc}{path}"
