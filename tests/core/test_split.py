"""Split, don't parse: every byte accounted for, and nothing that a reader could see otherwise."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core import split
from proxy.core.split import crowded, elements, fields, marks

NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
TEXT = st.text(max_size=6)  # lone surrogates included: JSON can escape them
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
SPACE = st.text(" \t\r\n", max_size=3)


@st.composite
def spelt(draw: st.DrawFn, value: object) -> str:
    """A value as JSON with random white space between the tokens."""

    def pad() -> str:
        return draw(SPACE)

    if isinstance(value, dict):
        pairs = [f"{pad()}{draw(spelt(key))}{pad()}:{pad()}{draw(spelt(inner))}{pad()}" for key, inner in value.items()]
        return "{" + (",".join(pairs) or pad()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(f"{pad()}{draw(spelt(inner))}{pad()}" for inner in value) or pad()) + "]"
    ascii_only = draw(st.booleans()) or not _encodable(value)
    return json.dumps(value, ensure_ascii=ascii_only)


def _encodable(value: object) -> bool:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True


OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5).flatmap(
    lambda value: st.tuples(st.just(value), spelt(value), SPACE, SPACE)
)


@settings(max_examples=80, deadline=None)
@given(OBJECTS)
def test_spans_slice_to_exactly_the_values(made: tuple[dict[str, object], str, str, str]) -> None:
    """Whatever the white space, each span holds its value and nothing around it."""
    value, text, before, after = made
    body = f"{before}{text}{after}".encode()
    found = fields(body)
    assert found is not None
    assert {key: json.loads(body[start:stop]) for key, (start, stop) in found.items()} == value
    assert all(body[start:stop].strip(b" \t\r\n") == body[start:stop] for start, stop in found.values())


@settings(max_examples=80, deadline=None)
@given(st.lists(VALUES, max_size=5).flatmap(lambda value: st.tuples(st.just(value), spelt(value))))
def test_elements_are_the_raw_values_in_order(made: tuple[list[object], str]) -> None:
    """An array comes apart into the client's own bytes."""
    value, text = made
    found = elements(text.encode())
    assert found is not None
    assert [json.loads(raw) for raw in found] == value
    assert all(raw in text.encode() for raw in found)


@settings(max_examples=150, deadline=None)
@given(OBJECTS, st.data())
def test_no_damage_raises(made: tuple[dict[str, object], str, str, str], data: st.DataObject) -> None:
    """A body that is changed anywhere is split or refused, and what is split is what JSON reads."""
    raw = bytearray(made[1].encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b","])
        )
    body = bytes(raw)
    elements(body)
    found = fields(body)
    if found is None:
        return
    try:
        value = json.loads(body)
    except UnicodeDecodeError:
        return  # bytes inside a text that only their reader may judge
    assert {key: json.loads(body[start:stop]) for key, (start, stop) in found.items()} == value


