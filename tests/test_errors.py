"""What Carryon says of mistakes and on its own account."""

from __future__ import annotations

import json

import pytest

from proxy.errors import Answer, ConfigError, Mistake, WrongError


def test_a_configuration_error_is_one_readable_block() -> None:
    """Place, key, message, cure; each mistake in turn."""
    first = Mistake(file="c.yaml", line=3, key="listen.port", message="is wrong", cure="mend it")
    error = ConfigError(first, Mistake(key="secret", message="is missing", cure="make one"))
    assert str(error) == "c.yaml:3: listen.port: is wrong\n  cure: mend it\nsecret: is missing\n  cure: make one"
    assert (error.file, error.line, error.key, error.message, error.cure) == (
        "c.yaml",
        3,
        "listen.port",
        "is wrong",
        "mend it",
    )


@pytest.mark.parametrize("dialect", ["chat", "responses", None])
def test_an_answer_has_the_error_shape_of_openai(dialect: str | None) -> None:
    """SDKs read code and message there."""
    body = json.loads(Answer(status=413, code="PROXY_BODY_TOO_LARGE", message="Too large.").body(dialect))
    assert body == {
        "error": {"message": "Too large.", "type": "carryon_error", "param": None, "code": "PROXY_BODY_TOO_LARGE"}
    }


def test_an_answer_has_the_error_shape_of_anthropic() -> None:
    """In the dialect `messages`."""
    body = json.loads(Answer(status=404, code="PROXY_NO_UPSTREAM", message="None.").body("messages"))
    assert body == {
        "type": "error",
        "error": {"type": "carryon_error", "message": "None.", "code": "PROXY_NO_UPSTREAM"},
    }


@pytest.mark.parametrize("status", [500, 200, 429, 302])
def test_no_answer_of_another_status_can_be_built(status: int) -> None:
    """Carryon never answers 500."""
    with pytest.raises(ValueError, match=str(status)):
        Answer(status=status, code="PROXY_X", message="x")


def test_the_code_of_an_answer_is_told_from_upstreams() -> None:
    """By its beginning."""
    with pytest.raises(ValueError, match="PROXY_"):
        Answer(status=404, code="NOT_FOUND", message="x")


def test_a_configuration_error_stays_a_block_whatever_was_written() -> None:
    """What a terminal would obey is replaced; beyond twenty mistakes the rest is counted."""
    odd = Mistake(file="c.yaml", line=1, key="a", message="there is no upstream \x1b[31mred\nb", cure="mend\rit")
    assert str(odd) == "c.yaml:1: a: there is no upstream �[31mred�b\n  cure: mend�it"
    lines = str(ConfigError(*[odd] * 25)).split("\n")
    assert (len(lines), lines[-1]) == (41, "and 5 more; mend these first")
    assert str(ConfigError(*[odd] * 20)).count("\n") == 39


def test_what_is_not_so_is_told_with_what_to_do_and_moves_no_terminal() -> None:
    """As mistakes in the configuration are."""
    assert str(WrongError("no conversation \x1b[2J", "look")) == "no conversation �[2J\n  cure: look"
