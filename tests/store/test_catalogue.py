"""All conversations of a store: listed, read without a trace, forgotten whole. Against real servers."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from proxy.store import StoreError
from proxy.store.catalogue import START
from proxy.store.keys import Keys
from proxy.store.redis import RedisLedger
from tests.shelf import body, conversations, shelve
from tests.store.servers import Server

HERE = f"{'a' * 32}.{'1' * 32}"
OTHER = f"{'b' * 32}.{'2' * 32}"


async def walked(ledger: RedisLedger, **among: object) -> list[str]:
    """All that a walk names."""
    return [name async for name in ledger.catalogue.names(**among)]  # type: ignore[arg-type]


async def test_ten_thousand_conversations_are_named_page_by_page_each_once(server: Server, ledger: RedisLedger) -> None:
    """Whatever else lies in the database; no page is the whole."""
    await shelve(ledger, HERE, body(4))
    client = server.client()
    client.mset({f"somebody:else:{number}": "x" for number in range(2_000)})
    made = conversations(server, HERE, 10_000)
    first = await ledger.catalogue.page()
    assert 0 < len(first.names) < 3_000
    assert first.cursor != START
    named = await walked(ledger)
    assert len(named) == len(set(named)) == 10_001
    pipe = client.pipeline(transaction=False)
    for name in made[:3_000]:
        pipe.hset(Keys.of(name).notes, "pause", "1")
    pipe.execute()
    assert len(await walked(ledger, notes=True)) == 10_001, "each once, by whichever of its keys it is met"
    assert set(named) == {HERE, *made}


async def test_only_records_of_ours_are_named(server: Server, ledger: RedisLedger) -> None:
    """Neither marks nor notes, nor what was learned, nor a key that looks like a record and is none."""
    record = await shelve(ledger, HERE, body(4))
    await ledger.mark(HERE, record.entries[0].operation, "proven")
    await ledger.note(OTHER, "pause", "1")
    await ledger.learn_limit("c" * 64, 4_096)
    client = server.client()
    for name in ("carryon:1:{*.*}", "carryon:1:{x.y}", "carryon:2:{" + OTHER + "}", "carryon:1:{" + HERE.upper() + "}"):
        client.hset(name, "e", "x")
    assert await walked(ledger) == [HERE]
    assert sorted(await walked(ledger, notes=True)) == [HERE, OTHER]


async def test_a_walk_keeps_to_a_tenant_and_to_the_beginning_of_an_id(ledger: RedisLedger) -> None:
    """By exactly what is asked."""
    alike = f"{'a' * 32}.{'1' * 8}{'3' * 24}"
    nobody = f"anonymous.{'1' * 32}"
    for name in (HERE, OTHER, alike, nobody):
        await shelve(ledger, name, body(4))
    assert sorted(await walked(ledger, tenant="a" * 32)) == [HERE, alike]
    assert sorted(await walked(ledger, beginning="1" * 9)) == [HERE, nobody]
    assert await walked(ledger, tenant="anonymous") == [nobody]
    assert await walked(ledger, tenant="c" * 32) == []


@pytest.mark.parametrize(
    "among",
    [
        {"tenant": "*"},
        {"tenant": "a*"},
        {"beginning": "*"},
        {"beginning": "1?"},
        {"beginning": "[0-9]"},
        {"tenant": "}"},
    ],
)
async def test_a_sign_that_means_something_to_a_pattern_is_refused(ledger: RedisLedger, among: dict[str, str]) -> None:
    """Nothing that is typed becomes a pattern, so that nothing else is met by it."""
    with pytest.raises(ValueError, match="hex digits"):
        await walked(ledger, **among)


async def test_whoever_looks_changes_nothing(
    server: Server, open_ledger: Callable[..., RedisLedger], ledger: RedisLedger
) -> None:
    """No expiry is refreshed, and this process remembers nothing of what it read."""
    stored = await shelve(ledger, HERE, body(4))
    server.client().pexpire(Keys.of(HERE).record, 60_000)
    reader = open_ledger(server.url)
    (kept,) = await reader.catalogue.read([HERE])
    assert kept.record == stored
    assert kept.expires is not None
    assert 50 < kept.expires <= 60
    (again,) = await reader.catalogue.read([HERE])
    assert again.expires is not None
    assert again.expires <= 60
    assert reader.remembered(HERE) is None


async def test_a_record_that_is_gone_or_damaged_is_left_out(server: Server, ledger: RedisLedger) -> None:
    """As for a request: what nobody wrote counts as absent."""
    await shelve(ledger, HERE, body(4))
    server.client().hset(Keys.of(OTHER).record, mapping={"e": "!", "g": "x"})
    server.client().set(f"carryon:1:{{{'c' * 32}.{'3' * 32}}}", "text")
    kept = await ledger.catalogue.read([HERE, OTHER, f"{'c' * 32}.{'3' * 32}", f"{'d' * 32}.{'4' * 32}"])
    assert [one.conversation for one in kept] == [HERE]


async def test_a_conversation_is_last_used_when_a_surface_was_applied_or_made(ledger: RedisLedger) -> None:
    """Whichever came later."""
    record = await shelve(ledger, HERE, body(4), at=1_000)
    assert (await ledger.catalogue.read([HERE]))[0].applied == 1_000
    await ledger.mark(HERE, record.entries[0].operation, "applied")
    assert (await ledger.catalogue.read([HERE]))[0].applied > 1_700_000_000


async def test_a_forgotten_conversation_leaves_nothing_and_no_other_is_touched(
    server: Server, ledger: RedisLedger
) -> None:
    """Record, marks and notes go; those of another tenant and what was learned stay."""
    for name in (HERE, OTHER):
        record = await shelve(ledger, name, body(4))
        await ledger.mark(name, record.entries[0].operation, "proven")
        await ledger.note(name, "pause", "1")
    await ledger.learn_limit("c" * 64, 4_096)
    before = set(server.client().keys())
    assert await ledger.catalogue.forget([HERE, f"{'d' * 32}.{'4' * 32}"]) == [HERE]
    keys = Keys.of(HERE)
    assert before - set(server.client().keys()) == {keys.record, keys.marks, keys.notes}
    assert await ledger.catalogue.forget([HERE]) == []


async def test_notes_alone_are_forgotten_too_and_are_no_conversation(server: Server, ledger: RedisLedger) -> None:
    """There was no record."""
    await ledger.note(HERE, "pause", "1")
    assert await ledger.catalogue.forget([HERE]) == []
    assert server.client().keys() == []


async def test_many_are_forgotten_in_one_go(server: Server, ledger: RedisLedger) -> None:
    """More than fit one round trip."""
    await shelve(ledger, HERE, body(4))
    made = conversations(server, HERE, 120)
    assert sorted(await ledger.catalogue.forget(made)) == sorted(made)
    assert await walked(ledger) == [HERE]


async def test_what_is_stored_after_it_was_forgotten_is_another_record(ledger: RedisLedger) -> None:
    """Another epoch, from generation 1 (rule 5.3); a commit on the forgotten one is void."""
    was = await shelve(ledger, HERE, body(4))
    await ledger.catalogue.forget([HERE])
    now = await shelve(ledger, HERE, body(4))
    assert (now.generation, now.epoch == was.epoch) == (1, False)


async def test_a_process_that_forgets_holds_nothing_of_it_from_then_on(server: Server, ledger: RedisLedger) -> None:
    """Also while the store is away, when what is held would apply (rule 5.9)."""
    record = await shelve(ledger, HERE, body(4))
    assert await ledger.surface(HERE, record.epoch or "", record.entries[0])
    await ledger.catalogue.forget([HERE])
    assert ledger.remembered(HERE) is None
    assert await ledger.surface(HERE, record.epoch or "", record.entries[0]) is None


async def test_another_process_holds_nothing_of_it_after_its_next_look(
    server: Server, ledger: RedisLedger, open_ledger: Callable[..., RedisLedger]
) -> None:
    """Until then it holds what it loaded; then neither record nor surface, and another conversation's stay."""
    held = {}
    for name in (HERE, OTHER):
        record = await shelve(ledger, name, body(4))
        assert await ledger.surface(name, record.epoch or "", record.entries[0])
        held[name] = record
    operator = open_ledger(server.url)
    await operator.catalogue.forget([HERE])
    assert ledger.remembered(HERE) == held[HERE]
    assert (await ledger.load(HERE)).epoch is None
    assert ledger.remembered(HERE) is None
    assert await ledger.surface(HERE, held[HERE].epoch or "", held[HERE].entries[0]) is None
    assert ledger.remembered(OTHER) == held[OTHER]
    server.client().delete(Keys.of(OTHER).record)
    assert await ledger.surface(OTHER, held[OTHER].epoch or "", held[OTHER].entries[0]), "held in memory"


async def test_one_that_was_stored_anew_meanwhile_is_not_the_one_that_was_held(
    server: Server, ledger: RedisLedger, open_ledger: Callable[..., RedisLedger]
) -> None:
    """The surfaces of the old epoch go as well."""
    was = await shelve(ledger, HERE, body(4))
    assert await ledger.surface(HERE, was.epoch or "", was.entries[0])
    operator = open_ledger(server.url)
    await operator.catalogue.forget([HERE])
    await shelve(operator, HERE, body(4))
    assert (await ledger.load(HERE)).epoch != was.epoch
    assert await ledger.surface(HERE, was.epoch or "", was.entries[0]) is None


async def test_a_store_that_is_away_is_said_to_be(open_ledger: Callable[..., RedisLedger]) -> None:
    """One error, as everywhere."""
    ledger = open_ledger("redis://127.0.0.1:1/0", timeout=1.0)
    for call in (
        ledger.catalogue.page(),
        ledger.catalogue.read([f"anonymous.{secrets.token_hex(16)}"]),
        ledger.catalogue.forget([HERE]),
    ):
        with pytest.raises(StoreError):
            await call
