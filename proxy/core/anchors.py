"""What the upstream counted of a dialogue's last request is exact: its next request is measured by that.

The anchor is a calibration of the dialogue's own, so that one number stands on both sides of every comparison:
what was counted keeps its count, and only what is new is estimated.
"""

from __future__ import annotations

from proxy.core.chain import depth, passed, place
from proxy.core.known import Known
from proxy.core.meter import CALIBRATION_RANGE
from proxy.core.transcript import Transcript

__all__ = ["Anchors"]

_CONVERSATIONS = 10_000
#: Dialogues that begin alike share a conversation: so many of them are told apart.
_DIALOGUES = 16


class Anchors:
    """Calibrations of dialogues, by conversation and place, in this process."""

    def __init__(self) -> None:
        self._known: Known[str, dict[str, float]] = Known(_CONVERSATIONS)

    def put(self, conversation: str, transcript: Transcript, ratio: float) -> None:
        """Note that the upstream counted `ratio` times what the meter estimated of this request."""
        low, high = CALIBRATION_RANGE
        if not low <= ratio <= high:
            return
        held = self._known.get(conversation) or {}
        gone = passed(transcript, held)  # earlier turns of the same dialogue
        kept = [(at, one) for at, one in held.items() if at not in gone][1 - _DIALOGUES :]
        self._known.put(conversation, {**dict(kept), place(transcript): ratio})

    def get(self, conversation: str, transcript: Transcript) -> float | None:
        """The calibration of the turn of this dialogue that was counted last; None where none was."""
        held = self._known.get(conversation)
        found = passed(transcript, held) if held else ()
        return held[max(found, key=depth)] if held and found else None
