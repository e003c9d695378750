"""Which stored surface applies: the deepest that is bound to this transcript, suits, and can be read."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace as changed
from typing import Any

import pytest

from proxy.core.replacement import replace
from proxy.core.surface import Carry, Put, Surface, pack, raw_projection
from proxy.core.transcript import Transcript
from proxy.dialects.chat import CHAT
from proxy.store import Commit, Entry, Record, StoreError
from proxy.surfaces import Applied, apply
from tests.compaction.ledgers import Accidental
from tests.transcripts import says, spelt, transcript, user

TALK = transcript(*(user(f"{n}") if n % 2 else says(f"{n}") for n in range(1, 12)))


async def stored(
    ledger: Accidental, conversation: str, text: str, covered: int, *, blob: bytes | None = None, model: str = "m"
) -> Record:
    """Store a surface that puts one text for so many messages; `blob` is stored in its stead."""
    plan = replace(raw_projection(TALK), [Put(spelt(user(text)))], covered, CHAT.item, carry=Carry(), summary="S4")
    assert plan is not None
    entry = Entry(
        generation=0,
        operation=secrets.token_hex(8),
        digest=plan.digest,
        covered=covered,
        base=0,
        model=model,
        window=0,
        before=9,
        after=1,
        at=1,
    )
    loaded = await ledger.load(conversation)
    assert await ledger.commit(conversation, loaded, entry, blob or pack(plan.surface)) is Commit.DONE
    return await ledger.load(conversation)


async def seen(ledger: Accidental, conversation: str, found: Transcript = TALK, **more: Any) -> Applied:
    """What a load makes of the transcript."""
    return await apply(ledger, conversation, await ledger.load(conversation), found, CHAT, **more)


def first(applied: Applied) -> bytes:
    """The first message the model sees."""
    return applied.projection.items[0].raw


async def test_without_a_record_the_transcript_stands_as_it_came(ledger: Accidental, conversation: str) -> None:
    """No entry, generation 0, the client's own items."""
    found = await seen(ledger, conversation)
    assert (found.record, found.entry, found.projection) == (Record(), None, raw_projection(TALK))


async def test_the_deepest_surface_applies(ledger: Accidental, conversation: str) -> None:
    """With its generation and its operation, whatever came later."""
    await stored(ledger, conversation, "deep", 8)
    record = await stored(ledger, conversation, "shallow", 4)
    found = await seen(ledger, conversation)
    assert first(found) == spelt(user("deep"))
    assert found.entry == record.entries[0]
    assert (found.projection.generation, found.projection.operation) == (1, record.entries[0].operation)
    assert found.projection.covered == 8


async def test_an_edited_transcript_finds_the_shallower_one(ledger: Accidental, conversation: str) -> None:
    """Or none."""
    await stored(ledger, conversation, "deep", 8)
    await stored(ledger, conversation, "shallow", 4)
    assert first(await seen(ledger, conversation, transcript(*map(_message, TALK.items[:6])))) == spelt(user("shallow"))
    other = transcript(user("other"), *map(_message, TALK.items[1:]))
    assert (await seen(ledger, conversation, other)).entry is None


def _message(item: Any) -> Any:
    return json.loads(item.raw)


async def test_one_that_does_not_suit_is_passed_over(ledger: Accidental, conversation: str) -> None:
    """Made for another model, say."""
    await stored(ledger, conversation, "deep", 8, model="other")
    await stored(ledger, conversation, "shallow", 4)
    found = await seen(ledger, conversation, suits=lambda entry: entry.model == "m")
    assert first(found) == spelt(user("shallow"))


async def test_a_retired_surface_does_not_apply(ledger: Accidental, conversation: str) -> None:
    """Its mark counts at the next load."""
    record = await stored(ledger, conversation, "deep", 8)
    await ledger.mark(conversation, record.entries[0].operation, "retired")
    assert (await seen(ledger, conversation)).entry is None


UNUSABLE = {
    "of no format": b"?",
    "of another coverage": pack(Surface(parts=(Put(spelt(user("x"))),), covered=3)),
    "with no message in it": pack(Surface(parts=(Put(b"{}"),), covered=8)),
}


@pytest.mark.parametrize("blob", UNUSABLE.values(), ids=UNUSABLE)
async def test_a_surface_that_cannot_be_used_counts_as_absent(
    ledger: Accidental, conversation: str, blob: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning; the next best applies."""
    await stored(ledger, conversation, "deep", 8, blob=blob)
    await stored(ledger, conversation, "shallow", 4)
    assert first(await seen(ledger, conversation)) == spelt(user("shallow"))
    assert "could not be used" in caplog.text


async def test_an_evicted_surface_counts_as_absent(ledger: Accidental, conversation: str, valkey: Any) -> None:
    """The index names it, its bytes are gone."""
    record = await stored(ledger, conversation, "deep", 8)
    gone = changed(record.entries[0], operation="gone")
    found = await apply(ledger, conversation, changed(record, entries=(gone,)), TALK, CHAT)
    assert found.entry is None
    assert found.projection == raw_projection(TALK)


async def test_not_every_surface_is_tried(ledger: Accidental, conversation: str) -> None:
    """After three that cannot be used, the raw transcript serves: a request has no time for more."""
    for covered in (9, 8, 7):
        await stored(ledger, conversation, "x", covered, blob=b"?")
    await stored(ledger, conversation, "fine", 4)
    assert (await seen(ledger, conversation)).entry is None


async def test_a_store_that_is_away_is_an_error_and_no_absence(ledger: Accidental, conversation: str) -> None:
    """Only the caller knows what that means for its request."""
    record = await stored(ledger, conversation, "deep", 8)
    ledger.lose_surfaces = True
    with pytest.raises(StoreError):
        await apply(ledger, conversation, record, TALK, CHAT)
