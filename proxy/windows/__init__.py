"""How big a model's window is (rule 6.1).

`windows` answers at once from what is at hand and asks in the background; `reported` reads what
upstreams answer, `packaged` reads litellm's table as data.
"""

from __future__ import annotations

from proxy.windows.windows import Ask, Window, Windows

__all__ = ["Ask", "Window", "Windows"]
