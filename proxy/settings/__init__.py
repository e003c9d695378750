"""YAML, environment and command line become one frozen `Settings`; every mistake fails at start (rule 11).

`units`, `urls` and `patterns` are the values people write, `shape` the names and defaults, `document` one YAML
text, `layers` where values come from, `match` which policy holds for a model, `rules` what may not stand
together, `compactors` who can pack, `load` the one door. For people: `docs/configuration.md`.
"""

from __future__ import annotations

from proxy.settings.load import load
from proxy.settings.match import merged
from proxy.settings.rules import is_loopback
from proxy.settings.shape import PolicyShape, Settings, UpstreamSettings

__all__ = ["PolicyShape", "Settings", "UpstreamSettings", "is_loopback", "load", "merged"]
