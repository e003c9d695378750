"""What keys of the configuration may not say together, and what this version lacks: a table of checks."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proxy.core.identity import CREDENTIAL_HEADERS
from proxy.message import ANSWERED_HERE, HOP_BY_HOP
from proxy.settings.match import is_glob, merged
from proxy.settings.shape import ClientKey, ModelPolicy, PolicyShape, Settings, UpstreamSettings

__all__ = ["MEMBERS", "Wrong", "is_loopback", "wrongs"]

#: What the members of the open mappings and lists are.
MEMBERS = {"upstreams": UpstreamSettings, "models": ModelPolicy, "client_keys": ClientKey}

_LACKING = "is not in this version"
#: Headers that no configuration can set.
_MADE_ANEW = HOP_BY_HOP | ANSWERED_HERE | {"content-length"}
#: What no value of a header may hold (RFC 9110, 5.5).
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNSENDABLE = "holds a line break or another control character"
_LEAST_TTL = 1200.0
#: The tail's share where nobody chose one; it gives way by itself.
_SHARE: float = PolicyShape.model_fields["retain_ratio"].default
_LOOPBACK = {"localhost": "127.0.0.1"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BUDGETS = {"threshold_ratio", "threshold_tokens", "retain_ratio", "retain_tokens", "context_window", "prune", "like"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One thing that may not be: `at` is the path whose place is shown, `key` the name if it is another."""

    at: tuple[str | int, ...]
    message: str
    cure: str
    key: str = ""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def wrongs(settings: Settings) -> Iterator[Wrong]:
    """Yield everything that is wrong, in the order of the checks."""
    for check in _CHECKS:
        yield from check(settings)


def _policies(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], PolicyShape]]:
    yield ("defaults",), settings.defaults
    for index, entry in enumerate(settings.models):
        yield ("models", index), entry


def _lacking(settings: Settings) -> Iterator[Wrong]:
    """Keys of a later version: refused, never ignored."""
    if settings.listen.workers > 1:
        cure = "write 1, and run more replicas"
        yield Wrong(at=("listen", "workers"), message=f"more than one {_LACKING}", cure=cure)


def _lacking_in_policies(settings: Settings) -> Iterator[Wrong]:
    """The same, of what holds for a model."""
    for at, policy in _policies(settings):
        if policy.compact_on_payload_too_large:
            yield Wrong(at=(*at, "compact_on_payload_too_large"), message=_LACKING, cure="write false, or remove it")


def _summariser(settings: Settings) -> Iterator[Wrong]:
    """Who writes summaries: another upstream knows nothing of the conversation's model."""
    for at, policy in _policies(settings):
        upstream = policy.summary.upstream
        if upstream is None:
            continue
        if upstream not in settings.upstreams:
            cure = f"write one of {', '.join(settings.upstreams)}, or add it to upstreams"
            yield Wrong(at=(*at, "summary", "upstream"), message=f"there is no upstream {upstream}", cure=cure)
        if policy.summary.model is None and settings.defaults.summary.model is None:
            cure = "name the model there that writes the summaries"
            message = "is required with summary.upstream"
            yield Wrong(at=(*at, "summary", "upstream"), key="summary.model", message=message, cure=cure)


def _redis(settings: Settings) -> Iterator[Wrong]:
    if settings.redis.url is not None and settings.secret is None:
        cure = "make one with `openssl rand -hex 32`, the same for all replicas; best as secret: file:/path or env:NAME"
        yield Wrong(at=("redis", "url"), key="secret", message="is required with redis.url", cure=cure)


def _ttl(settings: Settings) -> Iterator[Wrong]:
    if settings.redis.ttl < _LEAST_TTL:
        message = "is shorter than 20m: expiry is refreshed every ten minutes only"
        yield Wrong(at=("redis", "ttl"), message=message, cure="write a longer one, such as 7d")


def _secret(settings: Settings) -> Iterator[Wrong]:
    cure, token = "make one with `openssl rand -hex 32`", settings.admin.token
    keys = [key.get_secret_value() for key in settings.encryption_keys]
    listed = ((("encryption_keys", place), key) for place, key in enumerate(settings.encryption_keys))
    for at, given in ((("secret",), settings.secret), (("admin", "token"), token), *listed):
        if given is not None and len(given.get_secret_value()) < 16:
            yield Wrong(at=at, message="is shorter than 16 characters", cure=cure)
    if len(keys) != len(set(keys)):
        yield Wrong(at=("encryption_keys",), message="names a key twice", cure="name each key once: the first seals")
    if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token.get_secret_value()):
        yield Wrong(at=("admin", "token"), message="holds a sign that no header can carry, or a space", cure=cure)


