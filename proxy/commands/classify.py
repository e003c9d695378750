"""`carryon classify`: what an upstream's error is, for people and for scripts (rule 12)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from proxy.core.overflow import Kind, Verdict, classify
from proxy.core.overflow_row import classify_row

__all__ = ["lines", "one", "shown"]


def one(body: bytes, status: int) -> dict[str, object]:
    """Classify one error body that came with `status`; a status of success means that it came inside a 200."""
    return _described(classify(status=status, body=body, in_band=200 <= status < 300))


def lines(data: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    """Classify each line of JSON; yields the line to print and whether the input line was understood.

    Empty lines are passed over. A line that is no object, or has no `body`, is answered with its
    number and what is wrong with it.
    """
    for number, line in enumerate(data, start=1):
        if line.strip():
            row = _row(line)
            if isinstance(row, dict):
                yield json.dumps({"id": _name(row.get("id")), **_described(classify_row(row))}), True
            else:
                yield json.dumps({"line": number, "error": row}), False


def shown(found: Mapping[str, object]) -> str:
    """Spell one verdict for people: what is not known is left out."""
    words = {True: "yes", False: "no"}
    return "\n".join(
        f"{name:<12} {words[value] if isinstance(value, bool) else value}"
        for name, value in found.items()
        if value is not None
    )


def _row(line: bytes) -> dict[str, object] | str:
    """Return the object on a line, or what is wrong with the line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(row, dict):
        return "not a JSON object"
    return row if "body" in row else "no body"


def _name(value: object) -> str | int | None:
    return value if isinstance(value, (str, int)) else None


def _described(verdict: Verdict) -> dict[str, object]:
    overflow = verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED
    return {
        "verdict": verdict.kind.value if overflow else Kind.OTHER.value,
        "kind": verdict.kind.value,
        "rule": verdict.rule,
        "limit": verdict.limit,
        "requested": verdict.requested,
        "compactable": overflow and verdict.compactable,
    }
