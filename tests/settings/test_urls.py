"""The addresses people write."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from proxy.settings.urls import base_url, host, host_name, is_host, proxy_url, redis_url


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
        "https://host/v 1", "https://hõst/v1", "https://host/v1\n", "https://..", "https://-a.b", "https://host:0", "https://[::1",
        "https://300.1.1.1",
    ],
)  # fmt: skip
def test_a_base_url_that_is_more_or_less_than_scheme_host_and_path_is_refused(text: str) -> None:
    """And what it holds is not shown."""
    with pytest.raises(Exception, match=r"credential|http|host|port|query|character|URL|dot") as refusal:
        base_url(text)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("end", ["chat/completions", "responses", "messages", "models", "embeddings/"])
def test_a_pasted_address_of_a_call_is_refused(end: str) -> None:
    """Every request would go to that path twice, and be a bare 404."""
    with pytest.raises(PydanticCustomError, match="path of a call") as caught:
        base_url(f"http://127.0.0.1:8080/v1/{end}")
    assert (caught.value.context or {})["cure"] == "write the base URL only: http://127.0.0.1:8080/v1"
    assert base_url(f"http://{end.partition('/')[0]}.example/my-{end.partition('/')[0]}")


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "::1", "0.0.0.0", "localhost", "my_service", "a-b.example", "fe80::1%eth0", "a.example."]
)
def test_an_address_or_a_name_is_a_host(text: str) -> None:
    """Whatever can be looked up."""
    assert is_host(text)
    assert host(text) == text


@pytest.mark.parametrize(
    "text", ["", "a b", "127.0.0.1:80", "[::1]", "http://a", "a..b", "-a", "1.2.3.4.5", "x" * 64, "a/b", "127.1", "ü"]
)
def test_what_cannot_be_looked_up_is_no_host(text: str) -> None:
    """Looking it up would fail at start with words that help nobody."""
    assert not is_host(text)
    with pytest.raises(PydanticCustomError, match="neither an address nor a name"):
        host(text)


@pytest.mark.parametrize(
    "text",
    [
        "redis://h", "redis://h:6379", "redis://h:6379/", "redis://h:6379/15", "rediss://u:p%23w@h:1/0", "REDIS://h",
        "redis://:p@[::1]:6379/0", "unix:///run/redis.sock", "unix://:p@/run/redis.sock?db=1", "redis://h?db=2",
        "rediss://h?ssl_ca_certs=/etc/ca.pem",
    ],
)  # fmt: skip
def test_one_server_of_redis_is_named_by_a_url(text: str) -> None:
    """As the client library reads it; database and certificates are its options."""
    assert redis_url(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("redis://:hunter2@h:99999/0", "port"), ("redis://:hunter2@h:abc/0", "port"), ("redis://:hunter2@h:0", "port"),
        ("redis:///0", "host"), ("redis://", "host"), ("redis://hunter2@", "host"), ("redis://a..b/0", "host"),
        ("redis://h/hunter2", "database"), ("redis://h/0/1", "database"), ("redis://[::1/hunter2", "not a URL"),
        ("redis://h?hunter2=1", "option"), ("redis://h?db=x", "option"), ("redis://:hunter2#x@h", "#|host|port"),
        ("redis://h/0#hunter2", "#"), ("redis:h", "begin"), ("hunter2", "begin"), ("", "begin"),
        ("redis://hunter 2@h", "character"), ("unix://run/redis.sock", "whole path"), ("unix://", "whole path"),
        ("redis+sentinel://hunter2@h", "not in this version"), ("redis+cluster://h", "not in this version"),
    ],
)  # fmt: skip
def test_what_is_no_url_of_redis_is_refused_and_not_shown(text: str, message: str) -> None:
    """The client library would take some of them for another server than was meant."""
    with pytest.raises(PydanticCustomError, match=message) as refusal:
        redis_url(text)
    assert "hunter2" not in str(refusal.value) + str((refusal.value.context or {})["cure"])


@pytest.mark.parametrize(
    "text", ["http://", "http://h:99999", "http://[::1", "socks5://h", "h:3128", "http://h/path?x"]
)
def test_a_forward_proxy_is_scheme_host_and_port(text: str) -> None:
    """A credential may stand in it, so it is not shown."""
    with pytest.raises(PydanticCustomError):
        proxy_url(text)
    assert proxy_url("http://u:hunter2@proxy.example:3128") == "http://u:hunter2@proxy.example:3128"


@pytest.mark.parametrize("text", ["admin.example.com", "localhost", "10.1.2.3", "fd00::1"])
def test_a_listener_may_be_asked_for_by_name_or_address(text: str) -> None:
    """As a `Host` header has it."""
    assert host_name(text) == text


@pytest.mark.parametrize("text", ["https://a.example", "a.example:443", "a.example/x", "*.example", "", "a b", "[::1]"])
def test_a_name_to_be_asked_for_by_holds_nothing_else(text: str) -> None:
    """Nothing that would never be equal to a name."""
    with pytest.raises(Exception, match="neither a name nor an address"):
        host_name(text)
