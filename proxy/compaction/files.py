"""Which files a conversation changed and read, found in the arguments of its tool calls. No model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from proxy.dialects import Call

__all__ = ["Files", "merged", "touched"]

#: Paths modified and paths read, each oldest first.
Files = tuple[tuple[str, ...], tuple[str, ...]]

_PATH_KEYS = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "notebook_path",
    "target_file",
    "absolute_path",
    "relative_path",
)
_WRITTEN_KEYS = frozenset(
    {
        "content",
        "contents",
        "new_string",
        "old_string",
        "new_str",
        "old_str",
        "file_text",
        "insert_text",
        "patch",
        "diff",
        "edits",
    }
)
_WRITES = re.compile(
    r"write|edit|patch|create|insert|replace|delete|remove|move|rename|update|append|modify|save|undo", re.IGNORECASE
)
_READS = re.compile(r"read|view|open|cat\b|get|show|list|search|grep|find|glob", re.IGNORECASE)
_PATCH = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete) File:|\*\*\* Move to:|\+\+\+ b/|\+\+\+ (?!b/|/dev/null))[ \t]*(\S[^\n]*)$",
    re.MULTILINE,
)
_REDIRECT = re.compile(
    r"(?:^|[^>&\d])>{1,2}\s*([\w./~-]*[./][\w./~-]+)|\bsed\s+-i\S*\s+(?:'[^']*'|\"[^\"]*\"|\S+)\s+([\w./~-]+)"
)
_SHELL_KEYS = ("command", "cmd", "script", "input")
_LONGEST = 400


def touched(calls: Iterable[Call]) -> Files:
    """The files these calls modified and read, oldest first; the newest mention of a path places it."""
    modified: dict[str, None] = {}
    read: dict[str, None] = {}
    for call in calls:
        for path, writes in _mentions(call):
            known = modified if writes else read
            known.pop(path, None)
            known[path] = None
    return tuple(modified), tuple(path for path in read if path not in modified)


def merged(earlier: Files, later: Files) -> Files:
    """Both together: a later mention places a path anew, and what was modified once is no mere reading."""
    modified = _appended(earlier[0], later[0])
    read = _appended(earlier[1], later[1])
    return modified, tuple(path for path in read if path not in set(modified))


def _appended(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    again = set(later)
    return (*(path for path in earlier if path not in again), *later)


def _mentions(call: Call) -> Iterator[tuple[str, bool]]:
    """Paths in a call's arguments, each with whether the call writes it."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        yield from ((path, True) for path in _headers(call.arguments))
        return
    texts = [text for key in _SHELL_KEYS for text in _texts(value.get(key))]
    verb = texts[0] if texts and texts[0].isidentifier() else ""
    writes = _is_write(call.name, verb, value.keys())
    for key in _PATH_KEYS:
        yield from ((path, writes) for path in _texts(value.get(key)) if _is_path(path))
    for text in (*texts, *(text for key in ("patch", "diff") for text in _texts(value.get(key)))):
        yield from ((path, True) for path in _headers(text))
    for text in texts:
        yield from (
            (one[1] or one[2], True) for one in _REDIRECT.finditer(text) if not (one[1] or "").startswith("/dev/")
        )


def _is_write(name: str, verb: str, keys: Iterable[str]) -> bool:
    """A verb argument says more than the tool's name, and both more than the shape of the arguments."""
    for said in (verb, name):
        if said and _WRITES.search(said) and not (said == name and verb):
            return True
        if said and _READS.search(said):
            return False
    return not _WRITTEN_KEYS.isdisjoint(keys)


def _headers(text: str) -> Iterator[str]:
    return (path for one in _PATCH.finditer(text) if _is_path(path := one[1].rstrip()))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))


def _is_path(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and "\n" not in text and not text.isspace()