def _tenant(settings: Settings) -> Iterator[Wrong]:
    tenant = settings.tenant
    if tenant.by == "header" and tenant.header is None:
        cure = "name the header that your gateway sets, such as X-Team-Id"
        yield Wrong(at=("tenant", "by"), key="tenant.header", message="is required with tenant.by: header", cure=cure)
    if tenant.by != "header" and tenant.header is not None:
        cure = "write tenant.by: header, or remove it"
        yield Wrong(at=("tenant", "header"), message="needs tenant.by: header", cure=cure)
    if (tenant.header or "").lower() in _MADE_ANEW.union(CREDENTIAL_HEADERS):
        cure = "name a header that only your gateway sets, such as X-Team-Id (for a credential: tenant.by: credential)"
        message = f"{tenant.header} has a meaning of its own, and would no longer be forwarded"
        yield Wrong(at=("tenant", "header"), message=message, cure=cure)


def _upstreams(settings: Settings) -> Iterator[Wrong]:
    for name, upstream in settings.upstreams.items():
        at = ("upstreams", name)
        if not _NAME.fullmatch(name):
            cure = "use letters, digits, dots, dashes and underscores: it stands in the path /u/<name>"
            yield Wrong(at=at, message="is not a name for an upstream", cure=cure)
        if upstream.api_key and not settings.client_keys and not is_loopback(settings.listen.host):
            cure = "list client_keys, or write listen.host: 127.0.0.1"
            message = f"would be lent to anybody who reaches {settings.listen.host}"
            yield Wrong(at=(*at, "api_key"), message=message, cure=cure)
        yield from _headers(at, upstream)
        yield from _idle(at, upstream)
        for index, path in enumerate(upstream.inject_paths):
            if {".", ".."} & set(path.split("/")):
                cure = "write the path without them: no request with dot segments is forwarded"
                yield Wrong(at=(*at, "inject_paths", index), message="holds dot segments", cure=cure)
        if upstream.ca_file and not upstream.ca_file.is_file():
            cure = "name a PEM file with the authorities to trust"
            yield Wrong(at=(*at, "ca_file"), message="names no file", cure=cure)


def _idle(at: tuple[str, ...], upstream: UpstreamSettings) -> Iterator[Wrong]:
    """Keys that say nothing where they stand."""
    if not upstream.api_key:
        idle = {"api_key_header": upstream.api_key_header != "auto", "inject_paths": bool(upstream.inject_paths)}
        for key in (key for key, said in idle.items() if said):
            message = "needs api_key: without one no key is lent"
            yield Wrong(at=(*at, key), message=message, cure="add one, or remove it")
    elif upstream.accept_client_credential:
        message = "with api_key every credential of the client is removed"
        yield Wrong(at=(*at, "accept_client_credential"), message=message, cure="keep one of the two")


def _headers(at: tuple[str, ...], upstream: UpstreamSettings) -> Iterator[Wrong]:
    """Headers that could not be sent, and a credential that would be lent on every path."""
    seen: set[str] = set()
    for name, value in upstream.headers.items():
        if name.lower() in seen:
            message = "is written twice, in capital and small letters"
            yield Wrong(at=(*at, "headers", name), message=message, cure="keep one of the two")
        seen.add(name.lower())
        if _CONTROL.search(value.get_secret_value()):
            yield Wrong(at=(*at, "headers", name), message=_UNSENDABLE, cure="write it on one line")
        if name.lower() in _MADE_ANEW:
            yield Wrong(at=(*at, "headers", name), message="is made anew for every request", cure="remove it")
        if name.lower() in CREDENTIAL_HEADERS:
            cure = "name it in api_key; api_key_header chooses the header"
            yield Wrong(at=(*at, "headers", name), message="would be lent on every path", cure=cure)
    if upstream.api_key and _CONTROL.search(upstream.api_key.get_secret_value()):
        yield Wrong(at=(*at, "api_key"), message=_UNSENDABLE, cure="write it on one line")
    if upstream.api_key_header.lower() in _MADE_ANEW:
        message = f"{upstream.api_key_header} is made anew for every request"
        yield Wrong(at=(*at, "api_key_header"), message=message, cure="write auto, or the name of another header")


def _client_keys(settings: Settings) -> Iterator[Wrong]:
    if settings.client_keys and not any(upstream.api_key for upstream in settings.upstreams.values()):
        message = "guard nothing: no upstream has an api_key, and clients use their own credentials"
        yield Wrong(at=("client_keys",), message=message, cure="give an upstream its api_key, or remove them")
    for field in ("name", "sha256"):
        seen: set[str] = set()
        for index, key in enumerate(settings.client_keys):
            if getattr(key, field) in seen:
                yield Wrong(at=("client_keys", index, field), message="is listed twice", cure="keep one of the two")
            seen.add(getattr(key, field))


def _listeners(settings: Settings) -> Iterator[Wrong]:
    listen, admin = settings.listen, settings.admin
    chosen = "port" in admin.model_fields_set  # else it gives way at start
    if chosen and listen.port == admin.port != 0 and _meet(listen.host, admin.host):
        cure = "give the admin listener a port of its own"
        yield Wrong(at=("admin", "port"), message="is also listen.port", cure=cure)
    if listen.max_body > listen.max_inflight_bytes:
        cure = "raise max_inflight_bytes, or lower max_body"
        yield Wrong(at=("listen", "max_body"), message="is above listen.max_inflight_bytes", cure=cure)


