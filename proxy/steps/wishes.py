"""What a request's own headers ask of us: they may only narrow (rule 10.8). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.identity import is_scope

__all__ = ["Wishes", "wishes"]

_SWITCH, _SCOPE = "x-carryon", "x-carryon-scope"
_VALUES = ("off", "no-store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """`off`: do nothing. `no_store`: store nothing new. `unread` names headers of ours that say nothing."""

    off: bool = False
    no_store: bool = False
    unread: tuple[str, ...] = ()


def wishes(named: Mapping[str, str]) -> Wishes:
    """Read the headers; names are in lower case. What is misspelt narrows nothing, and is named."""
    asked = named.get(_SWITCH, "").strip().lower()
    return Wishes(off=asked == "off", no_store=asked == "no-store", unread=tuple(_unread(named, asked)))


def _unread(named: Mapping[str, str], asked: str) -> list[str]:
    found = [name for name in named if name.startswith(f"{_SWITCH}-") and name != _SCOPE]
    found += [_SWITCH] if _SWITCH in named and asked not in _VALUES else []
    return [*found, *([_SCOPE] if _SCOPE in named and not is_scope(named[_SCOPE]) else [])]
