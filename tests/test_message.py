"""Headers on their way through: what is kept, what is dropped."""

from __future__ import annotations

from proxy.errors import Answer
from proxy.message import end_to_end, first, inbound, outbound, own, pairs, values, wire


def test_header_bytes_survive_decoding() -> None:
    """Invalid UTF-8 comes back as the same bytes."""
    raw = ((b"X-A", b"caf\xe9"), (b"x-a", "é".encode()), (b"_u", b""))
    assert tuple((wire(name), wire(value)) for name, value in pairs(raw)) == raw


def test_hop_by_hop_and_named_headers_are_dropped() -> None:
    """What `Connection` names goes too, but never what gives the message its meaning."""
    headers = (
        ("Connection", "close, X-Hop"),
        ("connection", "Content-Type, authorization"),
        ("x-hop", "1"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Proxy-Authorization", "secret"),
        ("Content-Type", "a/b"),
        ("Authorization", "Bearer x"),
        ("Set-Cookie", "1"),
        ("set-cookie", "2"),
        ("Under_Score", "kept"),
    )
    assert [name for name, _ in end_to_end(headers)] == [
        "Content-Type",
        "Authorization",
        "Set-Cookie",
        "set-cookie",
        "Under_Score",
    ]


def test_a_length_beside_chunks_does_not_count() -> None:
    """Both at once is how requests are smuggled."""
    assert end_to_end((("Content-Length", "5"), ("Transfer-Encoding", "chunked"))) == ()


def test_an_upstream_sees_neither_ours_nor_what_is_answered_here() -> None:
    """`x-carryon-*`, `Expect` and `Host` stay here."""
    headers = (("X-Carryon", "off"), ("x-carryon-scope", "a"), ("Expect", "100-continue"), ("Host", "h"), ("A", "1"))
    assert outbound(headers) == (("A", "1"),)


def test_an_upstreams_headers_pass_but_those_in_our_name() -> None:
    """Rules 10.1 and 10.6: only this Carryon says what it did."""
    headers = (("A", "1"), ("Connection", "x-hop"), ("X-Hop", "1"), ("X-Carryon-Action", "pass"), ("x-carry", "2"))
    assert inbound(headers) == (("A", "1"), ("x-carry", "2"))


def test_lookups_ignore_case() -> None:
    """`first` and `values` take the lower-case name."""
    headers = (("Via", "a"), ("VIA", "b"))
    assert values(headers, "via") == ("a", "b")
    assert first(headers, "via") == "a"
    assert first(headers, "x") is None


def test_own_answers_say_what_they_are() -> None:
    """JSON in the dialect's shape, the code as a header, a date."""
    made = own(Answer(status=404, code="PROXY_X", message="m"), "messages")
    names = [name for name, _ in made.headers]
    assert names == ["Content-Type", "Date", "x-carryon-error"]
    assert b'"type": "error"' in bytes(made.body)  # type: ignore[arg-type]
