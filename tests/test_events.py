"""The log: one line an event, fields by name, and nothing that breaks a line or shows content."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from proxy.events import configure, emit, ended, place, unhandled, unserved


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Give logging back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("aiohttp.access", "aiohttp.server", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def logged(form: str = "json", level: str = "info", stream: io.StringIO | None = None) -> io.StringIO:
    """Where the lines go from now on."""
    out = stream or io.StringIO()
    configure(form, level, out)
    return out


def test_an_event_is_one_json_line() -> None:
    """Time in UTC, level, event, and the fields that are not None."""
    out = logged()
    emit("request", model="m", tokens=5, ratio=1.5, retried=False, absent=None)
    (line,) = out.getvalue().splitlines()
    value = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value.pop("time"))
    assert value == {"level": "info", "event": "request", "model": "m", "tokens": 5, "ratio": 1.5, "retried": False}


def test_other_loggers_lines_have_their_text_as_the_event() -> None:
    """What libraries say, and what they say beside it."""
    out = logged()
    logging.getLogger("some.library").warning("%s is odd", "this", extra={"conversation": "c"})
    value = json.loads(out.getvalue())
    assert (value["event"], value["level"], value["conversation"]) == ("this is odd", "warning", "c")


def test_a_console_line_is_short() -> None:
    """Clock, event, fields; the level only where it matters."""
    out = logged("console")
    emit("request", model="m", tokens=5)
    emit("trouble", level=logging.WARNING)
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d request model=m tokens=5", first)
    assert second.endswith(" warning: trouble")


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_field_breaks_or_forges_a_line(form: str) -> None:
    """A client names the model: line ends, escapes and lone surrogates stay inside their field."""
    written = io.BytesIO()
    configure(form, "info", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    emit("request", model="m\nforged \x1b[31m \ud800 é")
    lines = written.getvalue().decode().splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert "forged" in lines[0]


@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [("auto", io.StringIO(), True), ("auto", Terminal(), False), ("json", Terminal(), True)],
)
def test_auto_is_for_people_on_a_terminal(form: str, stream: io.StringIO, is_json: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """And for machines everywhere else."""
    emit_to = logged(form, stream=stream)
    emit("x")
    assert emit_to.getvalue().startswith("{") == is_json


def test_the_level_holds_for_everything() -> None:
    """Below it nothing is written; those who print what clients sent are silent."""
    out = logged(level="warning")
    emit("quiet")
    emit("loud", level=logging.WARNING)
    logging.getLogger("aiohttp.server").error("Error handling request %s", b"secret")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_stays_in_its_event(form: str) -> None:
    """Its trace is a field, or follows the line."""
    out = logged(form)
    try:
        dict[str, str]()["k"]
    except KeyError:
        logging.getLogger("x").exception("failed")
    assert "KeyError" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1 or form == "console"


def test_where_an_exception_came_up_is_told_without_its_text() -> None:
    """Its text may hold content."""

    def fails() -> None:
        raise ValueError("secret")

    try:
        fails()
    except ValueError as error:
        told = place(error)
    assert told.startswith("builtins.ValueError at test_events.py:")
    assert "fails" in told
    assert "secret" not in told
    assert place(None) == ""


def test_a_field_is_never_as_long_as_a_client_likes() -> None:
    """It is cut, and says so."""
    out = logged()
    emit("request", model="m" * 100_000)
    assert json.loads(out.getvalue())["model"] == "m" * 1_000 + "…"


def test_a_request_that_goes_nowhere_has_the_line_of_a_request() -> None:
    """A warning with the code of our answer; without one the client left."""
    out = logged()
    unserved(413, "PROXY_BODY_TOO_LARGE")
    unserved(499)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["event"], one["level"], one["status"], one.get("error")) for one in found] == [
        ("request", "warning", 413, "PROXY_BODY_TOO_LARGE"),
        ("request", "info", 499, None),
    ]


async def _fails() -> None:
    raise ValueError("secret")


def _failures(out: io.StringIO) -> list[str]:
    assert "secret" not in out.getvalue()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {(line["event"], line["level"]) for line in lines} <= {("background-failed", "error")}
    return [line["error"] for line in lines]


async def test_a_task_that_nobody_waits_for_tells_its_failure() -> None:
    """Where it came up, once; one that was cancelled or did its work has nothing to tell."""
    out = logged()
    tasks = [asyncio.ensure_future(work) for work in (_fails(), asyncio.sleep(60), asyncio.sleep(0))]
    for task in tasks:
        task.add_done_callback(ended)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    (error,) = _failures(out)
    assert error.startswith("builtins.ValueError at test_events.py:")


async def test_what_fails_where_nobody_looks_is_in_the_log() -> None:
    """A forgotten task, a callback: asyncio's own words are muted, they may hold content."""
    out = logged()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(unhandled)
    task = asyncio.ensure_future(_fails())
    await asyncio.wait([task])
    del task
    gc.collect()
    loop.call_soon(json.loads, "secret")
    loop.call_exception_handler({"message": "Unclosed connection of secret"})
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [error.partition(" ")[0] for error in _failures(out)] == [
        "builtins.ValueError",
        "json.decoder.JSONDecodeError",
    ]
