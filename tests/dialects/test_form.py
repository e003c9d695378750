"""What all dialects do alike, tried on each of them."""

from __future__ import annotations

import json

import pytest

from proxy.dialects import form
from proxy.dialects.chat import CHAT
from proxy.dialects.form import Wire
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
@pytest.mark.parametrize(
    ("item", "times"),
    [
        (b'{"role":"user","content":"a"}', 20_001),
        (b'{"role":"user","content":[' + b"{}," * 300_000 + b"{}]}", 1),
        (b'{"role":"user","content":[' + b"[]," * 300_000 + b"[]]}", 1),
        (b'{"role":"user","content":[' + b"1.5," * 300_000 + b"1]}", 1),
        (b'{"role":"user","content":"a","x":{' + b'"a":"b",' * 300_000 + b'"c":0}}', 1),
    ],
    ids=["items", "parts", "lists", "numbers", "keys"],
)
def test_what_is_too_much_for_a_conversation_is_left_alone(
    dialect: Wire, item: bytes, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's session has as many items or values: it is told before the first of them is read."""

    def never(_: Wire, raw: bytes) -> None:
        pytest.fail(f"read {raw[:40]!r}")

    monkeypatch.setattr(type(dialect), "facts", never)
    raw = b'{"model":"m","%s":[%s]}' % (dialect.form.items.encode(), b",".join([item] * times))
    assert dialect.split(raw) is None


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_long_session_is_no_crowd(dialect: Wire) -> None:
    """Thousands of items, and megabytes of text with all that JSON is made of."""
    items = [user(dialect, f'{n}: [{{"a": 1, "b": [2, 3]}}, \\ {{}}]' + ", [x]" * 200) for n in range(4_000)]
    found = dialect.split(spelt({"model": "m", dialect.form.items: items}))
    assert found is not None
    assert len(found.items) == 4_000


def test_few_places_of_a_stream_s_end_are_tried_for_its_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """And little of each: a tail full of them would be parsed again and again."""
    tried: list[int] = []
    monkeypatch.setattr(form.json.JSONDecoder, "raw_decode", lambda _, text: tried.append(len(text)) or ({}, 0))
    assert CHAT.usage(b'"usage":[' * 7_000 + bytes(40_000), sse=True) is None
    assert len(tried) == 16
    assert max(tried) <= 1 << 14


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
@pytest.mark.parametrize("alone", [True, False])
def test_a_summary_request_to_another_model_has_none_of_the_conversation_s_settings(
    dialect: Wire, *, alone: bool
) -> None:
    """They were chosen for that model, and name its user and cache; alone, the instruction is all that is sent."""
    form = dialect.form
    settings = {key: f"own-{key}" for key in (*form.kept_for_summary, "metadata", "temperature", "x")}
    limits = dict.fromkeys(form.limits, 7_777)
    thinking = {"type": "enabled", "budget_tokens": 5_000}
    body = {**settings, **limits, "thinking": thinking, "model": "m", "store": True, "stream": True}
    found = dialect.split(spelt({**body, form.items: [user(dialect, "a"), user(dialect, "b")]}))
    assert found is not None
    raw = dialect.summary_request(found, found.items, "sum up", max_tokens=9, alone=alone, model="gpt-5")
    sent = json.loads(raw)
    read = set() if alone else {*form.read_by_model} & {*form.kept_for_summary}
    assert sent["model"] == "gpt-5"
    assert len(sent[form.items]) == (1 if alone else 3)
    assert {*sent} - {"tool_choice"} - read == {"model", form.items, "store", "stream", form.limits[0]}
    assert sent[form.limits[0]] == 9
    assert ("own-" in raw.decode()) is bool(read)


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_what_we_write_means_what_it_says(dialect: Wire) -> None:
    """A user's and an assistant's item; half of a cut emoji is spelt as an escape."""
    for made, role in ((dialect.user, "user"), (dialect.assistant, "assistant")):
        said = dialect.said(made("a \ud83d b"))
        assert (said.role, said.text) == (role, "a \ud83d b")


def test_an_item_with_ids_as_long_as_books_is_not_remembered() -> None:
    """What is remembered is bounded by count: what each takes must be small."""
    for length, held in ((1_000, 1), (100_000, 0)):
        wire = type(CHAT)()
        call = {"id": "c" * length, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        found = wire.item(json.dumps({"role": "assistant", "tool_calls": [call]}).encode())
        assert found is not None
        assert found.facts.opens == ("c" * length,)
        assert len(wire._known) == held
