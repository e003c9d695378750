"""What Carryon says when it must answer itself: mistakes in its configuration, and its own HTTP answers."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["STATUSES", "Answer", "ConfigError", "Mistake", "WrongError"]

#: Mistakes that are spelled out; nobody reads hundreds.
_SHOWN = 20
#: The statuses Carryon may answer on its own account (rule 3.5). 500 is not among them.
STATUSES = frozenset({400, 401, 403, 404, 408, 413, 417, 426, 431, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake in the configuration: where it stands, what is wrong, how to mend it.

    `file` is a path, or the name of an environment variable, or an option (`--port`); `line` counts from 1
    and is None outside files. `key` is dotted (`models[1].like`), empty for the file as a whole.
    """

    key: str
    message: str
    cure: str
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Say it in two lines: where and what, then the cure."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = ": ".join(part for part in (place, self.key) if part)
        return f"{_printable(f'{where}: {self.message}')}\n  cure: {_printable(self.cure)}"


def _printable(text: str) -> str:
    """Return a text that changes nothing on a terminal and stays on its line."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


class ConfigError(Exception):
    """The configuration is wrong; nothing was started. `str()` lists every mistake with its cure."""

    def __init__(self, *mistakes: Mistake) -> None:
        """Take at least one mistake, in the order in which they are shown."""
        more = len(mistakes) - _SHOWN
        rest = [f"and {more} more; mend these first"] if more > 0 else []
        super().__init__("\n".join([*map(str, mistakes[:_SHOWN]), *rest]))
        self.mistakes = mistakes

    @property
    def file(self) -> str:
        """The file (or variable) of the first mistake."""
        return self.mistakes[0].file

    @property
    def line(self) -> int | None:
        """The line of the first mistake."""
        return self.mistakes[0].line

    @property
    def key(self) -> str:
        """The dotted key of the first mistake."""
        return self.mistakes[0].key

    @property
    def message(self) -> str:
        """What is wrong first."""
        return self.mistakes[0].message

    @property
    def cure(self) -> str:
        """How to mend the first mistake."""
        return self.mistakes[0].cure


class WrongError(Exception):
    """What a command was asked for is not so: it ends with 1."""

    def __init__(self, message: str, cure: str) -> None:
        """Take both in small letters, without a final stop; `cure` is an order."""
        super().__init__(f"{_printable(message)}\n  cure: {_printable(cure)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of Carryon itself. `code` begins with `PROXY_` and is also the header `x-carryon-error`.

    `headers` are further reply headers (`Retry-After`). The message is fixed text and configured names, never input.
    """

    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse to build an answer that rule 3.5 rules out."""
        if self.status not in STATUSES:
            raise ValueError(f"Carryon does not answer {self.status} itself")
        if not self.code.startswith("PROXY_"):
            raise ValueError(f"{self.code} does not begin with PROXY_")

    def body(self, dialect: str | None = None) -> bytes:
        """Return the JSON body in the error shape of `dialect` (`chat`, `responses`, `messages`; None: chat)."""
        error: dict[str, object]
        if dialect == "messages":
            error = {"type": "carryon_error", "message": self.message, "code": self.code}
            return json.dumps({"type": "error", "error": error}).encode()
        error = {"message": self.message, "type": "carryon_error", "param": None, "code": self.code}
        return json.dumps({"error": error}).encode()
