"""What a configuration comes to: every upstream, and the policy and numbers for each model that it names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from proxy.policy import WindowKind, limits, resolve
from proxy.settings import Settings, UpstreamSettings, merged
from proxy.settings.match import is_glob, matching

__all__ = ["Lookup", "describe"]

#: Finds a window that the configuration does not name: upstream, model -> tokens, kind, source.
Lookup = Callable[[UpstreamSettings, str], "tuple[int, WindowKind, str] | None"]


def _nothing(_upstream: UpstreamSettings, _model: str) -> None:
    return None


def describe(settings: Settings, lookup: Lookup = _nothing) -> dict[str, Any]:
    """Return what `carryon check` shows, ready for JSON: no secret is in it.

    `policies` has one row per upstream and name or pattern of a model, the catch-all `*` last; `limits`
    is None where no window is known.
    """
    return {
        "listen": f"{settings.listen.host}:{settings.listen.port}",
        "store": "redis" if settings.redis.url else "embedded",
        "upstreams": [_upstream(settings, upstream) for upstream in settings.upstreams.values()],
        "policies": [
            _policy(settings, upstream, model, lookup)
            for upstream in settings.upstreams.values()
            for model in _models(settings, upstream.name)
        ],
    }


def _upstream(settings: Settings, upstream: UpstreamSettings) -> dict[str, Any]:
    return {
        "name": upstream.name,
        "base_url": upstream.base_url,
        "default": upstream is settings.default_upstream,
        "serves": list(upstream.serves),
        "credential": "its own key" if upstream.api_key else "the client's",
    }


def _models(settings: Settings, upstream: str) -> Iterator[str]:
    """Yield the models that entries name for an upstream, in the order of the file, then `*`."""
    names = dict.fromkeys(e.model for e in settings.models if e in matching([e], upstream, e.model))
    names.pop("*", None)
    yield from names
    yield "*"


def _policy(settings: Settings, upstream: UpstreamSettings, model: str, lookup: Lookup) -> dict[str, Any]:
    policy = resolve(settings, upstream.name, model)
    window, kind, source = policy.window, policy.window_kind or "total", "yaml"
    if window is None and policy.like:
        like = merged(settings.defaults, settings.models, upstream.name, policy.like)
        window, kind = like.context_window, policy.window_kind or like.window_kind or "total"
    name = policy.like or model
    if window is None and not is_glob(name):
        found = lookup(upstream, name)
        if found:
            window, kind, source = found[0], policy.window_kind or found[1], found[2]
    numbers = limits(policy, window=window, kind=kind) if window else None
    return {
        "upstream": upstream.name,
        "model": model,
        "window_source": source if window else None,
        "policy": asdict(policy),
        "limits": asdict(numbers) if numbers else None,
    }
