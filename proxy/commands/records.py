"""How `inspect`, `export` and `forget` are called. They import what they run when they run."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy import events
from proxy.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from proxy.settings import Settings

__all__ = ["EXPORT", "FORGET", "INSPECT", "export", "forget", "inspect"]

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The YAML file of the proxy (else CARRYON_CONFIG names it).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The id in x-carryon-conversation, or the first digits of it.")
]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids, or the first digits of them.")]
TenantOption = Annotated[str, typer.Option(metavar="T", help="Only this tenant: 32 hex digits, or anonymous.")]
RequestOption = Annotated[
    Path | None, typer.Option("--request", metavar="FILE", help="A request's body as the client sends it; - reads it.")
]
CredentialOption = Annotated[
    str, typer.Option(metavar="REF", help="Only the tenant with this credential: env:NAME or file:PATH.")
]
DialectOption = Annotated[str, typer.Option(metavar="D", help="chat, responses or messages (else the body tells it).")]
OlderOption = Annotated[str, typer.Option(metavar="D", help="Those that no request used for so long: 12h, 30d.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them, of every tenant.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_SAME = "It reads the store that serve uses, whether or not serve is running: give it the same --config or variables."
INSPECT = f"""{_SAME} No text of a conversation is shown; export shows it.

Examples:

carryon inspect

carryon inspect 3f9c2a

carryon inspect --tenant anonymous --json | jq '.[].id'

In the table of surfaces, items is how much of the conversation one stands for, put what stands in their place, kept \
the client's own items among it, rung how it was made: prune, S1 to S3 a summary by a model, S4 an outline."""
EXPORT = f"""{_SAME}

Examples:

carryon export 3f9c2a > conversation.jsonl

carryon export --request body.json > packed.json

curl "$BASE_URL/chat/completions" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d @packed.json

With --request it prints the body as Carryon would send it: a conversation that has outgrown its model goes on \
without Carryon. The surface is found by what the request holds; where none applies the body is printed as it came, \
and the exit code is 1."""
FORGET = f"""{_SAME}

Examples:

carryon forget 3f9c2a

carryon forget --older-than 30d --yes

carryon forget --tenant 8d2e61f0c3aa47b59e1d6c0f3b7a2e94

A running Carryon stops using what was forgotten at the conversation's next request; while the store is away it may \
use what it holds. The next overflow packs anew. What was learned of models, such as a window, stays."""


def inspect(
    id_: IdArgument = "", *, tenant: TenantOption = "", config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show which conversations are stored, or the surfaces of one."""
    from proxy.commands.inspect import inspected, listed, shown, shown_list  # noqa: PLC0415 - see above

    if id_ and tenant:
        raise _usage("--tenant", "stands beside an ID", "give one of the two")
    settings = _settings(config)
    if id_:
        described = inspected(settings, id_)
        _say([_json(described)] if as_json else shown(described))
    else:
        rows = listed(settings, tenant)
        _say([_json(rows)] if as_json else shown_list(rows))


def export(
    id_: IdArgument = "",
    *,
    request: RequestOption = None,
    tenant: TenantOption = "",
    credential: CredentialOption = "",
    dialect: DialectOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what is stored of a conversation, or a request as Carryon would send it."""
    from proxy.commands.export import exported, rows  # noqa: PLC0415 - see above

    if bool(id_) is (request is not None):
        message = "an ID and --request exclude each other" if id_ else "an ID or --request FILE is missing"
        raise _usage("export", message, "carryon export ID, or carryon export --request FILE")
    if request is None and (tenant or credential or dialect):
        raise _usage("export", "--tenant, --credential and --dialect go with --request", "leave them out")
    settings = _settings(config)
    if request is not None:
        _request(settings, request, tenant=tenant, credential=credential, dialect=dialect, as_json=as_json)
        return
    described = exported(settings, id_)
    _say([_json(described)] if as_json else map(json.dumps, rows(described)))


def _request(settings: Settings, file: Path, *, tenant: str, credential: str, dialect: str, as_json: bool) -> None:
    from proxy.commands.export import described, projected, whose  # noqa: PLC0415 - see above

    tenants = whose(settings, tenant, credential, os.environ)
    found = projected(settings, _read(file), whose=tenants, dialect=dialect)
    if as_json:
        typer.echo(_json(described(found)))
    else:
        typer.echo(found.body, nl=False)
    typer.echo(f"carryon: {found}", err=True)
    raise typer.Exit(1 if found.entry is None else 0)


def forget(
    ids: IdsArgument = None,
    *,
    tenant: TenantOption = "",
    older_than: OlderOption = "",
    everything: AllOption = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what is stored of conversations."""
    from proxy.commands.forget import Which, seconds  # noqa: PLC0415 - see above
    from proxy.commands.forget import forget as run  # noqa: PLC0415 - see above
    from proxy.commands.kept import counted, wanted  # noqa: PLC0415 - see above

    named = [bool(ids), bool(tenant or older_than), everything]
    if sum(named) != 1:
        message = "several are asked for at a time" if any(named) else "nothing says which"
        raise _usage("forget", message, "give IDs, or --tenant and --older-than, or --all")
    which = Which(ids=tuple(map(wanted, ids or ())), tenant=tenant, older=seconds(older_than) if older_than else None)
    gone = run(_settings(config), which, lambda count: bool(ids) or yes or count == 0 or _agreed(counted(count)))
    if gone is None:
        raise typer.Exit(1)
    typer.echo(_json({"forgotten": len(gone), "ids": gone}) if as_json else f"forgot {counted(len(gone))}")


def _agreed(what: str) -> bool:
    """Ask whoever sits there; nobody there has not agreed."""
    if not sys.stdin.isatty():
        raise _usage("forget", f"would forget {what}", "add --yes")
    return typer.confirm(f"Forget {what}?", err=True)


def _settings(config: Path | None) -> Settings:
    from proxy.settings import load  # noqa: PLC0415 - see above

    events.configure("console", "error")
    return load(config, os.environ)


def _read(file: Path) -> bytes:
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read()
        return file.read_bytes()
    except OSError as error:
        why = error.strerror if error.errno != errno.EISDIR else "it is a directory"
        raise _usage(
            "--request", f"{file} cannot be read: {why}", "name a readable file, or - for standard input"
        ) from error


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def _usage(option: str, message: str, cure: str) -> ConfigError:
    return ConfigError(Mistake(key=option, message=message, cure=cure))


def _json(data: object) -> str:
    return json.dumps(data, indent=2)
