"""Token counts from packaged files: no download, and no text makes the encoder give up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiktoken

from proxy import tokens
from proxy.tokens import count_with, encoding_for

COUNT = count_with("o200k_base")


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("qwen3", "o200k_base"),
        ("", "o200k_base"),
    ],
)
def test_old_models_have_the_old_encoding(model: str, encoding: str) -> None:
    """And every encoding named is one that is packaged."""
    assert encoding_for(model) == encoding
    assert count_with(encoding)("hello world") == 2


def test_counts_are_the_encoders() -> None:
    """Plain text, no text, other scripts."""
    real = tiktoken.get_encoding("o200k_base")
    for text in ("", "hello", "def f(x):\n    return x", "für das Ökosystem", "你好世界", "🙂" * 50):
        assert COUNT(text) == len(real.encode_ordinary(text))


def test_special_tokens_in_text_are_text() -> None:
    """Nobody can make a message weigh less, or raise, with them."""
    assert COUNT("<|endoftext|>") > 1


def test_a_lone_surrogate_is_counted() -> None:
    """Text from JSON may hold one."""
    assert COUNT("a\ud800b") > 0


def test_a_million_spaces_are_counted_in_reasonable_time() -> None:
    """Uncut, this text makes the encoder panic."""
    started = time.perf_counter()
    assert 0 < COUNT(" " * 1_000_000) < 1_000_000
    assert time.perf_counter() - started < 10


def test_a_long_text_is_counted_in_pieces() -> None:
    """The count of the whole, but for the few tokens at the seams."""
    text = "The quick brown fox jumps over the lazy dog. " * 5_000
    real = len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))
    assert abs(COUNT(text) - real) <= 2 * (len(text) // 100_000 + 1)


class Panicking:
    """An encoder that gives up in its own way."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def encode_ordinary(self, text: str) -> list[int]:
        """Give up."""
        raise self.error


def test_no_piece_is_longer_than_the_encoder_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand characters at most, and none is lost."""
    pieces: list[str] = []

    class Noting:
        def encode_ordinary(self, text: str) -> list[int]:
            pieces.append(text)
            return [0] * len(text)

    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: Noting())
    text = "abcdefg" * 50_000
    assert count_with.__wrapped__("o200k_base")(text) == len(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) == 100_000


def test_a_text_the_encoder_gives_up_on_is_estimated() -> None:
    """Its panic is no `Exception`, and ends no request."""

    class PanicException(BaseException):
        pass

    for error in (PanicException(), ValueError(), MemoryError()):
        assert tokens._count(Panicking(error), "abc" * 10) == 11  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_is_not_swallowed(error: BaseException) -> None:
    """Whoever stops the process means it."""
    with pytest.raises(type(error)):
        tokens._count(Panicking(error), "abc")  # type: ignore[arg-type]


def test_nothing_is_downloaded_and_litellm_is_not_imported() -> None:
    """With no network at all, in a fresh process, the count is there and litellm's four seconds are not spent."""
    script = (
        "import socket, sys\n"
        "def no(*a, **k): raise SystemExit('network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = no\n"
        "from proxy.tokens import count_with\n"
        "new, old = count_with('o200k_base'), count_with('cl100k_base')\n"
        "print(new('hello world'), old('hello world'), 'litellm' in sys.modules)"
    )
    root = str(Path(tokens.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "TIKTOKEN_CACHE_DIR": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["2", "2", "False"]
