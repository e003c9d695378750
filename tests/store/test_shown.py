"""What is stored as JSON: what it says, and that no text is in it unless it is asked for."""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.core.identity import opaque
from proxy.core.surface import Put, Surface, pack
from proxy.dialects.chat import CHAT
from proxy.store import Entry, Record
from proxy.store.catalogue import Kept
from proxy.store.keys import Keys
from proxy.store.redis import RedisLedger
from proxy.store.shown import brief, opened
from tests.shelf import SAID, SUMMARY, body, shelve
from tests.store.conftest import entry
from tests.store.servers import Server

HERE = f"{'a' * 32}.{'1' * 32}"


async def rows(ledger: RedisLedger, *, text: bool) -> list[dict[str, object]]:
    """The surfaces of the conversation."""
    (kept,) = await ledger.catalogue.read([HERE])
    return [row async for row in opened(kept, ledger, text=text)]


async def test_a_list_says_whose_it_is_how_large_and_how_old(ledger: RedisLedger) -> None:
    """By the newest surface; times as the world spells them."""
    await shelve(ledger, HERE, body(4), at=1_000)
    await shelve(ledger, HERE, body(6), covered=6, at=86_400)
    (kept,) = await ledger.catalogue.read([HERE])
    told = brief(replace(kept, expires=60.0), now=0.5)
    assert told == {
        "id": opaque(HERE),
        "tenant": "a" * 32,
        "epoch": kept.record.epoch,
        "generation": 2,
        "surfaces": 2,
        "covered": 6,
        "tokens": {"before": 12_000, "after": 3_000},
        "model": "gpt-5",
        "applied": "1970-01-02T00:00:00Z",
        "expires": "1970-01-01T00:01:00Z",
    }


def test_a_record_without_surfaces_and_with_times_that_cannot_be_is_told_all_the_same() -> None:
    """Nothing that somebody wrote into the store makes a fault."""
    empty = brief(Kept(conversation=HERE, record=Record(epoch="e", generation=3), expires=None), 0)
    assert (empty["tokens"], empty["applied"], empty["expires"], empty["covered"]) == (None, None, None, 0)
    odd = Record(epoch="e", generation=1, entries=(replace(entry("op"), at=10**15, applied=-5),))
    assert brief(Kept(conversation=HERE, record=odd, expires=1e300), 0)["applied"] is None


async def test_a_surface_says_how_it_came_to_be(ledger: RedisLedger) -> None:
    """Oldest first: rung, who wrote it with what, state, sizes."""
    record = await shelve(ledger, HERE, body(4))
    await shelve(ledger, HERE, body(6), covered=6)
    await ledger.mark(HERE, record.entries[0].operation, "proven")
    first, second = await rows(ledger, text=False)
    assert (first["generation"], second["generation"]) == (1, 2)
    assert (first["state"], second["state"]) == ("proven", "new")
    assert (first["summary"], first["put"], first["kept"], first["covered"]) == ("S1", 1, 1, 4)
    assert isinstance(first["provenance"], dict)
    assert (first["provenance"]["model"], first["provenance"]["prompt"]) == ("writer-1", 900)
    await ledger.mark(HERE, record.entries[0].operation, "retired")
    assert (await rows(ledger, text=False))[0]["state"] == "retired"


async def test_text_is_shown_only_where_it_is_asked_for(ledger: RedisLedger) -> None:
    """And then what stands there as an item, and the client's own items by their place alone."""
    await shelve(ledger, HERE, body(4))
    hidden, shown = await rows(ledger, text=False), await rows(ledger, text=True)
    assert SUMMARY not in json.dumps(hidden)
    assert shown[0]["parts"] == [{"put": json.loads(CHAT.user(SUMMARY))}, {"keep": [3, 4]}]
    assert SAID not in json.dumps(shown)


async def test_a_surface_that_cannot_be_read_is_said_to_be(server: Server, ledger: RedisLedger) -> None:
    """The others are shown all the same."""
    record = await shelve(ledger, HERE, body(4))
    await shelve(ledger, HERE, body(6), covered=6)
    server.client().hset(Keys.of(HERE).record, f"b:{record.entries[0].operation}", "damage")
    first, second = await rows(ledger, text=True)
    assert (first["readable"], second["readable"]) == (False, True)
    assert first["generation"] == 1


async def test_an_item_that_is_no_json_is_shown_as_text() -> None:
    """What a newer version may put there makes no fault."""

    class One:
        async def surface(
            self, conversation: str, epoch: str, entry: Entry, *, wait: float | None = None
        ) -> bytes | None:
            return pack(Surface(parts=(Put(b"not json"), Put(b"[" * 100_000)), covered=1))

    kept = Kept(conversation=HERE, record=Record(epoch="e", generation=1, entries=(entry("op"),)), expires=None)
    (row,) = [row async for row in opened(kept, One(), text=True)]
    assert row["parts"][0] == {"put": "not json"}
    assert json.dumps(row)
