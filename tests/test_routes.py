"""Where a request goes, and whose credential goes along."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest

from proxy.routes import NoRouteError, address, choose, client_name, lend, url


@dataclass(frozen=True)
class Up:
    """An upstream as configured."""

    name: str = "first"
    base_url: str = "https://api.example/v1"
    serves: tuple[str, ...] = ()
    api_key: str | None = None
    api_key_header: str = "auto"
    inject_paths: tuple[str, ...] = ()
    accept_client_credential: bool = False


@dataclass(frozen=True)
class Key:
    """A client key as configured."""

    name: str
    sha256: str


@pytest.mark.parametrize(
    ("target", "dialect", "rest"),
    [
        ("/v1/chat/completions", "chat", "chat/completions"),
        ("/chat/completions", "chat", "chat/completions"),
        ("/v1/responses", "responses", "responses"),
        ("/responses/compact", "responses", "responses/compact"),
        ("/v1/messages?beta=true", "messages", "messages"),
        ("/u/local/v1/messages", "messages", "messages"),
        ("/u/local/messages", "messages", "messages"),
        ("/v1/messages/count_tokens", None, "messages/count_tokens"),
        ("/v1/responses/resp_1/cancel", None, "responses/resp_1/cancel"),
        ("/v1/models", None, "models"),
        ("/v1/whatever/else", None, "whatever/else"),
        ("/v1/v1/chat/completions", None, "v1/chat/completions"),
        ("/api/show", None, None),
        ("/messagesque", None, None),
        ("/", None, None),
        ("/u/local", None, None),
        ("/openai/deployments/gpt-5/chat/completions?api-version=1", "chat", None),
        ("/openai/deployments/gpt-5/responses", "responses", None),
        ("/openai/responses?api-version=1", "responses", None),
        ("/openai/v1/responses", "responses", None),
        ("/openai/v1/chat/completions", "chat", None),
        ("/u/azure/openai/responses", "responses", None),
        ("/openai/deployments/gpt-5/embeddings", None, None),
        ("/openai/deployments/gpt-5", None, None),
        ("/openai/deployments//responses", None, None),
        ("/openai/files", None, None),
        ("/openai/v1/v1/responses", None, None),
    ],
)
def test_post_and_path_decide_the_dialect(target: str, dialect: str | None, rest: str | None) -> None:
    """REST follows an optional `/u/<name>` and an optional `/v1`; only the three dialects' POSTs have a dialect."""
    where = address("POST", target)
    assert (where.dialect, where.rest) == (dialect, rest)
    assert address("GET", target).dialect is None


def test_a_deployment_names_the_model() -> None:
    """Azure-style paths carry the model in the path, percent-decoded."""
    assert address("POST", "/openai/deployments/my%20gpt/chat/completions").deployment == "my gpt"


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/chat/completions",
        "evil.example:443",
        "*",
        "",
        "/v1/models/..;/files",
        "/v1/models/%2e%2e%3bx/files",
        "/v1/../admin",
        "/v1/./models",
        "/v1/%2e%2e/admin",
        "/v1/%2E./admin",
        "/v1/a%2f..%2fb",
        "/v1/%252e%252e/x",
        "/v1/..\\x",
        "/v1/models#x",
        "/v1/models\udcff",
        "/v1/models?x=\udcff",
        "/..",
    ],
)
def test_targets_that_climb_or_name_a_host_are_no_address(target: str) -> None:
    """Only clean origin-form paths are routed."""
    with pytest.raises(NoRouteError):
        address("POST", target)


@pytest.mark.parametrize(
    ("target", "base", "expected"),
    [
        ("/v1/chat/completions", "https://h/v1", "https://h/v1/chat/completions"),
        ("/chat/completions?a=%20b&c", "https://h/v1/", "https://h/v1/chat/completions?a=%20b&c"),
        ("/v1/models", "https://h", "https://h/v1/models"),
        ("/v1/messages", "https://h:8443/api/anthropic", "https://h:8443/api/anthropic/messages"),
        ("/api/show", "http://h:11434/v1", "http://h:11434/api/show"),
        ("//evil.example/x", "http://h/v1", "http://h//evil.example/x"),
        ("/u/first/@evil.example/", "http://h/v1", "http://h/@evil.example/"),
        ("/v1/@evil.example", "http://h", "http://h/v1/@evil.example"),
        (
            "/openai/deployments/d/chat/completions?v=1",
            "https://h/v1",
            "https://h/openai/deployments/d/chat/completions?v=1",
        ),
    ],
)
def test_urls_are_the_upstreams_own_origin_and_what_the_client_sent(target: str, base: str, expected: str) -> None:
    """REST goes below `base_url`, anything else to its origin; the query is kept to the byte."""
    assert url(address("POST", target), Up(base_url=base)) == expected


def test_the_upstream_is_the_named_one_then_who_serves_the_model_then_the_first() -> None:
    """Rule 11.4, in this order."""
    ups = [Up(name="a"), Up(name="b", serves=("qwen*",)), Up(name="c", serves=("q*",))]
    plain = address("POST", "/v1/responses")
    assert choose(plain, ups, "qwen3").name == "b"
    assert choose(plain, ups, "quux").name == "c"
    assert choose(plain, ups, "gpt").name == "a"
    assert choose(plain, ups).name == "a"
    assert choose(address("POST", "/u/c/v1/responses"), ups, "qwen3").name == "c"
    with pytest.raises(NoRouteError, match="no such upstream; there are: a, b, c"):
        choose(address("POST", "/u/nope/v1/responses"), ups)


