"""How big a model's window is (rule 6.1).

`windows` answers at once from what is at hand; `asking` asks upstreams in the background, `reported` reads what
they answer, `packaged` reads litellm's table as data.
"""

from __future__ import annotations

from proxy.windows.asking import Ask
from proxy.windows.windows import Window, Windows

__all__ = ["Ask", "Window", "Windows"]