def _meet(one: str, other: str) -> bool:
    """Whether listeners on two hosts would want the same address: every address includes each."""
    both = {_LOOPBACK.get(one, one), _LOOPBACK.get(other, other)}
    return len(both) == 1 or not both.isdisjoint({"0.0.0.0", "::"})  # noqa: S104 - they are compared, not bound


def _entries(settings: Settings) -> Iterator[Wrong]:
    seen: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(settings.models):
        at = ("models", index)
        first = seen.setdefault((entry.upstream, entry.model), index)
        if first != index:
            message = f"matches the same as models[{first}]: upstream {entry.upstream}, model {entry.model}"
            yield Wrong(at=at, message=message, cure="make one entry of the two")
        if not is_glob(entry.upstream) and entry.upstream not in settings.upstreams:
            cure = f"write one of {', '.join(settings.upstreams)}, or add it to upstreams"
            yield Wrong(at=(*at, "upstream"), message=f"there is no upstream {entry.upstream}", cure=cure)
        if "max_concurrent" in entry.summary.model_fields_set:
            message = "holds for the process, not for a model"
            yield Wrong(at=(*at, "summary", "max_concurrent"), message=message, cure="move it to defaults.summary")


def _doubled(settings: Settings) -> Iterator[Wrong]:
    """One thing said in two ways; a share that is the default may stand there unchanged."""
    for at, policy in _policies(settings):
        for share, tokens in (("threshold_ratio", "threshold_tokens"), ("retain_ratio", "retain_tokens")):
            chosen = getattr(policy, share) != PolicyShape.model_fields[share].default
            if chosen and getattr(policy, tokens) is not None:
                yield Wrong(at=(*at, tokens), message=f"and {share} both say it", cure="keep one of the two")
        if policy.like and policy.context_window:
            yield Wrong(at=(*at, "like"), message="and context_window both name the window", cure="keep one of the two")
        if policy.like and (is_glob(policy.like) or policy.like == getattr(policy, "model", None)):
            message = "is a pattern" if is_glob(policy.like) else "names the model itself"
            yield Wrong(at=(*at, "like"), message=message, cure="write the name of another model whose window is known")


def _contradictions(settings: Settings) -> Iterator[Wrong]:
    """Check every policy that can come about from defaults, one entry, or two that meet."""
    told: set[tuple[str, str]] = set()
    for at, policy in _effective(settings):
        for key, message, cure in _within(policy):
            if (key, message) not in told:
                told.add((key, message))
                yield Wrong(at=(*at, *key.split(".")), message=message, cure=cure)


def _effective(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], PolicyShape]]:
    yield ("defaults",), settings.defaults
    entries = [(i, e) for i, e in enumerate(settings.models) if e.model_fields_set & _BUDGETS]
    for index, entry in entries:
        yield ("models", index), merged(settings.defaults, settings.models, entry.upstream, entry.model)
    for (_, one), (index, other) in itertools.combinations(entries[:64], 2):
        upstream, model = _narrower(one.upstream, other.upstream), _narrower(one.model, other.model)
        yield ("models", index), merged(settings.defaults, (one, other), upstream, model)


def _narrower(one: str, other: str) -> str:
    return min(one, other, key=lambda pattern: (is_glob(pattern), -len(pattern)))


def _within(policy: PolicyShape) -> Iterator[tuple[str, str, str]]:
    """Yield what one policy says against itself: key, message, cure."""
    lower = "lower it, or raise the threshold"
    window, threshold, retain = policy.context_window, policy.threshold_tokens, policy.retain_tokens
    if threshold is None and retain is None and policy.retain_ratio >= policy.threshold_ratio:
        bound = f"threshold_ratio {policy.threshold_ratio:g}"
        yield "retain_ratio", f"{policy.retain_ratio:g} is not below {bound}", lower
    if threshold and retain and retain >= threshold:
        yield "retain_tokens", f"{retain} is not below threshold_tokens {threshold}", lower
    if window and threshold and threshold > window:
        yield "threshold_tokens", f"{threshold} is above context_window {window}", "lower it below the window"
    if window and retain and threshold is None and retain >= window * policy.threshold_ratio:
        yield "retain_tokens", f"{retain} is not below the threshold of a window of {window}", lower
    if window and threshold and retain is None and _SHARE < policy.retain_ratio >= threshold / window:
        bound = f"threshold_tokens {threshold} of a window of {window}"
        yield "retain_ratio", f"{policy.retain_ratio:g} is not below {bound}", lower
    prune = policy.prune
    if prune.head_chars + prune.tail_chars >= prune.threshold_chars:
        message = "head_chars and tail_chars together are not below threshold_chars"
        yield "prune.threshold_chars", message, "raise threshold_chars, or lower the other two"


_CHECKS: tuple[Callable[[Settings], Iterator[Wrong]], ...] = (
    _lacking, _lacking_in_policies, _redis, _ttl, _secret, _tenant, _upstreams, _client_keys, _listeners, _entries,
    _summariser, _doubled, _contradictions,
)  # fmt: skip
