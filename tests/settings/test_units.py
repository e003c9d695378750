"""The values people write."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from proxy.settings.units import Duration, HeaderName, Regex, Size, base_url


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("150ms", 0.15), ("10s", 10.0), ("1.5s", 1.5), ("5m", 300.0), ("2h", 7200.0), ("7d", 604800.0), (" 3 s ", 3.0)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    """Every unit is understood."""
    assert TypeAdapter(Duration).validate_python(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["10", 10, 1.5, "10x", "s", "-1s", "0s", "1e3s", "", True, None, ["1s"], "10MiB", "9" * 400 + "d"]
)
def test_a_duration_without_a_sound_unit_is_refused(value: object) -> None:
    """A bare number has no unit, so nobody knows what it means."""
    with pytest.raises(ValidationError, match=r"unit|nothing"):
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


@pytest.mark.parametrize("value", ["64", 64, "64MX", "0B", "10s", "MiB"])
def test_a_size_without_a_sound_unit_is_refused(value: object) -> None:
    """64 might be meant in MiB."""
    with pytest.raises(ValidationError, match=r"unit|nothing"):
        TypeAdapter(Size).validate_python(value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1"),
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
        ("http://[::1]:8080/openai", "http://[::1]:8080/openai"),
    ],
)
def test_a_base_url_without_a_path_gets_v1(text: str, url: str) -> None:
    """A path, where there is one, stays."""
    assert base_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "api.openai.com/v1", "ftp://host/v1", "https://", "https:///v1", "https://u:hunter2@host/v1", "https://hunter2@host",
        "https://host/v1?key=hunter2", "https://host/v1#hunter2", "https://host/v1?", "https://host:99999/v1", "https://host/a/../v1",
        "https://host/v 1", "https://hõst/v1", "https://host/v1\n",
    ],
)  # fmt: skip
def test_a_base_url_that_is_more_or_less_than_scheme_host_and_path_is_refused(text: str) -> None:
    """And what it holds is not shown."""
    with pytest.raises(Exception, match=r"credential|http|host|query|character|URL|dot") as refusal:
        base_url(text)
    assert "hunter2" not in str(refusal.value)


def test_a_header_name_is_a_token() -> None:
    """A colon or a space would make another header of it."""
    assert TypeAdapter(HeaderName).validate_python("X-Team-Id") == "X-Team-Id"
    with pytest.raises(ValidationError, match="name of a header"):
        TypeAdapter(HeaderName).validate_python("X-Team: a")


def test_a_regular_expression_must_compile() -> None:
    """A mistake is found at start, not at the first refusal."""
    assert TypeAdapter(Regex).validate_python(r"too (long|big)") == r"too (long|big)"
    with pytest.raises(ValidationError, match="not a regular expression"):
        TypeAdapter(Regex).validate_python("too (long")


@pytest.mark.parametrize("end", ["chat/completions", "responses", "messages", "models", "embeddings/"])
def test_a_pasted_address_of_a_call_is_refused(end: str) -> None:
    """Every request would go to that path twice, and be a bare 404."""
    with pytest.raises(PydanticCustomError, match="path of a call") as caught:
        base_url(f"http://127.0.0.1:8080/v1/{end}")
    assert (caught.value.context or {})["cure"] == "write the base URL only: http://127.0.0.1:8080/v1"
    assert base_url(f"http://{end.partition('/')[0]}.example/my-{end.partition('/')[0]}")
