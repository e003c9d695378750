"""The ledger in Redis or Valkey. Order of a call: breaker, connection, first-contact check, scripts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import RedisError

from proxy.store import Commit, Entry, Learned, Record, StoreConfigError, StoreError, blob, durability, index
from proxy.store.bounded import Bounded
from proxy.store.breaker import Breaker, Interval
from proxy.store.durability import Demand
from proxy.store.scripts import CALIBRATION, COMMIT, LIMIT, LOAD, MARK, NOTES, TOUCH, Command
from proxy.store.wire import UNREACHED, Line, Talk, Wire

__all__ = ["RedisLedger", "fingerprint"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

PREFIX = "carryon:1"
SECRET_KEY = f"{PREFIX}:secret"

#: Expiry of record and marks, and the fingerprint, are refreshed at most this often (seconds).
REFRESH = 600.0
NOTES_EXPIRY = 600.0
NOTES_AT_MOST = 64
#: No model has a smaller window: a smaller number in a refusal is something else (SPEC 8.5).
LEAST_LIMIT = 1024
CALIBRATION_RANGE = (0.5, 4.0)
CALIBRATION_WEIGHT = 0.2
#: Entries of remembered records, over all conversations (about 500 bytes each).
REMEMBERED_ENTRIES = 65_536
#: Kept back from a wait for durability, so that its reply arrives before our own deadline (seconds): a server
#: looks for waits that ran out ten times a second.
MARGIN = 0.12
#: How often a confirmation starts over because another commit came between its touch and its load.
CONFIRM_ROUNDS = 3
WARN_EVERY = 30.0

_MARKS = {"proven": "p", "retired": "r", "applied": "a"}


def fingerprint(secret: bytes) -> str:
    """Return what may be stored of a secret: enough to tell two apart, nothing to derive one from."""
    return hmac.new(secret, f"{PREFIX}:fingerprint".encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one conversation, in one hash slot."""

    record: str
    marks: str
    notes: str

    @classmethod
    def of(cls, conversation: str) -> _Keys:
        record = f"{PREFIX}:{{{conversation}}}"
        return cls(record, f"{record}:m", f"{record}:n")


def _model_key(name: str) -> str:
    return f"{PREFIX}:model:{{{name}}}"


