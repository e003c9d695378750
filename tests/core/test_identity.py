"""Whose conversation, and digests that are equal exactly where the JSON means the same."""

from __future__ import annotations

import base64
import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.identity import (
    SCOPE_HEADERS,
    canonical,
    conversation,
    covered_digests,
    credentials,
    framed,
    load_unique,
    opaque,
    scope,
    tenant,
)
from tests.transcripts import says, transcript, user


def same(one: str, other: str) -> bool:
    """Whether two JSON texts have one canonical form."""
    return canonical(load_unique(one)) == canonical(load_unique(other))


def test_fields_are_framed_and_not_concatenated() -> None:
    """Where one field ends and the next begins is part of the digest."""
    assert framed(("ab", "c")) != framed(("a", "bc")) != framed(("abc",))
    assert framed(("a", "")) != framed(("a",))
    assert framed(("1:a",)) != framed(("", "a"))
    assert framed(("\ud800",)) != framed(("?",))


EQUAL = [
    ("1.0", "1"),
    ("1e2", "100"),
    ("-0.0", "0"),
    ("0e999999999", "0"),
    ("1.50", "15e-1"),
    ("10000000000000000000000000", "1e25"),
    ("1E+5", "100000"),
    ('{"a":1,"b":2}', '{ "b" : 2.0, "a":1 }'),
    ('"\\u00e9"', '"é"'),
]
UNEQUAL = [
    ("1.00000000000000000000000000000000001", "1"),
    ("123456789012345678901234567890", "123456789012345678901234567891"),
    ("1e400", "1e401"),
    ("0.1", "0.10000000000000001"),
    ("1", "true"),
    ("1", '"1"'),
    ("1.5", '{"#":"15e-1"}'),
    ('{"#":1}', '{"##":1}'),
    ("-1.5", "1.5"),
    ('{"a":null}', "{}"),
    ("[1,2]", "[2,1]"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_two_spellings_of_one_value_are_equal(one: str, other: str) -> None:
    """Key order, white space, escapes and the spelling of numbers do not count."""
    assert same(one, other)


@pytest.mark.parametrize(("one", "other"), UNEQUAL)
def test_two_values_are_never_equal(one: str, other: str) -> None:
    """No digit is rounded away, no type confused."""
    assert not same(one, other)


DIGITS = st.text("0123456789", min_size=1, max_size=25)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """A JSON number of any spelling."""
    whole = draw(DIGITS).lstrip("0") or "0"
    fraction = draw(st.one_of(st.just(""), DIGITS.map(lambda digits: f".{digits}")))
    exponent = draw(st.one_of(st.just(""), st.integers(-40, 40).map(lambda n: f"e{n}"), st.just("E+3")))
    return f"{draw(st.sampled_from(['', '-']))}{whole}{fraction}{exponent}"


@settings(deadline=None)
@given(numbers(), numbers(), st.integers(-5, 5))
def test_numbers_are_equal_exactly_where_their_values_are(one: str, other: str, shift: int) -> None:
    """Checked against exact decimal arithmetic."""
    assert same(one, other) == (Decimal(one) == Decimal(other))
    shifted = f"{Decimal(one).scaleb(shift):f}"
    assert same(one, shifted) == (Decimal(one) == Decimal(shifted))


@pytest.mark.parametrize(
    "text", ["1e999999", "1e999999999999999999999999", "-1e-999999", "1" * 100_000, "1." + "0" * 100_000]
)
def test_no_number_takes_long(text: str) -> None:
    """A number is known by its digits; nobody computes it."""
    started = time.perf_counter()
    assert same(text, text)
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '[{"a":{"b":1,"b":2}}]', "NaN", "[-Infinity]", "1e" + "9" * 5_000, "[" * 100_000, "{", b"\xff"],
)
def test_what_cannot_be_read_exactly_is_refused(text: str | bytes) -> None:
    """A key named twice, no JSON, depth without end: always a ValueError, nothing else."""
    with pytest.raises(ValueError):  # noqa: PT011 - its kind is the interface
        load_unique(text)


def test_a_value_too_deep_to_dump_is_refused() -> None:
    """Depth ends in a ValueError here as well."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="deep"):
        canonical(value)
    while value:  # taken apart by hand: its destruction would recurse as well
        value = value[0]


def test_tenants_are_opaque_and_depend_on_the_secret() -> None:
    """Nobody without the secret can tell whose they are; nobody at all is `anonymous`."""
    one = tenant(b"secret", ("authorization", "Bearer k"))
    assert len(one) == 32
    assert one != tenant(b"other", ("authorization", "Bearer k"))
    assert one != tenant(b"secret", ("authorization", "Bearer l"))
    assert tenant(b"secret", ()) == "anonymous"


def jwt(**claims: object) -> str:
    """A bearer token with these claims and no valid signature."""
    packed = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "x"}, claims)
    ]
    return ".".join((*packed, "sig"))


def who(
    *headers: tuple[str, str], query: str = "", by: str = "credential", header: str | None = None
) -> tuple[str, ...]:
    """The identity of a request with these headers."""
    return credentials(headers, query, by=by, header=header)


def test_every_credential_counts_in_full_length() -> None:
    """All credential headers and the query's key, whatever their order; other headers are nobody."""
    both = who(("Authorization", "Bearer a"), ("X-Api-Key", "b"))
    assert both == who(("x-api-key", "b"), ("authorization", "Bearer a"))
    assert len({both, who(("authorization", "Bearer a")), who(("api-key", "b")), who(("x-goog-api-key", "b"))}) == 4
    assert who(query="alt=sse&key=a") != who(query="key=b") != ()
    assert who(query="k%65y=a") == who(query="key=a")
    assert who(("user-agent", "x"), query="monkey=1") == ()
    long = "k" * 5_000
    assert who(("authorization", long + "1")) != who(("authorization", long + "2"))


