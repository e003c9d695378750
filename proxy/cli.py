"""The commands. Exit codes: 0 good, 1 found wrong, 2 usage or configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from proxy import __version__, events
from proxy.errors import ConfigError
from proxy.settings import Settings, load
from proxy.store import StoreConfigError

__all__ = ["app", "main"]

app = typer.Typer(
    name="carryon",
    help="A reverse proxy that carries an agent's conversation past the context window.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="The YAML file (else CARRYON_CONFIG names it).")]
UpstreamOption = Annotated[str | None, typer.Option(help="The upstream's base URL, with or without /v1.")]
WindowOption = Annotated[int | None, typer.Option(help="Context window in tokens, for every model (else it is asked).")]
HostOption = Annotated[str | None, typer.Option(help="Address to listen on (default 127.0.0.1).")]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on (default 8787; 0 takes a free one).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run a command; every expected failure is one message and an exit code."""
    try:
        app()
    except (ConfigError, StoreConfigError) as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("stopped", 130)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False) -> None:
    if version:
        typer.echo(f"carryon {__version__}")
        raise typer.Exit


@app.command()
def serve(
    config: ConfigOption = None,
    upstream: UpstreamOption = None,
    window: WindowOption = None,
    host: HostOption = None,
    port: PortOption = None,
) -> None:
    """Run the proxy. `carryon serve --upstream http://127.0.0.1:8080/v1` needs no file."""
    from proxy.serve import serve as run  # noqa: PLC0415 - half a second of imports no other command needs

    settings = _settings(config, upstream=upstream, window=window, host=host, port=port)
    events.configure(settings.log.format, settings.log.level)
    try:
        whole = run(settings, _source(config), lambda line: typer.echo(line, err=True))
    except OSError as error:
        _stop(f"cannot listen: {error.strerror or error}\n  cure: choose another --port, or end what listens there", 2)
    raise typer.Exit(0 if whole else 1)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The YAML file to check.")], as_json: JsonOption = False) -> None:
    """Check a configuration file and print the effective policy per model."""
    from proxy.effective import describe  # noqa: PLC0415

    found = describe(_settings(file))
    typer.echo(_json(found) if as_json else found)


def _settings(config: Path | None, **given: str | int | None) -> Settings:
    names = {"host": "listen.host", "port": "listen.port"}
    wanted = {names.get(name, name): value for name, value in given.items() if value is not None}
    return load(config, os.environ, wanted)


def _source(config: Path | None) -> str:
    named = config or os.environ.get("CARRYON_CONFIG")
    return str(named) if named else "defaults, environment and command line"


def _stop(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"carryon: {message}\n")
    sys.exit(code)


def _json(data: object) -> str:
    import json  # noqa: PLC0415

    return json.dumps(data, indent=2, default=str)


if __name__ == "__main__":
    main()
