"""The Lua scripts: package data, called by digest, sent as source where the server does not hold them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

__all__ = [
    "CALIBRATION",
    "COMMIT",
    "LEASE",
    "LIMIT",
    "LOAD",
    "MARK",
    "NOTES",
    "SCRIPTS",
    "TOUCH",
    "Command",
    "Script",
    "Word",
]

Word = bytes | str | int | float


@dataclass(frozen=True)
class Script:
    """One file of `lua/`, read when it is first needed."""

    name: str

    @cached_property
    def source(self) -> str:
        """The script's text."""
        return files("proxy.store").joinpath("lua", f"{self.name}.lua").read_text(encoding="utf-8")

    @cached_property
    def digest(self) -> str:
        """The SHA-1 by which a server knows the script (its rule, not a choice)."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: tuple[str, ...], *arguments: Word) -> Command:
        """Return the command that runs the script by its digest."""
        return Command(("EVALSHA", self.digest, len(keys), *keys, *arguments), script=self)


@dataclass(frozen=True, slots=True)
class Command:
    """One command for the server; `script` is set where it runs one."""

    words: tuple[Word, ...]
    script: Script | None = None

    def spelled(self) -> Command:
        """Return the same command with the script's source in it, which also makes the server keep it.

        Safe to send after NOSCRIPT only: the server then ran nothing.
        """
        if self.script is None:
            return self
        return Command(("EVAL", self.script.source, *self.words[2:]), script=self.script)


LOAD = Script("load")
COMMIT = Script("commit")
TOUCH = Script("touch")
MARK = Script("mark")
NOTES = Script("notes")
LEASE = Script("lease")
LIMIT = Script("limit")
CALIBRATION = Script("calibration")
SCRIPTS = (LOAD, COMMIT, TOUCH, MARK, NOTES, LEASE, LIMIT, CALIBRATION)
