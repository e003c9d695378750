"""The names under which things lie in Redis. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PREFIX", "SECRET", "Keys", "model"]

#: The second part is the format version of all that lies below it.
PREFIX = "carryon:1"
SECRET = f"{PREFIX}:secret"


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
