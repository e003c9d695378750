"""The commands. Exit codes: 0 good, 1 found wrong, 2 usage or configuration.

A command imports what it runs when it runs: `carryon classify` needs neither a server nor a store.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, BinaryIO, NoReturn

import typer

from proxy import __version__, events
from proxy.commands import records
from proxy.errors import ConfigError, Mistake, WrongError
from proxy.store import StoreConfigError

if TYPE_CHECKING:
    from proxy.settings import Settings

__all__ = ["app", "main"]

app = typer.Typer(
    name="carryon",
    help="A reverse proxy that carries an agent's conversation past the context window.",
    epilog="Begin with: carryon demo, then: carryon serve --upstream http://127.0.0.1:8080/v1",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _whole(text: str) -> int:
    """Read a whole number of an option; what was typed is shown, as typed."""
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise typer.BadParameter(f"{text!r} is not a whole number; write it in digits, such as 4096")
    return int(text)


def _status(text: str | int) -> int:
    """Read an HTTP status; the default comes by here too, as a number."""
    if not re.fullmatch(r"[1-5][0-9][0-9]", str(text)):
        raise typer.BadParameter(f"{text!r} is no HTTP status; write a number from 100 to 599")
    return int(text)


ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The YAML file (else CARRYON_CONFIG names it).")
]
UpstreamOption = Annotated[
    str | None, typer.Option(help="The upstream's base URL, with or without /v1 (default https://api.openai.com/v1).")
]
WindowOption = Annotated[
    int | None,
    typer.Option(parser=_whole, metavar="<int>", help="Context window in tokens, for every model (else it is asked)."),
]
HostOption = Annotated[str | None, typer.Option(help="Address to listen on (default 127.0.0.1).")]
PortOption = Annotated[
    int | None,
    typer.Option(parser=_whole, metavar="<int>", help="Port to listen on (default 8787; 0 takes a free one)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LinesOption = Annotated[bool, typer.Option("--jsonl", help="Read one answer per line: id, status, body, …")]
StatusOption = Annotated[
    int,
    typer.Option(parser=_status, metavar="<int>", help="The HTTP status it came with; 200 for an error inside a 200."),
]
CheckedFile = Annotated[Path, typer.Argument(help="The YAML file to check.")]
AnswerFile = Annotated[
    Path | None, typer.Argument(help="A file with the error's body, or with lines; none or - reads standard input.")
]

#: What the commands look like when used; a blank line begins a new one.
_SERVE = """Examples:

carryon serve --upstream http://127.0.0.1:8080/v1

carryon serve --config carryon.yaml --port 9000

Then point the agent at it: export OPENAI_BASE_URL=http://127.0.0.1:8787/v1"""
_DEMO = "It needs no model, no key and no network, takes some seconds, and leaves nothing behind."
_CHECK = """Examples:

carryon check carryon.yaml

carryon check --json carryon.yaml

Of the numbers it prints, all in tokens: threshold is where a conversation is packed, low_water what packing brings it \
down to, tail its newest part that stays as it is, reserve what is kept free for the reply, surface the most that \
stands in place of the rest."""
_CLASSIFY = """Of what it prints, kind is what the error is, finer than the verdict: too long a context, too large an \
output or body, a rate limit, other. compactable says whether packing the conversation may cure it: no for what is no \
overflow, and where the error's own words say that the requested output fills the window.

Examples:

curl -s "$URL" -d "$BODY" | carryon classify --status 400

carryon classify --jsonl answers.jsonl"""

#: Signs of an error's text where a file was to be named, and how the text is handed over.
_TEXT = (" ", "{")
_PIPE = "echo '…' | carryon classify"


