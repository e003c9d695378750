"""How a server is asked to confirm that a write will survive it (rule 5.6). Pure: questions in, decisions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from proxy.store import StoreConfigError
from proxy.store.scripts import Command

__all__ = ["QUESTIONS", "Demand", "Facts", "Level", "confirmed", "decide", "facts", "wait"]


class Level(Enum):
    """What a confirmed write survives: nothing, the server's crash, the server's loss."""

    MEMORY = "memory"
    AOF = "aof"
    REPLICA = "replica"


class Demand(Enum):
    """The setting `redis.durability`: a level, or the best that is at hand."""

    MEMORY = "memory"
    AOF = "aof"
    REPLICA = "replica"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a server said of itself; None where it would not say."""

    append_only: bool | None
    fsync: str | None
    waits: bool | None
    replicas: int | None


#: Asked anew for every confirmation: after a failover another server answers.
QUESTIONS = (
    Command(("INFO", "persistence")),
    Command(("INFO", "replication")),
    Command(("CONFIG", "GET", "appendfsync")),
    Command(("COMMAND", "INFO", "WAITAOF")),
)


def facts(replies: Sequence[object]) -> Facts:
    """Read the replies to `QUESTIONS`; a refusal among them (a managed server hides CONFIG) is a None."""
    persistence, replication, fsync, command = replies
    enabled, replicas = _field(persistence, b"aof_enabled"), _field(replication, b"connected_slaves")
    return Facts(
        append_only=None if enabled is None else enabled == b"1",
        fsync=fsync[1].decode() if isinstance(fsync, list) and len(fsync) > 1 else None,
        waits=command != [None] if isinstance(command, list) else None,
        replicas=None if replicas is None else int(replicas),
    )


def _field(info: object, name: bytes) -> bytes | None:
    """Return one field of an INFO reply."""
    if not isinstance(info, bytes):
        return None
    lines = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    return lines.get(name)


def decide(demand: Demand, known: Facts) -> tuple[Level, str | None]:
    """Return the level this server is held to, and a warning where it is less than wished.

    Raises `StoreConfigError` where a demanded level cannot be given. What a server hides is taken to be
    there: a wait that is not answered confirms nothing, so the mistake refuses retries and never allows one.
    """
    lack = _lack(known)
    if demand is Demand.AUTO:
        return (Level.AOF, _doubt(known)) if lack is None else (Level.MEMORY, f"{lack}; durability is `memory`")
    if demand is Demand.AOF and lack is not None:
        raise StoreConfigError(
            f"is `aof`, but {lack}",
            key="redis.durability",
            cure="turn the append-only file on (appendonly yes, appendfsync everysec or always; "
            "Redis 7.2 or newer, or Valkey), or set redis.durability to `auto`",
        )
    if demand is Demand.REPLICA and known.replicas == 0:
        raise StoreConfigError(
            "is `replica`, but no replica is connected to the server",
            key="redis.durability",
            cure="connect one, or set redis.durability to `auto`",
        )
    return Level(demand.value), None


def _lack(known: Facts) -> str | None:
    """Return why `aof` cannot be had, None where it can."""
    if known.append_only is False:
        return "the server's append-only file is off"
    if known.fsync == "no":
        return "the server's appendfsync is `no`"
    if known.waits is False:
        return "the server has no WAITAOF command"
    return None


def _doubt(known: Facts) -> str | None:
    if known.fsync is not None:
        return None
    return (
        "the server does not say its appendfsync; durability is `aof` "
        "(if it is `no`, nothing is ever confirmed: then set redis.durability to `memory`)"
    )


def wait(level: Level, milliseconds: int) -> tuple[Command, ...]:
    """Return the command that waits until this connection's writes are as safe as `level` says."""
    if level is Level.AOF:
        return (Command(("WAITAOF", 1, 0, milliseconds)),)
    if level is Level.REPLICA:
        return (Command(("WAIT", 1, milliseconds)),)
    return ()


def confirmed(level: Level, replies: Sequence[object]) -> bool:
    """Whether the reply to `wait` confirms; an error reply never does."""
    if level is Level.MEMORY:
        return True
    reply = replies[0]
    if level is Level.AOF:
        return isinstance(reply, list) and reply[0] >= 1
    return isinstance(reply, int) and reply >= 1
