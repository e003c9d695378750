"""The names under which things lie in Redis. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PREFIX", "SECRET", "Keys", "conversation", "model", "pattern"]

#: The second part is the format version of all that lies below it.
PREFIX = "carryon:1"
SECRET = f"{PREFIX}:secret"
#: A tenant, and a conversation's own id, as `proxy.core.identity` makes them: none holds a sign that a pattern means.
_TENANT = "anonymous|[0-9a-f]{32}"
_KEY = re.compile(rf"{PREFIX}:\{{((?:{_TENANT})\.[0-9a-f]{{32}})\}}(?::[mn])?")
_BEGINNING = re.compile("[0-9a-f]{0,32}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one conversation, in one hash slot."""

    record: str
    marks: str
    notes: str

    @classmethod
    def of(cls, conversation: str) -> Keys:
        """Return the keys of the conversation `<tenant>.<conversation>`."""
        record = f"{PREFIX}:{{{conversation}}}"
        return cls(record, f"{record}:m", f"{record}:n")


def model(digest: str) -> str:
    """Return the key of what was learned of a model, by the digest of what it is shared by (rule 8.5)."""
    return f"{PREFIX}:model:{{{digest}}}"


def conversation(key: bytes) -> str | None:
    """Return the conversation that a key belongs to, None for a key of anything else."""
    found = _KEY.fullmatch(key.decode("utf-8", "replace"))
    return found[1] if found else None


def pattern(tenant: str = "", beginning: str = "", *, notes: bool = False) -> str:
    """Return the pattern of the records of a tenant (empty: of all) whose own id begins so; with `notes` of all keys.

    Raises ValueError for what can be no tenant or no beginning: nothing that is typed becomes a pattern.
    """
    if tenant and not re.fullmatch(_TENANT, tenant):
        raise ValueError("a tenant is 32 hex digits, or anonymous")
    if not _BEGINNING.fullmatch(beginning):
        raise ValueError("a conversation's id is 32 hex digits, or the first of them")
    return f"{PREFIX}:{{{tenant or '*'}.{beginning}*}}{'*' if notes else ''}"