CREDENTIALS = (("Authorization", "Bearer c"), ("X-Api-Key", "c"), ("api-key", "c"), ("x-goog-api-key", "c"), ("A", "1"))


def test_a_client_credential_passes_to_the_default_a_named_or_a_willing_upstream_only() -> None:
    """Rule 11.5: an upstream chosen by the model's name does not get the credential."""
    where = address("POST", "/v1/responses?key=s&x=1")
    named = address("POST", "/u/b/v1/responses?key=s&x=1")
    for place, up, passes in [
        (where, Up(name="first"), True),
        (where, Up(name="b"), False),
        (named, Up(name="b"), True),
        (where, Up(name="b", accept_client_credential=True), True),
    ]:
        lent = lend(place, up, CREDENTIALS, default="first")
        assert lent is not None
        assert lent.headers == (CREDENTIALS if passes else (("A", "1"),))
        assert lent.url.endswith("?key=s&x=1" if passes else "?x=1")


@pytest.mark.parametrize(
    ("method", "target", "inject", "lent"),
    [
        ("POST", "/v1/chat/completions", (), True),
        ("POST", "/v1/messages", (), True),
        ("POST", "/v1/messages/count_tokens", (), True),
        ("POST", "/v1/embeddings", (), True),
        ("GET", "/v1/models", (), True),
        ("GET", "/v1/models/x", (), True),
        ("POST", "/openai/deployments/d/chat/completions", (), True),
        ("GET", "/v1/chat/completions", (), False),
        ("DELETE", "/v1/models/x", (), False),
        ("GET", "/v1/files", (), False),
        ("GET", "/v1/files", ("files*",), True),
        ("GET", "/v1/files/x", ("/files/*",), True),
        ("GET", "/v1/files", ("/v1/files",), True),
        ("GET", "/v1/filesystem", ("/files", "/v1/files/*"), False),
        ("POST", "/api/show", ("/api/*",), True),
        ("GET", "/v1/responses/resp_1", (), False),
        ("POST", "/", (), False),
    ],
)
def test_a_lent_key_opens_only_the_listed_paths(
    method: str, target: str, inject: tuple[str, ...], *, lent: bool
) -> None:
    """With `api_key` anything else is 404."""
    up = Up(api_key="sk-own", inject_paths=inject)
    if lent:
        settled = lend(address(method, target), up, CREDENTIALS, default="first")
        assert settled is not None
        assert sum("sk-own" in value for _, value in settled.headers) == 1
    else:
        with pytest.raises(NoRouteError):
            lend(address(method, target), up, CREDENTIALS, default="first")


@pytest.mark.parametrize(
    ("target", "header", "sent", "expected"),
    [
        ("/v1/chat/completions", "auto", (), ("Authorization", "Bearer K")),
        ("/v1/messages", "auto", (), ("x-api-key", "K")),
        ("/openai/deployments/d/chat/completions", "auto", (), ("api-key", "K")),
        ("/openai/responses", "auto", (), ("api-key", "K")),
        ("/openai/v1/responses", "auto", (), ("Authorization", "Bearer K")),
        ("/openai/v1/responses", "auto", (("api-key", "c"),), ("api-key", "K")),
        ("/v1/embeddings", "auto", (("X-API-Key", "c"),), ("x-api-key", "K")),
        ("/v1/messages", "authorization", (), ("Authorization", "Bearer K")),
        ("/v1/chat/completions", "X-Custom", (), ("x-custom", "K")),
        ("/v1/chat/completions", "X-Custom", (("X-CUSTOM", "c"),), ("x-custom", "K")),
    ],
)
def test_every_client_credential_is_replaced_by_the_lent_key(
    target: str, header: str, sent: tuple[tuple[str, str], ...], expected: tuple[str, str]
) -> None:
    """One credential goes out: ours, in the configured or the fitting header; the query's `key` is gone too."""
    where = address("POST", target + "?key=c&a=1&k%65y=c")
    lent = lend(where, Up(api_key="K", api_key_header=header), (*sent, ("B", "2")), default="first")
    assert lent is not None
    assert lent.headers == (("B", "2"), expected)
    assert lent.url.endswith("?a=1")


def test_client_keys_are_required_for_a_lent_key_where_configured() -> None:
    """A wrong or missing client key is None (401), a right one names its holder."""
    keys = [Key("ann", hashlib.sha256(b"k1").hexdigest()), Key("bob", hashlib.sha256(b"k2").hexdigest().upper())]
    where = address("POST", "/v1/responses")
    up = Up(api_key="K")
    for headers, name in [
        ((("Authorization", "Bearer k1"),), "ann"),
        ((("x-api-key", "k2"),), "bob"),
        ((("Authorization", "bearer  k2"),), "bob"),
        ((("Authorization", "Bearer k"),), None),
        ((("Authorization", "Bearer "),), None),
        ((), None),
    ]:
        assert client_name(headers, "", keys) == name
        lent = lend(where, up, headers, default="first", keys=keys)
        assert (lent.client if lent else None) == name
    assert client_name((), "key=k1", keys) == "ann"
