"""Which compactors can be chosen: the built-in one, and what installed packages offer by entry point."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from proxy.settings.rules import Wrong

__all__ = ["GROUP", "absent"]

#: Where packages offer theirs.
GROUP = "carryon.compactors"


def absent(name: str) -> Iterator[Wrong]:
    """Yield what is wrong with a name that nobody offers. Whether an offered one can be made, only the start knows."""
    if name == "builtin":
        return
    offered = sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)})
    if name not in offered:
        cure = f"write {' or '.join(['builtin', *offered])}, or install the package that offers {name} beside Carryon"
        yield Wrong(at=("compactor",), message=f"no installed package offers a compactor named {name}", cure=cure)