def test_an_hourly_token_keeps_its_owner() -> None:
    """With `jwt`, issuer and subject are who it is; every other token falls back to the credential."""
    first, second = (("authorization", f"Bearer {jwt(iss='i', sub='s', exp=exp)}") for exp in (1, 2))
    assert who(first, by="jwt") == who(second, by="jwt") == ("jwt", "i", "s")
    assert who(first) != who(second)
    nameless = (jwt(iss="", sub=""), jwt(iss="i", sub=""), jwt(iss="", sub="s"))
    for odd in ("k", "a.b.c", "é.é.é", jwt(iss="i"), jwt(iss=1, sub="s"), "a." + "W" * 9 + ".c", *nameless):
        header = ("authorization", f"Bearer {odd}")
        assert who(header, by="jwt") == who(header)


def test_the_gateways_header_or_nothing_may_tell_tenants_apart() -> None:
    """`header` reads the operator's header, `none` makes one tenant of all."""
    assert who(("X-Team", "a"), by="header", header="x-team") == ("header", "a")
    assert who(("authorization", "k"), by="header", header="x-team") == ()
    assert who(("authorization", "k"), by="none") == who(by="none") != ()


@pytest.mark.parametrize("value", ["", " ", "Bearer", "bearer ", "Basic"])
def test_an_empty_credential_is_none(value: str) -> None:
    """A client without a key sends a scheme alone, a gateway an empty header: nobody, beside others or not."""
    for name in ("Authorization", "x-api-key", "api-key"):
        assert who((name, value)) == ()
        assert who((name, value), by="jwt") == ()
        assert who((name, value), ("x-goog-api-key", "k")) == who(("x-goog-api-key", "k"))
    assert who(query="key=") == who(query="key") == ()


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_header_of_the_gateway_names_nobody(value: str) -> None:
    """Else all whom the gateway does not know would be one team."""
    assert who(("X-Team", value), by="header", header="x-team") == ()


def test_the_first_valid_id_is_the_scope() -> None:
    """Headers in their order, then the body's ids; what is not visible ASCII is passed over."""
    assert scope({"session-id": "b", "x-session-id": "a"}, ["c"]) == "a"
    assert scope({"x-session-id": "not visible", "session-id": "b"}, []) == "b"
    assert scope({"x-session-id": "x" * 257}, ["", "é", "c"]) == "c"
    assert scope({"user": "u"}, []) == ""
    assert SCOPE_HEADERS[0] == "x-carryon-scope"


def named(*messages: object, **changed: str) -> str:
    """The conversation of these messages."""
    parts = {"tenant": "t", "upstream": "u", "dialect": "chat", "scope": "", **changed}
    return conversation(transcript=transcript(*messages), **parts)


def test_a_conversation_is_its_first_three_messages() -> None:
    """What follows the opening, and empty messages in it, do not count; the opening and all else do."""
    opening = (user("a"), says("b"), user("c"))
    one = named(*opening)
    assert one.startswith("t.")
    assert one == named(*opening, says("d")) == named(user("a"), says(""), *opening[1:])
    others = [named(user("a"), says("b"), user("x")), named(*opening[:2])]
    others += [named(*opening, **{key: "x"}) for key in ("tenant", "upstream", "dialect", "scope")]
    assert len({one, *others}) == 7


DIGESTS = st.lists(st.binary(min_size=32, max_size=32), max_size=12)


@given(DIGESTS, st.sets(st.integers(-2, 14)), st.data())
def test_a_covered_digest_binds_to_every_item_before_it(
    digests: list[bytes], wanted: set[int], data: st.DataObject
) -> None:
    """It is the same however many others are asked for, and another when one item before it changes."""
    found = covered_digests(digests, wanted)
    assert set(found) == {count for count in wanted if 0 < count <= len(digests)}
    assert all(found[count] == covered_digests(digests[:count], [count])[count] for count in found)
    if found:
        at = data.draw(st.integers(0, len(digests) - 1))
        other = covered_digests([*digests[:at], b"x" * 32, *digests[at + 1 :]], wanted)
        assert all((other[count] == found[count]) == (count <= at) for count in found if digests[at] != b"x" * 32)


def test_an_opaque_id_does_not_tell_the_tenant() -> None:
    """Logs and headers name the conversation only (rule 13.2)."""
    one = named(user("a"))
    assert one == f"t.{opaque(one)}"
    assert opaque("") == ""
