"""Where a request goes: client path to upstream, dialect and URL, and whose credential goes along.

Pure (rules 11.4, 11.5). A request chooses among the configured upstreams and names no host: the URL
is always an upstream's own origin followed by what the client sent.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol
from urllib.parse import unquote_to_bytes, urlsplit

from proxy.core.identity import CREDENTIAL_HEADERS, is_key
from proxy.message import Headers

__all__ = [
    "Address",
    "ClientKey",
    "Lent",
    "NoRouteError",
    "Target",
    "address",
    "choose",
    "client_name",
    "lend",
    "url",
]

#: POST and REST decide the dialect (rule 11.4).
DIALECTS = {
    "chat/completions": "chat",
    "responses": "responses",
    "responses/compact": "responses",
    "messages": "messages",
}
#: What counts as REST without a leading `/v1`: these names, alone or with more below.
BARE = re.compile(r"(?:chat/completions|responses|messages|models|embeddings)(?:/|$)")
#: Azure's paths: a deployment of a model, or none (Responses, and all of its `v1`).
AZURE = re.compile(r"openai/(?:deployments/([^/]+)/|(v1)/)?(.+)")
#: Method and REST of what a lent key may be used for, besides the dialects' POSTs and `inject_paths`.
LENT_FOR = frozenset({("POST", "messages/count_tokens"), ("POST", "responses/input_tokens"), ("POST", "embeddings")})
DOTS = re.compile(rb"\.\.?(?:;.*)?", re.DOTALL)
#: An encoding of an encoding is undone this often when looking for dot segments.
UNQUOTE_ROUNDS = 3


class NoRouteError(Exception):
    """Nothing here has that address, or it is closed (404). The message holds nothing the client sent."""


class Target(Protocol):
    """What is needed of a configured upstream; `house.Destination` is one."""

    @property
    def name(self) -> str:
        """Its name in the configuration and in `/u/<name>`."""
        ...

    @property
    def base_url(self) -> str:
        """Scheme, host and path, without a slash at the end."""
        ...

    @property
    def serves(self) -> Sequence[str]:
        """Globs over the models it serves."""
        ...

    @property
    def api_key(self) -> str | None:
        """The key lent to clients, None where theirs pass through."""
        ...

    @property
    def api_key_header(self) -> str:
        """The header that carries `api_key`, or `auto`."""
        ...

    @property
    def inject_paths(self) -> Sequence[str]:
        """Globs over further paths for which the key is lent."""
        ...

    @property
    def accept_client_credential(self) -> bool:
        """Whether a client's credential may go there though it is neither the default nor named."""
        ...


class ClientKey(Protocol):
    """A key that a client of this proxy holds, by its digest."""

    @property
    def name(self) -> str:
        """Who holds it; a metrics label."""
        ...

    @property
    def sha256(self) -> str:
        """The SHA-256 of the key, hex."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A client's path, taken apart.

    `upstream` is the name after `/u/`. `rest` follows the base URL; None where the path goes to the
    origin as it came (`path`). `query` has no question mark. `dialect` is set for the POSTs that are
    read whole. `deployment` is the model an `openai/deployments/<name>/` path names; `azure` is whether it is a
    path that only Azure has.
    """

    method: str
    path: str
    query: str
    upstream: str | None = None
    rest: str | None = None
    dialect: str | None = None
    deployment: str | None = None
    azure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Headers and URL after the credentials were settled; `client` names the client key used."""

    headers: Headers
    url: str
    client: str | None = None


def address(method: str, target: str) -> Address:
    """Take a request target apart. Raises `NoRouteError` for all but clean origin-form paths."""
    path, _, query = target.partition("?")
    if not path.startswith("/") or "#" in target or not target.isprintable() or _climbs(path):
        raise NoRouteError("no such path")
    upstream, path = _named(path)
    rest = _rest(path)
    found = AZURE.fullmatch(path[1:])
    dialect = DIALECTS.get(found[3] if found else rest or "") if method == "POST" else None
    return Address(
        method=method,
        path=path,
        query=query,
        upstream=upstream,
        rest=rest,
        dialect=dialect,
        deployment=unquote_to_bytes(found[1]).decode("utf-8", "replace") if found and found[1] else None,
        azure=found is not None and not found[2],
    )


def choose(where: Address, upstreams: Sequence[Target], model: str | None = None) -> Target:
    """Give the upstream named in the path, else the first that serves the model, else the first (rule 11.4)."""
    if where.upstream is not None:
        for upstream in upstreams:
            if upstream.name == where.upstream:
                return upstream
        raise NoRouteError(f"no such upstream; there are: {', '.join(known.name for known in upstreams)}")
    if model is not None:
        for upstream in upstreams:
            if any(fnmatchcase(model, glob) for glob in upstream.serves):
                return upstream
    return upstreams[0]


def url(where: Address, upstream: Target) -> str:
    """Spell the upstream URL: never another scheme or authority than the upstream's own."""
    base = upstream.base_url.rstrip("/")
    split = urlsplit(base)
    origin = f"{split.scheme}://{split.netloc}"
    below = base if split.path else f"{origin}/v1"
    whole = f"{origin}{where.path}" if where.rest is None else f"{below}/{where.rest}"
    return f"{whole}?{where.query}" if where.query else whole


