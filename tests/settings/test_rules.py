"""What may not stand together; the table of mistakes in `test_load` covers each rule, here are its edges."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.settings.rules import is_loopback, wrongs
from proxy.settings.shape import Settings


def _keys(**values: Any) -> list[str]:
    return [wrong.key or ".".join(map(str, wrong.at)) for wrong in wrongs(Settings.model_validate(values))]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback_is_what_only_this_machine_reaches(*, host: str, loopback: bool) -> None:
    """Names other than localhost may be anything."""
    assert is_loopback(host) is loopback


def test_the_defaults_contradict_nothing() -> None:
    """`carryon serve` starts."""
    assert _keys() == []


def test_an_api_key_is_lent_on_loopback_or_to_those_with_a_key() -> None:
    """Never to the whole network."""
    upstreams = {"a": {"base_url": "http://a", "api_key": "k"}}
    keys = [{"name": "team", "sha256": "0" * 64}]
    assert _keys(upstreams=upstreams) == []
    assert _keys(upstreams=upstreams, listen={"host": "0.0.0.0"}) == ["upstreams.a.api_key"]
    assert _keys(upstreams=upstreams, listen={"host": "0.0.0.0"}, client_keys=keys) == []


def test_what_no_header_can_hold_is_refused_at_start() -> None:
    """Else every request would fail, or carry a header that nobody wrote."""
    upstream = {"base_url": "http://a", "headers": {"X-A": "a\r\nX-B: b", "X-C": "fine\there"}}
    assert _keys(upstreams={"a": upstream}) == ["upstreams.a.headers.X-A"]
    assert _keys(upstreams={"a": {"base_url": "http://a", "api_key": "sk\n1"}}) == ["upstreams.a.api_key"]


@pytest.mark.parametrize("url", ["redis://h:6379/0", "rediss://h", "unix:///run/redis.sock"])
def test_one_server_of_redis_is_reached_by_three_kinds_of_url(url: str) -> None:
    """With a secret."""
    assert _keys(redis={"url": url}, secret="x" * 32) == []


def test_ports_chosen_by_the_system_do_not_clash() -> None:
    """Port 0 is a different one each time; different addresses may share a port."""
    assert _keys(listen={"port": 0}, admin={"port": 0}) == []
    assert _keys(listen={"port": 1, "host": "127.0.0.2"}, admin={"port": 1}) == []


def test_a_glob_may_name_upstreams_that_are_not_there() -> None:
    """It matches what there is."""
    assert _keys(models=[{"upstream": "loc*", "auto": False}]) == []


def test_entries_that_can_never_meet_do_not_contradict() -> None:
    """Two exact models are two models."""
    models = [{"model": "a", "retain_ratio": 0.5}, {"model": "b", "threshold_ratio": 0.4}]
    assert _keys(models=models) == []


def test_tokens_take_the_place_of_ratios() -> None:
    """The ratio that is not used cannot contradict."""
    assert _keys(defaults={"threshold_ratio": 0.1, "retain_tokens": 50}) == []
    assert _keys(defaults={"context_window": 4096, "retain_tokens": 3500}) == ["defaults.retain_tokens"]


def test_a_probe_port_that_nobody_chose_gives_way_to_the_listener() -> None:
    """Only two ports that were both chosen contradict each other."""
    assert _keys(listen={"port": 8788}) == []
    assert _keys(listen={"port": 8788}, admin={"port": 8788}) == ["admin.port"]


@pytest.mark.parametrize(
    ("listen", "admin", "clash"),
    [("0.0.0.0", "127.0.0.1", True), ("127.0.0.1", "::", True), ("localhost", "127.0.0.1", True),
     ("127.0.0.1", "::1", False),      ("10.0.0.1", "127.0.0.1", False)],
)  # fmt: skip
def test_two_listeners_on_one_port_clash_where_their_addresses_meet(*, listen: str, admin: str, clash: bool) -> None:
    """Every address includes each of them; `localhost` is one of them."""
    found = _keys(listen={"port": 9000, "host": listen}, admin={"port": 9000, "host": admin})
    assert found == (["admin.port"] if clash else [])


def test_one_thing_is_said_in_one_way() -> None:
    """A share and a number of tokens contradict each other, unless the share is the default as it ships."""
    assert _keys(defaults={"threshold_ratio": 0.5, "threshold_tokens": 5000}) == ["defaults.threshold_tokens"]
    assert _keys(defaults={"threshold_ratio": 0.8, "threshold_tokens": 5000}) == []
    assert _keys(models=[{"retain_ratio": 0.1, "retain_tokens": 500}]) == ["models.0.retain_tokens"]


def test_a_tail_that_was_chosen_lies_below_a_threshold_in_tokens() -> None:
    """The default tail gives way by itself."""
    assert _keys(defaults={"context_window": 100_000, "threshold_tokens": 10_000}) == []
    chosen = {"context_window": 100_000, "threshold_tokens": 10_000, "retain_ratio": 0.2}
    assert _keys(defaults=chosen) == ["defaults.retain_ratio"]


def test_a_gateway_header_is_none_that_means_something_else() -> None:
    """It is not forwarded: requests would lose their credential."""
    for name in ("Authorization", "x-api-key", "Host", "Content-Length"):
        assert _keys(tenant={"by": "header", "header": name}) == ["tenant.header"]
    assert _keys(tenant={"by": "header", "header": "X-Team"}) == []


def test_a_model_is_not_like_itself_nor_like_a_pattern() -> None:
    """Neither has a window."""
    assert _keys(models=[{"model": "a", "like": "a"}, {"model": "b", "like": "c*"}]) == [
        "models.0.like",
        "models.1.like",
    ]


def test_headers_and_paths_that_could_never_work_are_refused() -> None:
    """One header in two spellings would be sent twice; a path with dots is never forwarded."""
    assert _keys(upstreams={"a": {"base_url": "http://a", "headers": {"X-A": "1", "x-a": "2"}}}) == [
        "upstreams.a.headers.x-a"
    ]
    paths = ["/fine", "/a/../b"]
    lending = {"base_url": "http://a", "api_key": "k", "inject_paths": paths}
    assert _keys(upstreams={"a": lending}) == ["upstreams.a.inject_paths.1"]


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({}, []),
        ({"api_key_header": "auto", "inject_paths": [], "accept_client_credential": True}, []),
        ({"api_key_header": "x-key"}, ["upstreams.a.api_key_header"]),
        ({"inject_paths": ["/audio"]}, ["upstreams.a.inject_paths"]),
        ({"api_key": "k", "api_key_header": "x-key", "inject_paths": ["/audio"]}, []),
        ({"api_key": "k", "accept_client_credential": True}, ["upstreams.a.accept_client_credential"]),
    ],
)
def test_what_says_nothing_where_it_stands_is_refused(keys: dict[str, object], wrong: list[str]) -> None:
    """About lending a key where there is none, about the client's credential where it is removed."""
    assert _keys(upstreams={"a": {"base_url": "http://a", **keys}}) == wrong


def test_client_keys_guard_an_upstream_with_a_key() -> None:
    """Where no upstream has one they would let everybody in."""
    keys = [{"name": "a", "sha256": "0" * 64}]
    own, lent = {"base_url": "http://a"}, {"base_url": "http://b", "api_key": "k"}
    assert _keys(client_keys=keys, upstreams={"a": own}) == ["client_keys"]
    assert _keys(client_keys=keys, upstreams={"a": own, "b": lent}) == []


def test_a_token_for_operators_is_long_and_can_stand_in_a_header() -> None:
    """Else it could be guessed, or nobody could show it."""
    assert _keys(admin={"token": "x" * 16, "hosts": ["admin.example"], "show_text": True, "host": "0.0.0.0"}) == []
    assert _keys(admin={"token": "x" * 15}) == ["admin.token"]
    for token in ("x" * 16 + "\n", "with a space in it", "x" * 16 + "é"):
        assert _keys(admin={"token": token}) == ["admin.token"]
