"""Conversations as they lie in a store: bodies, and surfaces that are bound to exactly their items."""

from __future__ import annotations

import json
import secrets
import time

from proxy.core import surface as surfaces
from proxy.core.identity import covered_digests
from proxy.core.surface import Keep, Provenance, Put, Surface
from proxy.dialects import Dialect
from proxy.dialects.chat import CHAT
from proxy.store import Commit, Entry, Record
from proxy.store.redis import RedisLedger
from tests.store.servers import Server

__all__ = ["SAID", "SUMMARY", "body", "conversations", "shelve"]

#: What the client said, and what stands in its place.
SAID, SUMMARY = "the client said", "the summary says"


def body(turns: int, *, model: str = "gpt-5", **more: object) -> bytes:
    """A request with so many exchanges and a question."""
    messages = [{"role": "system", "content": "You help."}]
    for number in range(turns):
        messages += [
            {"role": "user", "content": f"{SAID} {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
    messages.append({"role": "user", "content": "And now?"})
    return json.dumps({"model": model, "messages": messages, **more}).encode()


async def shelve(
    ledger: RedisLedger,
    conversation: str,
    content: bytes,
    *,
    covered: int = 4,
    dialect: Dialect = CHAT,
    at: int | None = None,
    text: str = SUMMARY,
    item: bytes | None = None,
) -> Record:
    """Store one more surface: a summary (else `item`) of all but the last covered item, which is kept."""
    transcript = dialect.split(content)
    assert transcript is not None
    loaded = await ledger.load(conversation)
    operation = secrets.token_hex(8)
    written = Provenance(model="writer-1", prompt=900, completion=80, calls=1, operation=operation)
    parts = (Put(item or dialect.user(text)), Keep(covered - 1, covered))
    surface = Surface(parts=parts, covered=covered, summarised=covered - 1, summary="S1", provenance=written)
    entry = Entry(
        generation=0,
        operation=operation,
        digest=covered_digests(transcript.digests, (covered,))[covered],
        covered=covered,
        base=loaded.generation,
        model=transcript.envelope.model,
        window=16_384,
        before=12_000,
        after=3_000,
        at=int(time.time()) if at is None else at,
        summarised=covered - 1,
    )
    assert await ledger.commit(conversation, loaded, entry, surfaces.pack(surface)) is Commit.DONE
    return await ledger.load(conversation)


def conversations(server: Server, like: str, count: int) -> list[str]:
    """Store as many copies of a record, of one new tenant; return their names."""
    tenant = secrets.token_hex(16)
    names = [f"{tenant}.{number:08x}{secrets.token_hex(12)}" for number in range(count)]
    client = server.client()
    for at in range(0, count, 1_000):
        pipe = client.pipeline(transaction=False)
        for name in names[at : at + 1_000]:
            pipe.copy(f"carryon:1:{{{like}}}", f"carryon:1:{{{name}}}")
        pipe.execute()
    return names
