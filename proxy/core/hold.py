"""Is the held beginning of a reply committing, an overflow, or neither yet? (rule 9.1).

A small state machine over frames: `feed` says None (keep holding), a `Release` (release what is held,
and why) or a `Verdict` (an overflow; nothing was released). What one frame means is told by
`hold_frames`. Once it has decided it answers the same for ever and reads nothing more.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from proxy.core.hold_form import Form, form_of
from proxy.core.hold_frames import DIALECTS, Reading, Signal, reading_of
from proxy.core.overflow import Kind, Verdict, classify
from proxy.core.overflow_frame import fills_window
from proxy.core.overflow_sentence import is_overflow_sentence
from proxy.core.skim import legible
from proxy.core.sse import FrameParser, text_of

if TYPE_CHECKING:
    from re import Pattern

    from proxy.core.sse import Frame

__all__ = ["Hold", "Release"]


class Release(Enum):
    """Why the held bytes may go to the client."""

    CONTENT = "content"  # the first content, reasoning, refusal, audio or tool-call delta
    FINISH = "finish"  # a normal end
    DONE = "done"  # `[DONE]`
    UNKNOWN_EVENT = "unknown-event"  # better released than misread
    ERROR = "error"  # an error that is no overflow; `Hold.verdict` says which
    UNKNOWN_FORM = "unknown-form"  # neither JSON nor events: there is nothing to look for
    ENDED = "ended"  # the reply ended without any of these


#: A reply that has no form after so much white space gets none: it is not looked at from its start for ever.
_MOST_SPACE = 1 << 16
_COMMITS = {
    Signal.CONTENT: Release.CONTENT,
    Signal.FINISH: Release.FINISH,
    Signal.DONE: Release.DONE,
    Signal.UNKNOWN: Release.UNKNOWN_EVENT,
}


class Hold:
    """The decision about one upstream reply with a status below 400.

    `said` is the form that the content type names, None where it names none; `form` is what the first
    bytes showed. `dialect` is `chat`, `responses` or `messages`; `window` in tokens, where it is known,
    lets an empty `length` finish with a full window count as an overflow. `verdict` is what the last
    error was, also where it is no overflow.
    """

    def __init__(
        self,
        *,
        said: Form | None,
        dialect: str,
        overflow_patterns: tuple[Pattern[str], ...] = (),
        window: int | None = None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.decision: Verdict | Release | None = None
        self.form: Form | None = None
        self._said = said
        self._dialect = DIALECTS[dialect]
        self._patterns = overflow_patterns
        self._window = window
        self._frames = FrameParser()
        self._body = bytearray()
        self._suspect: Verdict | None = None  # the first delta was, as a whole, an overflow sentence
        self._cut_short = False
        self._usage: dict[str, Any] = {}

    def feed(self, data: bytes) -> Verdict | Release | None:
        """Take decoded bytes of the reply; None means: keep holding."""
        if self.decision is not None:
            return self.decision
        if self.form is None:
            data = bytes(self._body) + data
            self._body.clear()
            self.form = form_of(data, self._said, ended=len(data) > _MOST_SPACE)
        if self.form is Form.OTHER:
            return self._decide(Release.UNKNOWN_FORM)
        if self.form is not Form.EVENTS:
            self._body += data
            return None
        for frame in self._frames.feed(data):
            if decision := self._frame(frame):
                return self._decide(decision)
        return None

    def end(self) -> Verdict | Release:
        """Decide now: the reply ended while it was held."""
        if self.decision is not None:
            return self.decision
        if self.form is None:
            self.form = form_of(bytes(self._body), self._said, ended=True)
        if self.form is Form.JSON:
            return self._decide(self._whole(text_of(self._body)))
        for frame in self._frames.end():
            if decision := self._frame(frame):
                return self._decide(decision)
        return self._decide(self._suspect or (self._of_usage() if self._cut_short else Release.ENDED))

    def _decide(self, decision: Verdict | Release) -> Verdict | Release:
        self.decision = decision
        if isinstance(decision, Verdict):
            self.verdict = decision
        self._body.clear()
        return decision

    def _whole(self, text: str) -> Verdict | Release:
        verdict = classify(status=200, body=legible(text), in_band=True, patterns=self._patterns, window=self._window)
        if verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED:
            return verdict
        if verdict.rule in ("finish", "no-error", "empty"):
            return Release.FINISH
        self.verdict = verdict
        return Release.ERROR

    def _frame(self, frame: Frame) -> Verdict | Release | None:
        reading = reading_of(frame, self._dialect)
        if reading.usage:
            self._usage |= reading.usage
        if (reading.signal is Signal.ERROR or reading.doubtful) and (found := self._error(frame, reading)):
            return found
        if reading.signal is Signal.OVERFLOW:
            return self._suspect or Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="finish:context")
        if self._cut_short:
            return self._after_cut(reading)
        if reading.signal is Signal.CUT_SHORT:
            return self._cut(reading)
        return self._ordinary(reading)

    def _ordinary(self, reading: Reading) -> Verdict | Release | None:
        if reading.signal is Signal.QUIET:
            return None
        if reading.signal is Signal.CONTENT and self._suspect is None and is_overflow_sentence(reading.text):
            self._suspect = classify(status=400, body=reading.text, patterns=self._patterns)
            return None  # an error, or the end, confirms it; more content refutes it
        if self._suspect is not None and reading.signal in (Signal.FINISH, Signal.DONE):
            return self._suspect
        return _COMMITS[reading.signal]

    def _error(self, frame: Frame, reading: Reading) -> Verdict | Release | None:
        verdict = classify(
            status=200, body=legible(frame.data), event=frame.event or None, in_band=True, patterns=self._patterns
        )
        if verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED:
            return verdict
        if reading.doubtful:
            return None  # as if nobody had asked
        self.verdict = verdict
        return Release.ERROR

    def _cut(self, reading: Reading) -> Verdict | Release | None:
        if self._suspect is not None:
            return self._suspect
        if self._window is None:
            return Release.FINISH
        if reading.usage:
            return self._of_usage()
        self._cut_short = True
        return None

    def _after_cut(self, reading: Reading) -> Verdict | Release | None:
        if reading.usage or reading.signal in (Signal.DONE, Signal.FINISH):
            return self._of_usage()
        return None if reading.signal in (Signal.QUIET, Signal.CUT_SHORT) else _COMMITS[reading.signal]

    def _of_usage(self) -> Verdict | Release:
        if fills_window(self._usage, self._window):
            return Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="finish:length")
        return Release.FINISH
