"""What is stored of all conversations, for operators: listed, read, forgotten.

Listing walks the server's keys with SCAN: never KEYS, which would stop everybody. Reading here refreshes no expiry
and fills no memory of this process: whoever looks changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from proxy.store import Record, keys, replies
from proxy.store.contact import Contact, answered
from proxy.store.keys import Keys
from proxy.store.scripts import LOAD, Command
from proxy.store.wire import Line

__all__ = ["START", "Catalogue", "Kept", "Page"]

#: Where a walk begins; it has ended when this is the cursor that comes back.
START = "0"
#: Keys that the server looks at for one answer: well under a millisecond of its time.
STEP = 1_000
#: Records that are loaded in one round trip.
TOGETHER = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some conversations (a walk may name one twice), and the cursor of the next page: `START` after the last."""

    names: tuple[str, ...]
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One conversation as it is stored; `expires` are the seconds until it goes by itself, None where it does not."""

    conversation: str
    record: Record
    expires: float | None

    @property
    def applied(self) -> int:
        """When any of its surfaces was last used or made, in Unix seconds."""
        return max((max(entry.applied, entry.at) for entry in self.record.entries), default=0)


class Catalogue:
    """All conversations of one store. Every method raises `StoreError` and nothing else when the store fails.

    `wait` are seconds for one call to the store; `forgotten` is told of each conversation that was forgotten here.
    """

    def __init__(self, contact: Contact, forgotten: Callable[[str], None] = lambda _: None) -> None:
        self._contact = contact
        self._forgotten = forgotten

    async def page(
        self,
        cursor: str = START,
        *,
        tenant: str = "",
        beginning: str = "",
        notes: bool = False,
        count: int = STEP,
        wait: float | None = None,
    ) -> Page:
        """Take one step of a walk, over about `count` keys: conversations of a tenant (else of all) whose id begins so.

        With `notes` also those of which only notes are stored. Raises ValueError where one of these is none.
        """
        pattern = keys.pattern(tenant, beginning, notes=notes)
        command = Command(("SCAN", cursor, "MATCH", pattern, "COUNT", count))
        after, found = await self._contact.one(command, wait, read=replies.scanned)
        names = dict.fromkeys(name for key in found if (name := keys.conversation(key)) is not None)
        return Page(names=tuple(names), cursor=after)

    async def names(
        self, *, tenant: str = "", beginning: str = "", notes: bool = False, wait: float | None = None
    ) -> AsyncIterator[str]:
        """Walk them all, each once."""
        seen: set[str] = set()
        cursor = START
        while True:
            page = await self.page(cursor, tenant=tenant, beginning=beginning, notes=notes, wait=wait)
            for name in page.names:
                if name not in seen:
                    seen.add(name)
                    yield name
            cursor = page.cursor
            if cursor == START:
                return

    async def read(self, conversations: Sequence[str], *, wait: float | None = None) -> list[Kept]:
        """Read records; those that are gone, or hold nothing of ours, are left out."""
        found: list[Kept] = []
        left = iter(conversations)
        while names := tuple(islice(left, TOGETHER)):
            loaded = await self._contact.run(partial(_loaded, names=names), wait)
            kept = (_kept(name, reply) for name, reply in zip(names, loaded, strict=True))
            found += [one for one in kept if one is not None]
            await asyncio.sleep(0)  # unpacking fifty full records takes milliseconds: others come first
        return found

    async def forget(self, conversations: Sequence[str], *, wait: float | None = None) -> list[str]:
        """Delete record, marks and notes of each; return those of which there was a record.

        What may be stored of one later is another record, under another epoch (rule 5.3).
        """
        gone: list[str] = []
        left = iter(conversations)
        while names := tuple(islice(left, TOGETHER)):
            there = await self._contact.run(partial(_deleted, names=names), wait)
            for name in names:
                self._forgotten(name)
            gone += [name for name, was in zip(names, there, strict=True) if was]
        return gone


async def _deleted(line: Line, names: Sequence[str]) -> list[bool]:
    """Delete them in one write: a server that makes every write durable does so once for all of them."""
    commands = [
        command
        for one in map(Keys.of, names)
        for command in (Command(("EXISTS", one.record)), Command(("DEL", one.record, one.marks, one.notes)))
    ]
    found = answered(await line.ask(*commands))
    return [bool(there and gone) for there, gone in zip(found[::2], found[1::2], strict=True)]


async def _loaded(line: Line, names: Sequence[str]) -> list[replies.Loaded]:
    commands = [LOAD((one.record, one.marks, one.notes)) for one in map(Keys.of, names)]
    found: list[Any] = answered(await line.ask(*commands))
    return [replies.loaded(reply) for reply in found]


def _kept(conversation: str, reply: replies.Loaded) -> Kept | None:
    record = replies.record(reply)
    if record.epoch is None:
        return None
    left = reply[5]
    return Kept(conversation=conversation, record=record, expires=left / 1000 if left >= 0 else None)
