"""What happened, for the log: one line an event, JSON or console, and never content.

Fields are named by the caller; values are words and numbers. No body, no header value and no text
of a conversation is ever a field (rule 13.2).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from typing import Any, TextIO

__all__ = ["configure", "emit", "ended", "place", "unhandled", "unserved"]

_LOG = logging.getLogger("carryon")
#: Attributes every record has: all others were given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event", "taskName"}
#: Loggers that print what clients sent. What `asyncio` has to say of failures comes through `unhandled` instead.
_SILENT = ("aiohttp.access", "aiohttp.server", "asyncio")

#: Characters of a field; the place of a fault may need many.
_LONGEST = 1_000

Field = str | int | float | bool | None


def emit(event: str, *, level: int = logging.INFO, **fields: Field) -> None:
    """Log one event. Fields that are None are left out, long ones cut: a client may name a model as long as a book."""
    known = {name: _short(value) for name, value in fields.items() if value is not None}
    _LOG.log(level, event, extra={"event": event, **known})


def _short(value: Field) -> Field:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value


def unserved(status: int, code: str | None = None) -> None:
    """Log the line of a request that never reached the exchange: its status, and the code of our own answer."""
    emit("request", level=logging.WARNING if code else logging.INFO, copies=0, status=status, error=code)


def place(error: BaseException | None) -> str:
    """Where and as what an exception came up, without its text: that may hold content."""
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__module__}.{type(error).__qualname__} at {where}"


def ended(task: asyncio.Task[Any]) -> None:
    """Log the failure of a task that nobody waits for; a callback for `add_done_callback`."""
    if not task.cancelled() and task.exception() is not None:
        emit("background-failed", level=logging.ERROR, error=place(task.exception()))


def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failure that came up where nobody waits, a loop's exception handler.

    Without an exception it is no failure (a connection that its owner forgot), and its words may hold content.
    """
    error = context.get("exception")
    if isinstance(error, BaseException):
        emit("background-failed", level=logging.ERROR, error=place(error))


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Set up logging for the process: `form` is `json`, `console` or `auto` (console on a terminal)."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    plain = form == "console" or (form == "auto" and out.isatty())
    handler.setFormatter(_Console() if plain else _Json())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _shown(value: object) -> str:
    """A value on one line: a client names the model, and could break or forge lines with it."""
    text = str(value)
    return text if text.isascii() and text.isprintable() else json.dumps(text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = place(record.exc_info[1])
        return json.dumps(line, default=str)  # ASCII: a model's name may hold what the stream cannot spell


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        named = " ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        text = f"{clock} {mark}{record.getMessage()} {named}".rstrip()
        return f"{text} exception={place(record.exc_info[1])}" if record.exc_info else text
