"""The README's table of agents: each line is the one by which the tests point that agent at Carryon."""

from __future__ import annotations

import re

from tests.clients.coding import AGENTS, Codex, CodexBuiltIn
from tests.clients.table import ROOT, SDKS

#: Ways of using one agent that the tests tell apart by name.
_VARIANT = re.compile(r"-(chat|responses|openai)$")
_ROW = re.compile(r"^\| ([^|]+) \| `([^`]+)`", re.MULTILINE)


def test_each_agent_of_the_readme_is_driven_by_the_readmes_own_line() -> None:
    """Names and lines are the same on both sides, none missing on either."""
    text = (ROOT / "README.md").read_text()
    table = text[text.index("| agent | its one line |") :]
    rows = _ROW.findall(table[: table.index("\n\n")])
    told = {(name.partition(" (")[0], line) for names, line in rows for name in names.split(", ")}
    driven = {
        (_VARIANT.sub("", client.name), client.pointed("http://127.0.0.1:8787/v1"))
        for client in (*SDKS, Codex(), CodexBuiltIn(), *AGENTS)
    }
    assert told == driven
