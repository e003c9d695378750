"""The ledger in Redis or Valkey: what each method of `Ledger` sends, and what it makes of the reply."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from proxy.core.meter import CALIBRATION_RANGE
from proxy.store import Commit, Entry, Learned, Record, StoreConfigError, blob, durability, index, keys, replies
from proxy.store.bounded import Bounded
from proxy.store.catalogue import Catalogue
from proxy.store.contact import REFRESH, Contact, Terms, answered, fingerprint, milliseconds
from proxy.store.keys import Keys
from proxy.store.lanes import Lanes
from proxy.store.scripts import CALIBRATION, COMMIT, LEASE, LIMIT, LOAD, MARK, NOTES, TOUCH, Command
from proxy.store.sealing import Seals
from proxy.store.wire import Line

__all__ = ["RedisLedger", "fingerprint"]

NOTES_EXPIRY = 600.0
NOTES_AT_MOST = 256
#: No model has a smaller window: a smaller number in a refusal is something else (rule 8.5).
LEAST_LIMIT = 1024
CALIBRATION_WEIGHT = 0.2
#: Surfaces that a process holds at most, in bytes.
SURFACE_BYTES = 64 * 1024 * 1024
#: Entries of remembered records, over all conversations (about 500 bytes each).
REMEMBERED_ENTRIES = 65_536
REMEMBERED_REFRESHES = 16_384
#: Kept back from a wait for durability, so that its reply arrives before our own deadline (seconds): a server
#: looks for waits that ran out ten times a second.
MARGIN = 0.12
#: How often a confirmation starts over because another commit came between its touch and its load.
CONFIRM_ROUNDS = 3

_MARKS = {"proven": "p", "retired": "r", "applied": "a"}


class RedisLedger:
    """Implements `proxy.store.Ledger` over one primary reached by URL (`redis://`, `rediss://`, `unix://`).

    Times are seconds; `seals` hold the keys of what is stored; `fingerprint` is that of the secret, None where nobody
    else can share the server.
    Raises `StoreConfigError` for an unreadable URL or an unknown durability.
    """

    def __init__(
        self,
        url: str,
        *,
        seals: Seals,
        ttl: float = 7 * 86_400.0,
        durability: str = "auto",
        timeout: float = 0.15,
        connect_timeout: float = 1.0,
        wait_timeout: float = 1.5,
        fingerprint: str | None = None,
        surface_bytes: int = SURFACE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms = Terms(
            ttl=ttl,
            durability=durability,
            timeout=timeout,
            connect_timeout=connect_timeout,
            wait_timeout=wait_timeout,
            fingerprint=fingerprint,
        )
        self._contact = Contact(url, self._terms, clock=clock)
        self._clock = clock
        self._seals = seals
        self.lanes = Lanes()
        self.catalogue = Catalogue(self._contact, self._forget)
        self._surfaces: Bounded[tuple[str, str, int, str], bytes] = Bounded(surface_bytes)
        self._records: Bounded[str, tuple[replies.Loaded, Record]] = Bounded(REMEMBERED_ENTRIES)
        self._refreshed: Bounded[tuple[str, str], float] = Bounded(REMEMBERED_REFRESHES)
        self._ttl = milliseconds(self._terms.ttl)
        #: The expiry is refreshed where fewer milliseconds than this are left.
        self._refresh_below = max(self._ttl - milliseconds(REFRESH), self._ttl // 2)

    @property
    def away(self) -> bool:
        """Whether Redis failed at the start, or several calls in a row, and has not answered since."""
        return self._contact.breaker.away

    async def start(self) -> None:
        """Check secret and durability. Raises `StoreConfigError`; a server that is merely away is no error."""
        await self._contact.start()

    async def load(self, conversation: str, *, wait: float | None = None) -> Record:
        """Load epoch, generation, index, marks and notes in one round trip."""
        names = Keys.of(conversation)

        async def talk(line: Line) -> Record:
            reply = replies.loaded(answered(await line.ask(_load(names)))[0])
            if 0 <= reply[5] < self._refresh_below and self._is_due(conversation, "touch"):
                await line.ask(self._touch(names))
            return self._read(conversation, reply)

        return await self._contact.run(talk, wait)

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
        command = Command(("HMGET", Keys.of(conversation).record, "e", f"b:{entry.operation}"))
        stored_epoch, stored = await self._contact.one(command, wait, read=replies.stored)
        if stored is None or stored_epoch != epoch.encode():
            return None
        found = blob.decode(stored, self._seals, _place(conversation, epoch, entry))
        if found is not None:
            self._surfaces.put(name, found, len(found))
        return found

    async def commit(
        self, conversation: str, loaded: Record, entry: Entry, surface: bytes, *, wait: float | None = None
    ) -> Commit:
        """Store a replacement if the record is still as loaded (rule 5.4). A `StoreError` is ambiguous: load."""
        names = Keys.of(conversation)
        proposed = os.urandom(16).hex()
        command = COMMIT(
            (names.record, names.marks),
            loaded.epoch or "",
            loaded.generation,
            proposed,
            index.check_operation(entry.operation),
            entry.covered,
            entry.base,
            index.pack(entry),
            blob.encode(surface, self._seals, _place(conversation, loaded.epoch or proposed, entry)),
            self._ttl,
            *index.dropped(loaded.entries, entry.base),
        )
        return await self._contact.one(command, wait, read=replies.commit)

    async def confirm(self, conversation: str, *, wait: float | None = None) -> Record | None:
        """Touch, wait for the durability and load, on one connection; None where it is not confirmed."""
        names = Keys.of(conversation)
        most = self._terms.wait_timeout if wait is None else min(wait, self._terms.wait_timeout)
        until = asyncio.get_running_loop().time() + most

        async def talk(line: Line) -> Record | None:
            reply = await self._confirmed(line, names, until)
            return None if reply is None else self._read(conversation, reply)

        return await self._contact.run(talk, most)

    async def mark(self, conversation: str, operation: str, mark: str) -> None:
        """Note `proven`, `retired` or `applied` about a surface; `applied` is written once in ten minutes."""
        if mark == "applied" and not self._is_due(conversation, operation):
            return
        names = Keys.of(conversation)
        command = MARK((names.record, names.marks), _MARKS[mark], operation, self._ttl, self._refresh_below)
        await self._contact.tell(command)

    async def note(self, conversation: str, name: str, value: str, *, wait: float | None = None) -> None:
        """Set one note of the conversation, remove it with an empty value."""
        names = Keys.of(conversation)
        await self._contact.tell(NOTES((names.notes,), name, value, milliseconds(NOTES_EXPIRY), NOTES_AT_MOST), wait)

    async def claim(self, conversation: str, name: str, owner: str, seconds: float) -> bool:
        """Take a lease among the notes of the conversation; False where another holds it."""
        expiry, keys_ = milliseconds(NOTES_EXPIRY), (Keys.of(conversation).notes,)
        command = LEASE(keys_, name, owner, seconds, expiry, NOTES_AT_MOST)
        return await self._contact.one(command, read=replies.taken)

    async def learned(self, limit_key: str, calibration_key: str, *, wait: float | None = None) -> Learned:
        """Load the learned limit and the calibration; the keys are digests of what they are shared by."""
        commands = (
            Command(("HGET", keys.model(limit_key), "limit")),
            Command(("GET", keys.model(calibration_key))),
        )

        async def talk(line: Line) -> Learned:
            return replies.learned(await line.ask(*commands))

        return await self._contact.run(talk, wait)

    async def learn_limit(self, limit_key: str, limit: int, window: int = 0) -> None:
        """Lower or set the learned limit (`lua/limit.lua`); below 1,024 it is ignored."""
        if limit >= LEAST_LIMIT:
            await self._contact.tell(LIMIT((keys.model(limit_key),), limit, self._ttl, window))

    async def learn_calibration(self, calibration_key: str, ratio: float) -> None:
        """Fold one observed ratio into the calibration; what is not a positive number is ignored."""
        if 0 < ratio < float("inf"):
            name = keys.model(calibration_key)
            await self._contact.tell(CALIBRATION((name,), ratio, CALIBRATION_WEIGHT, *CALIBRATION_RANGE, self._ttl))

    async def close(self) -> None:
        """Close all connections."""
        await self._contact.close()

    def _read(self, conversation: str, reply: replies.Loaded) -> Record:
        """Turn the reply of `lua/load.lua` into a record, and remember it."""
        held = self._records.get(conversation)
        if held is not None and held[0][:5] == reply[:5]:
            return held[1]
        record = replies.record(reply)
        if held is not None and held[1].epoch != record.epoch:  # it was forgotten, expired or lost
            self._forget(conversation)
        if record.epoch is not None:
            self._records.put(conversation, (reply, record), 1 + len(record.entries))
        return record

    def _forget(self, conversation: str) -> None:
        """Hold nothing more of a conversation that is not stored any more: neither its record nor a surface."""
        self._records.drop(conversation)
        self._surfaces.drop_each(lambda name: name[0] == conversation)

    def _touch(self, names: Keys) -> Command:
        return TOUCH((names.record, names.marks), self._ttl, self._refresh_below)

    def _is_due(self, conversation: str, what: str) -> bool:
        """Whether ten minutes have passed since this process last did `what` for a conversation."""
        now, last = self._clock(), self._refreshed.get((conversation, what))
        if last is not None and now - last < REFRESH:
            return False
        self._refreshed.put((conversation, what), now)
        return True

    async def _confirmed(self, line: Line, names: Keys, until: float) -> replies.Loaded | None:
        """Return a load that is confirmed, None where it is not.

        The wait covers what was written before the touch. A record that has moved on between touch and
        load is therefore not covered, and the whole starts over.
        """
        try:
            level = await self._contact.level(line)
        except StoreConfigError as error:  # since the start the server has changed: nothing is confirmed
            self._contact.warn(error)
            return None
        for _ in range(CONFIRM_ROUNDS):
            touched: list[Any] = answered(await line.ask(self._touch(names)))[0]
            left = until - asyncio.get_running_loop().time() - MARGIN
            waited = await line.ask(*durability.wait(level, max(1, milliseconds(left))))
            if touched[0] is not None and not durability.confirmed(level, waited):
                return None
            reply = replies.loaded(answered(await line.ask(_load(names)))[0])
            if touched == reply[:2]:
                return reply
        return None


def _place(conversation: str, epoch: str, entry: Entry) -> tuple[str | bytes, ...]:
    """Where a surface lies, which its seal is bound to; the epoch as loaded, or as proposed for a new record."""
    return Keys.of(conversation).record, epoch, entry.operation, entry.digest


def _load(names: Keys) -> Command:
    return LOAD((names.record, names.marks, names.notes))
