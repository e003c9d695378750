"""Where a transcript stood, spelled short, and which transcripts go on from there. Pure.

What is noted of an attempt must be found again by the next turns of the same dialogue and by no other, however
many share its record: by the digest of what was there, as a surface is (rules 4.3, 6.8, 9.3).
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.identity import covered_digests
from proxy.core.transcript import Transcript

__all__ = ["depth", "passed", "place"]

_HEX = 32


def place(transcript: Transcript) -> str:
    """Name where a transcript stands, `<significant items>:<digest>`; empty for one without any."""
    covered = len(transcript.significant)
    return _spelled(covered, covered_digests(transcript.digests, (covered,))[covered]) if covered else ""


def depth(place: str) -> int:
    """How many significant items stand at a place; 0 where it is none."""
    covered = place.partition(":")[0]
    return int(covered) if covered.isascii() and covered.isdecimal() and len(covered) < _HEX else 0


def passed(transcript: Transcript, places: Iterable[str]) -> frozenset[str]:
    """Those of the places that this transcript passed or stands at."""
    wanted = {place: depth(place) for place in places}
    found = covered_digests(transcript.digests, wanted.values())
    return frozenset(
        at for at, covered in wanted.items() if covered in found and at == _spelled(covered, found[covered])
    )


def _spelled(covered: int, digest: bytes) -> str:
    return f"{covered}:{digest.hex()[:_HEX]}"
