"""The values people write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.settings.units import Duration, FilePath, HeaderName, Secret, Size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("150ms", 0.15), ("10s", 10.0), ("1.5s", 1.5), ("5m", 300.0), ("2h", 7200.0), ("7d", 604800.0), (" 3 s ", 3.0)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    """Every unit is understood."""
    assert TypeAdapter(Duration).validate_python(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    ["10", 10, 1.5, "10x", "s", "-1s", "0s", "1e3s", "", True, None, ["1s"], "10MiB", "9" * 400 + "d", "11000d", "٣s"],
)
def test_a_duration_without_a_sound_unit_is_refused(value: object) -> None:
    """A bare number has no unit, so nobody knows what it means."""
    with pytest.raises(ValidationError, match=r"unit|nothing|more than"):
        TypeAdapter(Duration).validate_python(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 67_108_864),
        ("1GiB", 1_073_741_824),
        ("16KB", 16_000),
        ("16kb", 16_000),
        ("512B", 512),
        ("1.5KiB", 1536),
    ],
)
def test_a_size_is_bytes(text: str, size: int) -> None:
    """Powers of 1,024 and of 1,000 are told apart."""
    assert TypeAdapter(Size).validate_python(text) == size


@pytest.mark.parametrize("value", ["64", 64, "64MX", "0B", "10s", "MiB", "9999TiB", "64,5MiB"])
def test_a_size_without_a_sound_unit_is_refused(value: object) -> None:
    """64 might be meant in MiB."""
    with pytest.raises(ValidationError, match=r"unit|nothing|more than"):
        TypeAdapter(Size).validate_python(value)


def test_a_header_name_is_a_token() -> None:
    """A colon or a space would make another header of it."""
    assert TypeAdapter(HeaderName).validate_python("X-Team-Id") == "X-Team-Id"
    with pytest.raises(ValidationError, match="name of a header"):
        TypeAdapter(HeaderName).validate_python("X-Team: a")


def test_a_path_may_begin_at_home_and_names_something() -> None:
    """That of a user who is not there, and an empty one, are refused."""
    path = TypeAdapter(FilePath).validate_python
    assert path("~/state") == Path.home() / "state"
    for text in ("", " ", "a\0b", "~nobody-of-that-name/x"):
        with pytest.raises(ValidationError, match=r"names no file|home of nobody"):
            path(text)


def test_a_secret_that_is_empty_is_refused() -> None:
    """It would be taken for none."""
    secret = TypeAdapter(Secret).validate_python
    assert secret("x").get_secret_value() == "x"
    for text in ("", "  ", "\n"):
        with pytest.raises(ValidationError, match="is empty"):
            secret(text)
