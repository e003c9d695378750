"""The addresses people write: hosts, upstreams, proxies, Redis. A refusal echoes none: a password may stand in it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from proxy.settings.units import fault

__all__ = ["base_url", "host", "host_name", "is_host", "proxy_url", "redis_url"]

#: What clients append to a base URL: one that ends so would have it twice.
_ENDPOINT = re.compile(r"/(?:chat/completions|responses|messages|models|embeddings)$")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_DATABASE = re.compile(r"/?\d{0,5}")
#: What may stand behind the `?` of a Redis URL: the client library takes anything else for its own.
_REDIS_OPTIONS = {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs"}
_REDIS = "write redis://host:6379/0 (rediss:// for TLS, unix:///path for a socket)"


def is_host(text: str) -> bool:
    """Whether a text is an IP address or a name that can be looked up."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        labels = text.removesuffix(".").split(".")
        return len(text) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdecimal()
    return True


def host(value: object) -> object:
    """Return an address to listen on. A port or a scheme stands elsewhere."""
    if isinstance(value, str) and not is_host(value):
        raise fault(
            "is neither an address nor a name", "write an address such as 127.0.0.1; the port has a key of its own"
        )
    return value


def host_name(value: object) -> object:
    """Return a name or an address by which a listener is asked for, as a `Host` header has it without its port."""
    if isinstance(value, str) and not is_host(value):
        raise fault(
            "is neither a name nor an address", "write the name alone, without scheme and port: admin.example.com"
        )
    return value


def base_url(value: object) -> object:
    """Return an upstream's base URL without a final slash; one without a path gets `/v1` (rule 11.4)."""
    if not isinstance(value, str):
        return value
    cure = "write scheme, host and path only: https://api.example.com/v1"
    parts = _split(value, {"http", "https"}, "does not begin with http:// or https://", cure)
    if parts.username is not None or parts.password is not None:
        raise fault("holds a credential", "take it out of the URL and name it in api_key, best as env:NAME")
    _reachable(parts, cure)
    if "?" in value or "#" in value:
        raise fault("holds a query or a fragment", cure)
    path = parts.path.rstrip("/") or "/v1"
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise fault("holds dot segments", cure)
    if _ENDPOINT.search(path):
        cure = "write the base URL only: http://127.0.0.1:8080/v1"
        raise fault("ends in the path of a call, which every request brings along", cure)
    return f"{parts.scheme}://{parts.netloc}{path}"


def proxy_url(value: object) -> object:
    """Return a forward proxy's URL, credential included."""
    if isinstance(value, str):
        cure = "write http://proxy.example:3128"
        parts = _split(value, {"http", "https"}, "is not an http:// URL", cure)
        _reachable(parts, cure)
        if parts.path not in {"", "/"} or "?" in value or "#" in value:
            raise fault("holds more than scheme, host and port", cure)
    return value


def redis_url(value: object) -> object:
    """Return the URL of one Redis or Valkey server."""
    if not isinstance(value, str):
        return value
    scheme = value.partition("://")[0].lower()
    if "://" in value and re.fullmatch(r"[a-z0-9+.-]*(sentinel|cluster)[a-z0-9+.-]*", scheme):
        raise fault(f"a {scheme[:32]}:// URL is not in this version", _REDIS)
    parts = _split(value, {"redis", "rediss", "unix"}, "does not begin with redis://, rediss:// or unix://", _REDIS)
    if "#" in value:
        raise fault("holds a #", "write a # of the password as %23")
    if parts.scheme == "unix":
        if parts.netloc.rpartition("@")[2] or len(parts.path) < 2:
            raise fault("names no socket by its whole path", "write unix:///run/redis.sock, with three slashes")
    else:
        _reachable(parts, _REDIS)
        if not _DATABASE.fullmatch(parts.path):
            raise fault("names a database that is no number", _REDIS)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= _REDIS_OPTIONS or not options.get("db", "0").isdecimal():
        known = ", ".join(sorted(_REDIS_OPTIONS))
        raise fault("holds an option that is not known here", f"remove it; known are {known} (db is a number)")
    return value


def _split(value: str, schemes: set[str], other: str, cure: str) -> SplitResult:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise fault("holds a character that may not stand in a URL", cure)
    try:
        parts = urlsplit(value)
    except ValueError:
        raise fault("is not a URL", cure) from None
    if parts.scheme not in schemes or "://" not in value:
        raise fault(other, cure)
    return parts


def _reachable(parts: SplitResult, cure: str) -> None:
    """Refuse what names no host, or a port that cannot be."""
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise fault("names a port that is no number from 1 to 65535", cure)
    if not parts.hostname or not is_host(parts.hostname):
        raise fault("names no host", cure)