class RedisLedger:
    """Implements `proxy.store.Ledger` over one primary reached by URL (`redis://`, `rediss://`, `unix://`).

    Times are seconds. `fingerprint` is that of the secret (see `fingerprint()`), None where nothing else can
    share the server. Raises `StoreConfigError` for an unreadable URL or an unknown durability.
    """

    def __init__(  # noqa: PLR0913 - one keyword per setting of SPEC 11.7
        self,
        url: str,
        *,
        ttl: float = 7 * 86_400.0,
        durability: str = "auto",
        timeout: float = 0.15,
        connect_timeout: float = 1.0,
        wait_timeout: float = 1.5,
        fingerprint: str | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire = Wire(url, connect_timeout=connect_timeout)
        self._demand = _demand(durability)
        self._ttl = ttl
        self._timeout = timeout
        self._wait_timeout = wait_timeout
        self._fingerprint = fingerprint
        self._clock = clock
        self._breaker = Breaker(clock=clock)
        self._trouble = Interval(WARN_EVERY, clock=clock)
        self._doubt = Interval(float("inf"), clock=clock)
        self._check_again = float("-inf")
        self._surfaces: Bounded[tuple[str, str, int, str], bytes] = Bounded(cache_bytes)
        self._records: Bounded[str, tuple[list[Any], Record]] = Bounded(REMEMBERED_ENTRIES)
        self._refreshed: Bounded[tuple[str, str], float] = Bounded(16_384)

    async def start(self) -> None:
        """Check secret and durability; a server that is merely away is a warning, checked at first contact."""
        try:
            await self._wire.call(self._check_all, max(self._timeout, self._wait_timeout))
        except (*UNREACHED, RedisError) as error:
            self._warn(error)

    async def load(self, conversation: str, *, wait: float | None = None) -> Record:
        """Load epoch, generation, index, marks and notes in one round trip."""
        keys = _Keys.of(conversation)

        async def talk(line: Line) -> list[Any]:
            reply: list[Any] = _good(await line.ask(_load(keys)))[0]
            if 0 <= reply[5] < self._refresh_below and self._is_due(conversation, "touch"):
                await line.ask(self._touch(keys))
            return reply

        return self._read(conversation, await self._run(talk, wait))

    def remembered(self, conversation: str) -> Record | None:
        """Return the record as this process last loaded it. Never evidence."""
        held = self._records.get(conversation)
        return held[1] if held else None

    async def surface(self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None) -> bytes | None:
        """Return an entry's stored surface, None where it is absent or does not verify."""
        name = (conversation, epoch, entry.generation, entry.operation)
        held = self._surfaces.get(name)
        if held is not None:
            return held
        command = Command(("HMGET", _Keys.of(conversation).record, "e", f"b:{entry.operation}"))
        stored_epoch, stored = (await self._one(command, wait))[:2]
        if stored is None or stored_epoch != epoch.encode():
            return None
        found = blob.decode(stored)
        if found is not None:
            self._surfaces.put(name, found, len(found))
        return found

    async def commit(
        self, conversation: str, loaded: Record, entry: Entry, surface: bytes, *, wait: float | None = None
    ) -> Commit:
        """Store a replacement if the record is still as loaded (SPEC 5.4). A `StoreError` is ambiguous: load."""
        keys = _Keys.of(conversation)
        command = COMMIT(
            (keys.record, keys.marks),
            loaded.epoch or "",
            loaded.generation,
            os.urandom(16).hex(),
            index.check_operation(entry.operation),
            entry.covered,
            entry.base,
            index.pack(entry),
            blob.encode(surface),
            _milliseconds(self._ttl),
            *index.dropped(loaded.entries, entry.base),
        )
        reply: bytes = await self._one(command, wait)
        return Commit(reply.decode())

    async def confirm(self, conversation: str) -> Record | None:
        """The evidence load: touch, wait for the durability, load, on one connection; None if unconfirmed."""
        keys = _Keys.of(conversation)
        until = asyncio.get_running_loop().time() + self._wait_timeout

        async def talk(line: Line) -> list[Any] | None:
            return await self._confirm(line, keys, until)

        reply = await self._run(talk, self._wait_timeout)
        return None if reply is None else self._read(conversation, reply)

    async def mark(self, conversation: str, operation: str, mark: str) -> None:
        """Note `proven`, `retired` or `applied` about a surface; `applied` is written once in ten minutes."""
        if mark == "applied" and not self._is_due(conversation, operation):
            return
        keys = _Keys.of(conversation)
        refresh = (_milliseconds(self._ttl), self._refresh_below)
        await self._one(MARK((keys.record, keys.marks), _MARKS[mark], operation, *refresh))

    async def note(self, conversation: str, name: str, value: str) -> None:
        """Set one note of the conversation, remove it with an empty value."""
        await self._one(NOTES((_Keys.of(conversation).notes,), name, value, _milliseconds(NOTES_EXPIRY), NOTES_AT_MOST))

    async def learned(self, limit_key: str, calibration_key: str, *, wait: float | None = None) -> Learned:
        """Load the learned limit and the calibration; the keys are digests of what they stand for."""
        commands = (
            Command(("HGET", _model_key(limit_key), "limit")),
            Command(("GET", _model_key(calibration_key))),
        )

        async def talk(line: Line) -> list[Any]:
            return _good(await line.ask(*commands))

        limit, calibration = await self._run(talk, wait)
        try:
            return Learned(limit=int(limit or 0), calibration=float(calibration or 1.0))
        except ValueError as error:
            raise StoreError(self._warn(error)) from error

    async def learn_limit(self, limit_key: str, limit: int) -> None:
        """Lower or set the learned limit (`lua/limit.lua`); below 1,024 it is ignored."""
        if limit >= LEAST_LIMIT:
            await self._one(LIMIT((_model_key(limit_key),), limit, _milliseconds(self._ttl)))

    async def learn_calibration(self, calibration_key: str, ratio: float) -> None:
        """Fold one observed ratio into the calibration; what is not a positive number is ignored."""
        if 0 < ratio < float("inf"):
            await self._one(
                CALIBRATION(
                    (_model_key(calibration_key),),
                    ratio,
                    CALIBRATION_WEIGHT,
                    *CALIBRATION_RANGE,
                    _milliseconds(self._ttl),
                )
            )

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.close()

    # -- one call -------------------------------------------------------------------------------------------

    async def _one(self, command: Command, wait: float | None = None) -> Any:
        async def talk(line: Line) -> Any:
            return _good(await line.ask(command))[0]

        return await self._run(talk, wait)

    async def _run(self, talk: Talk[T], wait: float | None) -> T:
        """Talk to the server; whatever goes wrong becomes a `StoreError`, and one warning per interval."""
        if not self._breaker.allows():
            raise StoreError("Redis is being left alone after repeated failures")

        async def checked(line: Line) -> T:
            await self._check_secret(line)
            return await talk(line)

        try:
            result = await self._wire.call(checked, self._timeout if wait is None else wait)
        except UNREACHED as error:
            self._breaker.failed()
            raise StoreError(self._warn(error)) from error
        except (RedisError, StoreConfigError) as error:  # it answered: an error, or what may not be
            self._breaker.succeeded()
            raise StoreError(self._warn(error)) from error
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return result

    def _warn(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}"
        if self._trouble.due():
            logger.warning("the store failed, traffic flows without it: %s", text)
        return text

    def _read(self, conversation: str, reply: list[Any]) -> Record:
        """Turn the reply of `lua/load.lua` into a record, and remember it."""
        held = self._records.get(conversation)
        if held is not None and held[0][:5] == reply[:5]:
            return held[1]
        try:
            record = _record(reply)
        except ValueError as error:
            raise StoreError(self._warn(error)) from error
        if record.epoch is None:
            self._records.drop(conversation)
        else:
            self._records.put(conversation, (reply, record), 1 + len(record.entries))
        return record

    # -- expiry ---------------------------------------------------------------------------------------------

    @property
    def _refresh_below(self) -> int:
        """Refresh the expiry where fewer milliseconds than this are left."""
        return _milliseconds(max(self._ttl - REFRESH, self._ttl / 2))

    def _touch(self, keys: _Keys) -> Command:
        return TOUCH((keys.record, keys.marks), _milliseconds(self._ttl), self._refresh_below)

    def _is_due(self, conversation: str, what: str) -> bool:
        """Whether ten minutes have passed since this process last did `what` for a conversation."""
        now, last = self._clock(), self._refreshed.get((conversation, what))
        if last is not None and now - last < REFRESH:
            return False
        self._refreshed.put((conversation, what), now)
        return True

    # -- secret and durability ------------------------------------------------------------------------------

    async def _check_all(self, line: Line) -> None:
        await self._check_secret(line)
        if self._demand is not Demand.MEMORY:
            await self._level(line)

    async def _check_secret(self, line: Line) -> None:
        """Claim or compare the secret's fingerprint, at first contact and then every ten minutes (SPEC 5.11)."""
        if self._fingerprint is None or self._clock() < self._check_again:
            return
        expiry = _milliseconds(self._ttl)
        _, stored = _good(
            await line.ask(
                Command(("SET", SECRET_KEY, self._fingerprint, "NX", "PX", expiry)), Command(("GET", SECRET_KEY))
            )
        )
        if stored != self._fingerprint.encode():
            raise StoreConfigError(
                "this Redis holds conversations of another `secret`. "
                "Give every replica the same `secret`, or this one another database in redis.url "
                f"(after a deliberate change: delete the key {SECRET_KEY})."
            )
        _good(await line.ask(Command(("PEXPIRE", SECRET_KEY, expiry))))
        self._check_again = self._clock() + REFRESH

    async def _level(self, line: Line) -> durability.Level:
        if self._demand is Demand.MEMORY:
            return durability.Level.MEMORY
        known = durability.facts(await line.ask(*durability.QUESTIONS))
        level, warning = durability.decide(self._demand, known)
        if warning is not None and self._doubt.due():
            logger.warning("redis.durability is `%s`: %s", self._demand.value, warning)
        return level

    async def _confirm(self, line: Line, keys: _Keys, until: float) -> list[Any] | None:
        """Return a load that is confirmed, None where it is not.

        The wait covers what was written before the touch. A record that has moved on between touch and
        load is therefore not covered, and the whole starts over.
        """
        try:
            level = await self._level(line)
        except StoreConfigError as error:  # since the start the server has changed: nothing is confirmed
            self._warn(error)
            return None
        for _ in range(CONFIRM_ROUNDS):
            touched: list[Any] = _good(await line.ask(self._touch(keys)))[0]
            left = until - asyncio.get_running_loop().time() - MARGIN
            waited = await line.ask(*durability.wait(level, max(1, _milliseconds(left))))
            if touched[0] is not None and not durability.confirmed(level, waited):
                return None
            reply: list[Any] = _good(await line.ask(_load(keys)))[0]
            if touched == reply[:2]:
                return reply
        return None


def _load(keys: _Keys) -> Command:
    return LOAD((keys.record, keys.marks, keys.notes))


def _good(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first that is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def _record(reply: list[Any]) -> Record:
    epoch, generation, packed, marks, notes = reply[:5]
    named = tuple(sorted((_text(name), _text(value)) for name, value in _pairs(notes)))
    if epoch is None:
        return Record(notes=named)
    return Record(
        epoch=_text(epoch),
        generation=int(generation),
        entries=index.marked(index.unpack(packed or b""), dict(_pairs(marks))),
        notes=named,
    )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _demand(durability_setting: str) -> Demand:
    try:
        return Demand(durability_setting)
    except ValueError as error:
        known = ", ".join(f"`{demand.value}`" for demand in Demand)
        raise StoreConfigError(f"redis.durability is `{durability_setting}`; it may be {known}.") from error