def main() -> None:
    """Run a command; every expected failure is one message and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot spell an arrow shows another sign
    try:
        app(prog_name="carryon")
    except (ConfigError, StoreConfigError) as error:
        _stop(str(error), 2)
    except WrongError as error:
        _stop(str(error), 1)


@app.callback(invoke_without_command=True)
def _root(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False
) -> None:
    if version:
        typer.echo(f"carryon {__version__}")
        raise typer.Exit


@app.command(epilog=_SERVE, context_settings={"allow_extra_args": True})
def serve(
    context: typer.Context,
    *,
    config: ConfigOption = None,
    upstream: UpstreamOption = None,
    window: WindowOption = None,
    host: HostOption = None,
    port: PortOption = None,
) -> None:
    """Run the proxy, in front of one upstream or of those that a file names."""
    _no_words(context.args)
    given = _given(upstream=upstream, window=window, host=host, port=port)
    settings = _settings(config, given)
    events.configure(settings.log.format, settings.log.level)
    from proxy.commands.serve import serve as run  # noqa: PLC0415 - a second of imports that a mistaken file need not wait for

    try:
        whole = run(settings, _source(config), lambda line: typer.echo(line, err=True))
    except (ConfigError, StoreConfigError) as error:
        raise _placed(error, config, given) from error
    raise typer.Exit(0 if whole else 1)


@app.command(epilog=_DEMO)
def demo() -> None:
    """Watch one conversation meet three fates: packed by pressure, rescued from overflow, refused without proof."""
    from proxy.commands.demo.story import tell  # noqa: PLC0415 - see the head of this file

    events.configure("console", "error")
    raise typer.Exit(0 if tell(typer.echo) else 1)


@app.command(epilog=_CHECK)
def check(file: CheckedFile, *, as_json: JsonOption = False) -> None:
    """Check a configuration file and print the effective policy per model."""
    from proxy.commands.check import checked, shown  # noqa: PLC0415 - see the head of this file

    try:
        found = checked(_settings(file))
    except ConfigError as error:
        if not as_json:
            raise
        typer.echo(_json({"mistakes": [_fields(mistake) for mistake in error.mistakes]}))
        raise typer.Exit(2) from None
    typer.echo(_json(found) if as_json else shown(found, str(file)))


@app.command(epilog=_CLASSIFY)
def classify(
    file: AnswerFile = None, *, status: StatusOption = 400, jsonl: LinesOption = False, as_json: JsonOption = False
) -> None:
    """Tell what an upstream's error is: an overflow or not, by which rule, with which numbers."""
    from proxy.commands.classify import lines, one, shown  # noqa: PLC0415 - see the head of this file

    with _opened(file) as data:
        if data.isatty():
            typer.echo("paste the error, then Ctrl-D", err=True)
        if jsonl:
            good = True
            for row, understood in lines(data):
                good = good and understood
                typer.echo(row)
            raise typer.Exit(0 if good else 1)
        found = one(data.read(), status)
    typer.echo(_json(found) if as_json else shown(found))


app.command(epilog=records.INSPECT)(records.inspect)
app.command(epilog=records.EXPORT)(records.export)
app.command(epilog=records.FORGET)(records.forget)


def _later(name: str) -> None:
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.command(name, hidden=True, add_help_option=False, context_settings=anything)
    def refused() -> None:
        _stop(f"{name}: not in this version\n  cure: carryon --help lists the commands of this version", 2)


for _name in ("doctor",):
    _later(_name)


def _given(**options: str | int | None) -> dict[str, str | int]:
    """Return what the command line said, by dotted key."""
    names = {"host": "listen.host", "port": "listen.port"}
    return {names.get(name, name): value for name, value in options.items() if value is not None}


def _settings(config: Path | None, given: Mapping[str, str | int] = MappingProxyType({})) -> Settings:
    from proxy.settings import load  # noqa: PLC0415 - a third of a second that `classify` need not wait for

    return load(config, os.environ, given)


def _placed(error: ConfigError | StoreConfigError, config: Path | None, given: Mapping[str, str | int]) -> ConfigError:
    """Return what the start found wrong as a mistake with file, line, key and cure."""
    from proxy.settings.load import located  # noqa: PLC0415 - see `_settings`

    if isinstance(error, StoreConfigError):
        error = ConfigError(Mistake(key=error.key, message=error.message, cure=error.cure))
    return located(error, config, os.environ, given)


def _fields(mistake: Mistake) -> dict[str, str | int | None]:
    """Return a mistake for JSON: `file` is None for what no file, variable or option says."""
    return {
        "file": mistake.file or None,
        "line": mistake.line,
        "key": mistake.key,
        "message": mistake.message,
        "cure": mistake.cure,
    }


def _source(config: Path | None) -> str:
    named = config or os.environ.get("CARRYON_CONFIG")
    return str(named) if named else "defaults, environment and command line"


def _no_words(words: list[str]) -> None:
    """Refuse what stands behind `serve` without an option: most likely it is the upstream."""
    if words:
        url = words[0].startswith(("http://", "https://"))
        cure = "carryon serve --upstream URL" if url else "carryon serve --help lists the options"
        _stop(f"serve: {'a URL' if url else words[0]} stands without its option\n  cure: {cure}", 2)


def _opened(file: Path | None) -> BinaryIO:
    if file is None or str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        absent = error.errno in {errno.ENOENT, errno.ENAMETOOLONG}
        text = absent and any(sign in str(file) for sign in _TEXT)
        cure = f"name a file, or pipe the text: {_PIPE}" if text else "name a readable file, or none for standard input"
        _stop(f"{file}: cannot be read: {error.strerror}\n  cure: {cure}", 2)


def _stop(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"carryon: {message}\n")
    sys.exit(code)


def _json(data: object) -> str:
    return json.dumps(data, indent=2, default=str)


if __name__ == "__main__":
    main()
