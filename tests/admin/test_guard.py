"""Who may see more than probes: by the name that was asked, the page that asks, and the token (rule 13.4)."""

from __future__ import annotations

import pytest

from proxy.admin.guard import Guard
from proxy.message import Headers
from proxy.settings.shape import Admin

TOKEN = "a-token-of-some-length"
LOCAL = Guard(host="127.0.0.1")
SECRET = Guard(host="127.0.0.1", token=TOKEN)
ABROAD = Guard(host="0.0.0.0", token=TOKEN)
NAMED = Guard(host="10.1.2.3", hosts=("admin.example.com", "Other.Example"), token=TOKEN)


def status(guard: Guard, *headers: tuple[str, str]) -> int:
    """What is answered: 200 stands for what the guard lets through."""
    refused = guard.refusal(headers)
    return refused.status if refused else 200


def host(name: str, *more: tuple[str, str]) -> Headers:
    """The headers of a request for a name."""
    return (("Host", name), *more)


@pytest.mark.parametrize(
    ("guard", "name", "known"),
    [
        (LOCAL, "127.0.0.1:8788", True),
        (LOCAL, "127.0.0.1", True),
        (LOCAL, "127.9.9.9:1", True),
        (LOCAL, "localhost:8788", True),
        (LOCAL, "LOCALHOST.", True),
        (LOCAL, "[::1]:8788", True),
        (LOCAL, "10.1.2.3", False),
        (LOCAL, "evil.example", False),
        (LOCAL, "localhost.evil.example", False),
        (LOCAL, "127.0.0.1.evil.example", False),
        (LOCAL, "evil.example:8788", False),
        (LOCAL, "localhost@evil.example", False),
        (LOCAL, "localhost:80:80", False),
        (LOCAL, "localhost:port", False),
        (LOCAL, "[::1", False),
        (LOCAL, "[localhost]", False),
        (LOCAL, "", False),
        (LOCAL, "0x7f.1", False),
        (ABROAD, "192.0.2.7:8788", True),
        (ABROAD, "[2001:db8::1]:8788", True),
        (ABROAD, "evil.example", False),
        (NAMED, "10.1.2.3:8788", True),
        (NAMED, "10.1.2.4", False),
        (NAMED, "admin.example.com", True),
        (NAMED, "Admin.Example.com:443", True),
        (NAMED, "other.example", True),
        (NAMED, "sub.admin.example.com", False),
    ],
)
def test_only_names_of_this_listener_are_answered(guard: Guard, name: str, *, known: bool) -> None:
    """A name that somebody points at this address (DNS rebinding) is none of them; an address cannot be forged."""
    shown = ("Authorization", f"Bearer {TOKEN}")
    assert status(guard, *host(name, shown)) == (200 if known else 403)


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    """Nobody can tell which one a browser meant."""
    assert status(LOCAL) == 403
    assert status(LOCAL, ("Host", "localhost"), ("host", "evil.example")) == 403
    assert status(LOCAL, ("Host", "localhost"), ("Host", "localhost")) == 403


@pytest.mark.parametrize(
    ("name", "origin", "ours"),
    [
        ("localhost:8788", "http://localhost:8788", True),
        ("LocalHost:8788", "http://localhost:8788", True),
        ("localhost", "http://localhost:80", True),
        ("localhost:80", "http://localhost", True),
        ("localhost", "https://localhost:443", True),
        ("localhost:8788", "http://localhost:3000", False),
        ("localhost:80", "http://localhost:443", False),
        ("localhost:8788", "http://127.0.0.1:8788", False),
        ("localhost:8788", "https://evil.example", False),
        ("localhost:8788", "null", False),
        ("localhost:8788", "", False),
        ("localhost:8788", "file://localhost:8788", False),
        ("localhost:8788", "http://localhost:8788/", False),
        ("localhost:8788", "http://localhost:8788@evil.example", False),
        ("localhost:8788", "http://[", False),
    ],
)
def test_a_page_of_another_origin_is_refused(name: str, origin: str, *, ours: bool) -> None:
    """Another port of this machine is another origin; what shows none is no page."""
    assert status(LOCAL, *host(name, ("Origin", origin))) == (200 if ours else 403)


def test_one_foreign_origin_among_several_is_enough() -> None:
    """No order of headers opens the door."""
    both = (("Origin", "http://localhost:1"), ("Origin", "https://evil.example"))
    assert status(LOCAL, *host("localhost:1", *both)) == 403


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((("Authorization", f"Bearer {TOKEN}"),), 200),
        ((("authorization", f"bearer  {TOKEN} "),), 200),
        ((), 401),
        ((("Authorization", TOKEN),), 401),
        ((("Authorization", f"Basic {TOKEN}"),), 401),
        ((("Authorization", "Bearer "),), 401),
        ((("Authorization", f"Bearer {TOKEN}x"),), 401),
        ((("Authorization", f"Bearer {TOKEN[:-1]}"),), 401),
        ((("Authorization", "Bearer \udcff"),), 401),
        ((("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")), 401),
        ((("X-Api-Key", TOKEN),), 401),
        ((("Cookie", f"token={TOKEN}"),), 401),
    ],
)
@pytest.mark.parametrize("guard", [SECRET, ABROAD])
def test_the_token_is_wanted_in_one_header(guard: Guard, headers: Headers, expected: int) -> None:
    """On loopback too, where one is set."""
    assert status(guard, *host("127.0.0.1", *headers)) == expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("127.0.0.1", 200),
        ("localhost", 200),
        ("::1", 200),
        ("0.0.0.0", 403),
        ("::", 403),
        ("10.1.2.3", 403),
        ("admin.example", 403),
    ],
)
def test_off_loopback_nothing_is_open_without_a_token(bound: str, expected: int) -> None:
    """Also for who comes over loopback; the answer says what to set."""
    guard = Guard(host=bound)
    assert status(guard, *host("127.0.0.1")) == expected
    if expected == 403:
        refused = guard.refusal(host("127.0.0.1", ("Authorization", "Bearer anything")))
        assert refused is not None
        assert "admin.token" in refused.message


def test_a_guard_does_what_the_configuration_asks_for() -> None:
    """Address, names, token."""
    admin = Admin.model_validate({"host": "0.0.0.0", "hosts": ["admin.example"], "token": TOKEN})
    assert Guard.of(admin) == Guard(host="0.0.0.0", hosts=("admin.example",), token=TOKEN)
    assert (Guard.of(Admin()), Guard.of(Admin()).closed) == (LOCAL, False)
    assert Guard(host="10.1.2.3").closed


def test_the_token_is_not_shown() -> None:
    """A guard in a log line says nothing."""
    assert TOKEN not in repr(SECRET)