REFUSED = {
    "no object": b"[]",
    "null": b"null",
    "nothing": b"",
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "NaN": b'{"a":NaN}',
    "NaN beside a lone surrogate": b'{"a":"\\ud800","b":[NaN]}',
    "infinity": b'{"a":-Infinity}',
    "text after the end": b'{"a":1}{',
    "a key that is no UTF-8": b'{"\xff":1}',
    "a comma too many": b'{"a":[1,]}',
    "a control character": b'{"a":"\n"}',
    "cut off": b'{"a":"b',
    "a key named twice": b'{"a":1,"b":2,"a":1}',
    "a key named twice, the same value": b'{"a":1,"a":1}',
    "a key named twice, one a prefix": b'{"a":12,"a":1}',
    "a key named twice, once escaped": b'{"messages":[],"\\u006dessages":[]}',
    "a key named twice, the slow way": b'{"a":"\\ud800","a":1}',
    "a number for a key, the slow way": b'{"a":"\\ud800",1:2}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_readers_could_see_otherwise_is_refused(body: bytes) -> None:
    """Nothing that two JSON readers might take for two things is split."""
    assert fields(body) is None


def test_an_escaped_key_is_the_key() -> None:
    """A key is what it means, not how it is written."""
    body = b'{"\\u006dodel" : "x"}'
    assert fields(body) == {"model": (16, 19)}


@pytest.mark.parametrize("text", ['{"a":"\\ud800", "ü" : [1 , "ü"] , "z":1e999}', '{"ü\\ud800":"ü","b":"c"}'])
def test_a_lone_surrogate_goes_the_slow_way_with_the_same_spans(text: str) -> None:
    """What msgspec refuses though it is JSON is split all the same, in bytes and not in characters."""
    body = text.encode()
    found = fields(body)
    assert found is not None
    assert {key: json.loads(body[start:stop]) for key, (start, stop) in found.items()} == json.loads(text)


def test_an_array_with_a_lone_surrogate_comes_apart() -> None:
    """The slow way gives the client's bytes as well."""
    assert elements(b' [ "\\udfff" ,1.0, {"a" : 2}] ') == [b'"\\udfff"', b"1.0", b'{"a" : 2}']
    assert elements(b'["\\udfff"') is None
    assert elements(b'{"a":"\\udfff"}') is None


def test_a_number_too_long_to_compute_is_only_a_span() -> None:
    """Ten thousand digits are never turned into a value."""
    digits = b"1" * 10_000
    assert fields(b'{"a":"\\ud800","n":' + digits + b"}") == {"a": (5, 13), "n": (18, 18 + len(digits))}


@pytest.mark.parametrize("body", [b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b'{"a":' + b'{"a":' * 200_000])
def test_deep_nesting_is_refused_and_not_a_crash(body: bytes) -> None:
    """Depth ends in a refusal."""
    assert fields(body) is None
    assert elements(body[5:]) is None


def test_a_hundred_thousand_elements_come_apart_quickly() -> None:
    """Time grows with size, not with its square."""
    started = time.perf_counter()
    found = elements(b"[" + b",".join([b'{"role":"user"}'] * 100_000) + b"]")
    assert found is not None
    assert len(found) == 100_000
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("odd", ["", '"x":"\\ud800",'])
def test_a_hundred_thousand_keys_come_apart_quickly(odd: str) -> None:
    """Both ways: no step looks at the whole body for one key."""
    body = ("{" + odd + ",".join(f'"ü{n}":{n}' for n in range(100_000)) + "}").encode()
    started = time.perf_counter()
    found = fields(body)
    assert found is not None
    start, stop = found["ü99999"]
    assert body[start:stop] == b"99999"
    assert time.perf_counter() - started < 4


@pytest.mark.parametrize("odd", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_what_is_not_utf8_is_no_json(odd: bytes) -> None:
    """Wherever it stands: nothing of such a body is rewritten."""
    assert fields(b'{"model": "m", "user": "%s"}' % odd) is None
    assert fields(b'{"model": "m", "%s": 1}' % odd) is None
    assert fields(b'{"model": "m", "user": ["%s"], "x": "\\ud800"}' % odd) is None
    assert fields('{"user": "é"}'.encode()) == {"user": (9, 13)}


def _counted(value: object) -> int:
    """The marks of a value's JSON that stand outside strings."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(0, len(value) - 1) + sum(map(_counted, inner))  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(TEXT | st.text('\\\\",[{', max_size=6), VALUES, max_size=5), st.booleans(), st.integers(1, 9))
def test_a_crowd_is_told_without_reading_it(value: dict[str, object], ascii_only: bool, piece: int) -> None:  # noqa: FBT001 - drawn
    """Wherever the pieces end in which it is counted: in a string, behind a backslash, in a run of them."""
    body = json.dumps(value, ensure_ascii=ascii_only or not _encodable(value)).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "_SLICE", piece)
        assert not crowded(body, _counted(value))
        assert crowded(body, _counted(value) - 1)
    assert marks(body) >= _counted(value)


def test_a_crowd_is_told_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting ends where there is too much; megabytes of text with commas are no crowd."""
    looked: list[int] = []
    assert not crowded(b'{"a":"' + b"a, [b], {c} " * 100_000 + b'"}', 100)
    monkeypatch.setattr(split, "_SLICE", 1_000)
    body = b"[" + b"[]," * 1_000_000 + b"[]]"

    class Noted(bytes):
        def __getitem__(self, at):  # noqa: ANN001, ANN204 - as of `bytes`
            looked.append(0)
            return super().__getitem__(at)

    assert crowded(Noted(body), 10_000)
    assert len(looked) < 100


def test_more_keys_than_anybody_names_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither way: finding them would take seconds."""
    monkeypatch.setattr(split, "_OBJECT", None)
    monkeypatch.setattr(split, "_slow_fields", None)
    assert fields(b"{" + b'"k":1,' * 250_000 + b'"k":1}') is None