def lend(
    where: Address,
    upstream: Target,
    headers: Headers,
    *,
    default: str,
    keys: Sequence[ClientKey] = (),
) -> Lent | None:
    """Settle whose credential goes to the upstream (rule 11.5); None: the client's key is missing or wrong (401).

    `default` is the name of the first upstream. Raises `NoRouteError` where a lent key may not go.
    """
    if upstream.api_key is None:
        passes = upstream.name in {default, where.upstream} or upstream.accept_client_credential
        kept = headers if passes else _bare(headers)
        return Lent(headers=kept, url=url(where if passes else _keyless(where), upstream))
    client = client_name(headers, where.query, keys)
    if keys and client is None:
        return None
    if not _lendable(where, upstream):
        raise NoRouteError("this path is closed: the key of this upstream is not lent to it")
    name, value = _key_header(where, upstream, headers)
    kept = tuple(pair for pair in _bare(headers) if pair[0].lower() != name.lower())
    return Lent(headers=(*kept, (name, value)), url=url(_keyless(where), upstream), client=client)


def client_name(headers: Headers, query: str, keys: Iterable[ClientKey]) -> str | None:
    """Name the client key among the presented credentials, None where none fits. Every key is compared."""
    digests = [
        hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() for text in _presented(headers, query)
    ]
    found: str | None = None
    for key in keys:
        for digest in digests:
            if hmac.compare_digest(digest, key.sha256.lower()):
                found = found or key.name
    return found


def _climbs(path: str) -> bool:
    """Whether any reading of the path holds a dot segment; `..;` is one to servers that know path parameters."""
    raw = path.encode("utf-8", "surrogatepass")
    for _ in range(UNQUOTE_ROUNDS):
        raw = unquote_to_bytes(raw)
    return "\\" in path or any(DOTS.fullmatch(part) for part in re.split(rb"[/\\]", raw))


def _named(path: str) -> tuple[str | None, str]:
    if not path.startswith("/u/"):
        return None, path
    name, slash, rest = path[3:].partition("/")
    return name, slash + rest or "/"


def _rest(path: str) -> str | None:
    bare = path[1:]
    if bare.startswith("v1/"):
        return bare[3:]
    return bare if BARE.match(bare) else None


def _lendable(where: Address, upstream: Target) -> bool:
    rest = where.rest or ""
    if where.dialect is not None or (where.method, rest) in LENT_FOR:
        return True
    if where.method == "GET" and (rest == "models" or rest.startswith("models/")):
        return True
    names = {where.path, where.path[1:], rest, f"/{rest}"} - {"", "/"}
    return any(fnmatchcase(name, glob) for glob in upstream.inject_paths for name in names)


def _key_header(where: Address, upstream: Target, headers: Headers) -> tuple[str, str]:
    """Give the header that carries the upstream's key; `auto` follows the dialect, then what the client used."""
    key = upstream.api_key or ""
    name = upstream.api_key_header.lower()
    if name == "auto":
        used = [header for header, _ in headers if header.lower() in CREDENTIAL_HEADERS]
        if where.azure:
            name = "api-key"
        elif (where.rest or "").startswith("messages"):
            name = "x-api-key"
        else:
            name = used[0].lower() if used else "authorization"
    return ("Authorization", f"Bearer {key}") if name == "authorization" else (name, key)


def _presented(headers: Headers, query: str) -> list[str]:
    found = [value for name, value in headers if name.lower() in CREDENTIAL_HEADERS]
    tokens = [value[7:].strip() if value[:7].lower() == "bearer " else value for value in found]
    tokens += [unquote_to_bytes(value).decode("utf-8", "replace") for name, value in _fields(query) if is_key(name)]
    return tokens


def _bare(headers: Headers) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() not in CREDENTIAL_HEADERS)


def _keyless(where: Address) -> Address:
    """Drop the query's credential; all other fields stay as they were sent."""
    if not any(is_key(name) for name, _ in _fields(where.query)):
        return where
    kept = "&".join(part for part in where.query.split("&") if not is_key(part.partition("=")[0]))
    return replace(where, query=kept)


def _fields(query: str) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in query.split("&")]
    return [(name, value) for name, _, value in parts]
