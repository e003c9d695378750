"""What all dialects do alike, tried on each of them."""

from __future__ import annotations

import json

import pytest

from proxy.dialects.form import Body, Wire
from tests.dialects.spellings import DIALECTS
from tests.transcripts import spelt

ALL = [dialect for dialect, _ in DIALECTS]


def user(dialect: Wire, text: str) -> object:
    """A user item, as a value."""
    return json.loads(dialect.user(text))


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    "change",
    [
        {"model": None},
        {"model": ""},
        {"model": "a\nb"},
        {"model": 7},
        {"items": None},
        {"items": {}},
        {"items": [1]},
        {"items": [[]]},
    ],
    ids=str,
)
def test_what_cannot_be_split_is_left_alone(dialect: Wire, change: dict[str, object]) -> None:
    """No model, no list of items: the body is passed on as it came."""
    body = {"model": "m", "items": [user(dialect, "a")]} | change
    assert dialect.split(spelt({"model": body["model"], dialect.form.items: body["items"]})) is None


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_key_named_twice_is_left_alone(dialect: Wire) -> None:
    """Nobody knows which of the two the upstream reads."""
    assert dialect.split(b'{"model":"m","%s":[],"%s":[]}' % ((dialect.form.items.encode(),) * 2)) is None


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_summary_request_can_be_split_and_ends_with_the_instruction(dialect: Wire) -> None:
    """It is a body of the same dialect, below no other limit than the one asked for."""
    items = [user(dialect, "a"), json.loads(dialect.assistant("b")), user(dialect, "c")]
    found = dialect.split(spelt({"model": "m", dialect.form.items: items}))
    assert found is not None
    request = dialect.split(dialect.summary_request(found, found.items[:2], "sum up", max_tokens=9))
    assert request is not None
    assert [one.raw for one in request.items] == [*(one.raw for one in found.items[:2]), dialect.user("sum up")]
    assert (request.envelope.output, request.envelope.stream) == (9, False)
    assert dialect.invalid(request.items) is None


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_what_we_write_means_what_it_says(dialect: Wire) -> None:
    """A user's and an assistant's item; half of a cut emoji is spelt as an escape."""
    for made, role in ((dialect.user, "user"), (dialect.assistant, "assistant")):
        said = dialect.said(made("a \ud83d b"))
        assert (said.role, said.text) == (role, "a \ud83d b")


def test_values_are_parsed_when_asked_for() -> None:
    """What is not there, or of another kind, is nothing."""
    raw = b'{"a":"x","n":3,"t":true}'
    body = Body(raw, {"a": (5, 8), "n": (13, 14), "t": (19, 23)})
    assert (body.text("a"), body.count("n"), body.value("t")) == ("x", 3, True)
    assert (body.text("n"), body.count("a"), body.count("t"), body.value("z")) == ("", None, None, None)
    assert ("a" in body, "z" in body, body.raw("n")) == (True, False, b"3")
