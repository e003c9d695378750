"""The ledger over real servers: what a commit, a load, a mark and a note do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import redis

import proxy
from proxy.store import Commit, Learned, Record, StoreError
from proxy.store.redis import RedisLedger
from proxy.store.scripts import Command
from tests.store.conftest import commit_one, entry
from tests.store.servers import Server

C = "ab12.cd34"
KEY = "carryon:1:{ab12.cd34}"

Open = Callable[..., RedisLedger]


# -- load and commit ----------------------------------------------------------------------------------------


async def test_a_conversation_never_compacted_has_no_record(ledger: RedisLedger, server: Server) -> None:
    """A load finds nothing and leaves nothing."""
    assert await ledger.load(C) == Record()
    assert await ledger.confirm(C) == Record()
    assert server.client().keys() == []


async def test_a_commit_stores_the_surface_whole(ledger: RedisLedger) -> None:
    """Epoch, generation, entry and bytes come back as they went in."""
    record = await commit_one(ledger, C, "op1")
    assert record.epoch
    assert record.generation == 1
    (stored,) = record.entries
    assert stored == replace(entry("op1"), generation=1)
    assert await ledger.surface(C, record.epoch, stored) == b"surface of op1"


async def test_the_generation_rises_by_one_per_commit(ledger: RedisLedger) -> None:
    """Three commits, three generations, one epoch."""
    records = [await commit_one(ledger, C, f"op{n}", base=n) for n in range(3)]
    assert [record.generation for record in records] == [1, 2, 3]
    assert len({record.epoch for record in records}) == 1


async def test_the_same_operation_again_is_mine(ledger: RedisLedger) -> None:
    """A commit whose reply was lost is recognised, whatever was loaded."""
    loaded = await ledger.load(C)
    assert await ledger.commit(C, loaded, entry("op1"), b"x") is Commit.DONE
    assert await ledger.commit(C, loaded, entry("op1"), b"x") is Commit.MINE
    assert (await ledger.load(C)).generation == 1


async def test_a_commit_on_an_older_generation_is_moved(ledger: RedisLedger, server: Server) -> None:
    """Somebody else was first: nothing is written."""
    absent = await ledger.load(C)
    await commit_one(ledger, C, "op1")
    before = server.client().dump(KEY)
    assert await ledger.commit(C, absent, entry("op2"), b"x") is Commit.MOVED
    assert server.client().dump(KEY) == before


async def test_a_commit_on_an_older_generation_of_the_same_epoch_is_moved(ledger: RedisLedger) -> None:
    """The generation alone tells that somebody else was first."""
    first = await commit_one(ledger, C, "op1")
    second = await commit_one(ledger, C, "op2", base=1)
    assert first.epoch == second.epoch
    assert await ledger.commit(C, first, entry("op3", base=1), b"x") is Commit.MOVED
    assert await ledger.load(C) == second


async def test_a_commit_on_a_vanished_record_is_moved(ledger: RedisLedger, server: Server) -> None:
    """Present when loaded, absent now: nothing is written."""
    loaded = await commit_one(ledger, C, "op1")
    server.client().delete(KEY)
    assert await ledger.commit(C, loaded, entry("op2"), b"x") is Commit.MOVED
    assert not server.client().exists(KEY)


async def test_a_commit_on_another_epoch_is_moved(ledger: RedisLedger, server: Server) -> None:
    """The same generation of a re-created record is another one."""
    loaded = await commit_one(ledger, C, "op1")
    server.client().delete(KEY)
    again = await commit_one(ledger, C, "op2")
    assert (again.generation, again.epoch != loaded.epoch) == (loaded.generation, True)
    assert await ledger.commit(C, loaded, entry("op3"), b"x") is Commit.MOVED


async def test_a_surface_that_covers_less_than_its_base_is_refused(ledger: RedisLedger) -> None:
    """Nor is one whose base is unknown; equal coverage is fine."""
    loaded = await commit_one(ledger, C, "op1", covered=10)
    assert await ledger.commit(C, loaded, entry("op2", covered=9, base=1), b"x") is Commit.REFUSED
    assert await ledger.commit(C, loaded, entry("op2", covered=12, base=7), b"x") is Commit.REFUSED
    assert (await ledger.load(C)).generation == 1
    assert await ledger.commit(C, loaded, entry("op2", covered=10, base=1), b"x") is Commit.DONE


async def test_expiry_makes_another_epoch(ledger: RedisLedger, server: Server, open_ledger: Open) -> None:
    """Record and marks expire together; what comes after is not taken for what was."""
    brief = open_ledger(server.url, ttl=0.2)
    first = await commit_one(brief, C, "op1")
    assert 0 < server.client().pttl(KEY) <= 200
    await brief.mark(C, "op1", "proven")
    await asyncio.sleep(0.3)
    assert server.client().keys() == []
    second = await commit_one(brief, C, "op2")
    assert (second.generation, second.epoch != first.epoch) == (1, True)
    assert await ledger.surface(C, first.epoch or "", first.entries[0]) is None


async def test_twenty_racing_commits_lose_no_update(server: Server, open_ledger: Open) -> None:
    """Of twenty commits on one load exactly one is done, the others have moved."""
    ledgers = [open_ledger(server.url) for _ in range(4)]
    loaded = await ledgers[0].load(C)
    commits = [ledgers[n % 4].commit(C, loaded, entry(f"op{n}"), b"x") for n in range(20)]
    answers = await asyncio.gather(*commits)
    assert (answers.count(Commit.DONE), answers.count(Commit.MOVED)) == (1, 19)
    assert (await ledgers[0].load(C)).generation == 1


async def test_two_hundred_commits_of_racing_replicas_rise_strictly(server: Server, open_ledger: Open) -> None:
    """Replicas that load again after `moved` all land, each on a generation of its own."""
    ledgers = [open_ledger(server.url) for _ in range(4)]

    async def replica(number: int) -> None:
        for turn in range(50):
            while True:
                loaded = await ledgers[number].load(C)
                offer = entry(f"r{number}t{turn}", base=loaded.generation)
                if await ledgers[number].commit(C, loaded, offer, b"x") is Commit.DONE:
                    break

    await asyncio.gather(*(replica(number) for number in range(4)))
    record = await ledgers[0].load(C)
    assert record.generation == 200
    assert [e.generation for e in record.entries] == sorted({e.generation for e in record.entries})


# -- bounds -------------------------------------------------------------------------------------------------


async def test_a_commit_drops_its_grandparents_ancestors(ledger: RedisLedger, server: Server) -> None:
    """A straight line of replacements keeps the newest three, blobs and marks included."""
    for number in range(1, 7):
        await commit_one(ledger, C, f"op{number}", base=number - 1)
        await ledger.mark(C, f"op{number}", "proven")
    assert [e.operation for e in (await ledger.load(C)).entries] == ["op4", "op5", "op6"]
    assert {f for f in server.client().hkeys(KEY) if f.startswith("b:")} == {"b:op4", "b:op5", "b:op6"}
    assert {f for f in server.client().hkeys(f"{KEY}:m") if f.startswith("p:")} == {"p:op4", "p:op5", "p:op6"}


async def test_a_conversation_keeps_256_surfaces(ledger: RedisLedger, server: Server) -> None:
    """The least recently applied goes first; one applied lately stays."""
    for number in range(256):
        await commit_one(ledger, C, f"op{number}", at=1000 + number)
    await ledger.mark(C, "op0", "applied")
    record = await commit_one(ledger, C, "last", at=5000)
    kept = [e.operation for e in record.entries]
    assert len(kept) == 256
    assert "op0" in kept
    assert "op1" not in kept
    assert record.generation == 257
    assert sum(field.startswith("b:") for field in server.client().hkeys(KEY)) == 256


# -- expiry, marks, notes -----------------------------------------------------------------------------------


async def test_marks_show_in_the_entries_and_never_move_the_generation(ledger: RedisLedger) -> None:
    """Proven, retired and applied are notes about a surface."""
    await commit_one(ledger, C, "op1")
    await commit_one(ledger, C, "op2", base=1)
    await ledger.mark(C, "op1", "retired")
    await ledger.mark(C, "op2", "proven")
    await ledger.mark(C, "op2", "applied")
    record = await ledger.load(C)
    assert [(e.proven, e.retired, e.applied > 0) for e in record.entries] == [(False, True, False), (True, False, True)]
    assert record.generation == 2


async def test_a_mark_about_no_surface_leaves_nothing(ledger: RedisLedger, server: Server) -> None:
    """Marks exist beside a record only."""
    await ledger.mark(C, "op1", "proven")
    assert server.client().keys() == []


@pytest.mark.parametrize("use", ["load", "applied", "confirm"])
async def test_use_refreshes_the_expiry_of_record_and_marks(use: str, server: Server, open_ledger: Open) -> None:
    """A conversation in use does not expire; both keys get the same expiry."""
    ledger = open_ledger(server.url, ttl=10_000)
    await commit_one(ledger, C, "op1")
    await ledger.mark(C, "op1", "proven")
    for key in (KEY, f"{KEY}:m"):
        server.client().pexpire(key, 5_000_000)
    uses = {"load": ledger.load, "applied": lambda c: ledger.mark(c, "op1", "applied"), "confirm": ledger.confirm}
    await uses[use](C)
    assert server.client().pttl(KEY) > 9_900_000
    assert abs(server.client().pttl(KEY) - server.client().pttl(f"{KEY}:m")) < 50


async def test_the_expiry_is_refreshed_at_most_every_ten_minutes(server: Server, open_ledger: Open) -> None:
    """Within ten minutes of the last refresh, use writes nothing."""
    ledger = open_ledger(server.url, ttl=10_000)
    await commit_one(ledger, C, "op1")
    server.client().pexpire(KEY, 9_500_000)
    await ledger.load(C)
    await ledger.mark(C, "op1", "applied")
    assert server.client().pttl(KEY) <= 9_500_000


async def test_notes_live_ten_minutes_and_need_no_record(ledger: RedisLedger, server: Server) -> None:
    """A note makes no record; an empty value removes it."""
    await ledger.note(C, "force", "1")
    await ledger.note(C, "paused", "until")
    record = await ledger.load(C)
    assert (record.epoch, record.generation) == (None, 0)
    assert record.notes == (("force", "1"), ("paused", "until"))
    assert server.client().keys() == [f"{KEY}:n"]
    assert 590_000 < server.client().pttl(f"{KEY}:n") <= 600_000
    await ledger.note(C, "force", "")
    assert (await ledger.load(C)).notes == (("paused", "until"),)


async def test_notes_are_bounded(ledger: RedisLedger, server: Server) -> None:
    """They cannot pile up in one conversation."""
    for number in range(300):
        await ledger.note(C, f"n{number}", "x")
    assert server.client().hlen(f"{KEY}:n") <= 256


async def test_a_lease_has_one_owner_until_it_ends(ledger: RedisLedger, server: Server) -> None:
    """The owner may renew it; another gets it when it was given back, or when its time is over."""
    assert await ledger.claim(C, "lease:1", "a", 60)
    assert await ledger.claim(C, "lease:1", "a", 60)
    assert not await ledger.claim(C, "lease:1", "b", 60)
    assert await ledger.claim(C, "lease:2", "b", 60)
    await ledger.note(C, "lease:1", "")
    assert await ledger.claim(C, "lease:1", "b", 0)
    assert await ledger.claim(C, "lease:1", "a", 60), "the other's is over"
    server.client().hset(f"{KEY}:n", "lease:1", "no lease")
    assert await ledger.claim(C, "lease:1", "b", 60), "what makes no sense binds nobody"
    assert server.client().pttl(f"{KEY}:n") > 0


# -- what this process holds --------------------------------------------------------------------------------


async def test_a_surface_is_fetched_once(ledger: RedisLedger, server: Server) -> None:
    """The second use needs no Redis; under another epoch it is another surface."""
    record = await commit_one(ledger, C, "op1")
    assert await ledger.surface(C, "another epoch", record.entries[0]) is None
    assert await ledger.surface(C, record.epoch or "", record.entries[0]) == b"surface of op1"
    server.client().delete(KEY)
    assert await ledger.surface(C, record.epoch or "", record.entries[0]) == b"surface of op1"
    assert await ledger.surface(C, "another epoch", record.entries[0]) is None


async def test_the_last_record_is_remembered_until_it_is_seen_gone(ledger: RedisLedger, server: Server) -> None:
    """What was loaded serves while Redis is away."""
    assert ledger.remembered(C) is None
    record = await commit_one(ledger, C, "op1")
    assert ledger.remembered(C) == record
    server.client().delete(KEY)
    await ledger.load(C)
    assert ledger.remembered(C) is None


@pytest.mark.parametrize("damage", [{"b:op1": "\x02 of the future"}, {"b:op1": "\x01no frame"}, {"idx": "2\nfuture"}])
async def test_what_is_of_another_format_counts_as_absent(
    damage: dict[str, str], ledger: RedisLedger, server: Server
) -> None:
    """A newer version's surface is not read, and is no error."""
    first = await commit_one(ledger, C, "op1")
    server.client().hset(KEY, mapping=damage)
    record = await ledger.load(C)
    assert record.generation == 1
    assert record.entries == (() if "idx" in damage else first.entries)
    assert await ledger.surface(C, record.epoch or "", first.entries[0]) == (
        None if "idx" not in damage else b"surface of op1"
    )
    assert (await commit_one(ledger, C, "op2")).generation == 2


#: What somebody may have done to a record, and whether it is still one.
DAMAGES: dict[str, tuple[Callable[[redis.Redis], object], bool]] = {
    "no epoch": (lambda client: client.hdel(KEY, "e"), False),
    "an empty epoch": (lambda client: client.hset(KEY, "e", ""), False),
    "an epoch that is no text": (lambda client: client.hset(KEY, "e", b"\xff\xfe"), False),
    "an endless epoch": (lambda client: client.hset(KEY, "e", "a" * 65), False),
    "no generation": (lambda client: client.hdel(KEY, "g"), False),
    "a generation in words": (lambda client: client.hset(KEY, "g", "many"), False),
    "a generation below 0": (lambda client: client.hset(KEY, "g", "-5"), False),
    "a generation of 16 digits": (lambda client: client.hset(KEY, "g", "9" * 16), False),
    "a generation of 5000 digits": (lambda client: client.hset(KEY, "g", "9" * 5_000), False),
    "another type": (lambda client: (client.delete(KEY), client.set(KEY, "x")), False),
    "a list": (lambda client: (client.delete(KEY), client.rpush(KEY, "x")), False),
    "a surface alone": (lambda client: client.hdel(KEY, "e", "g", "idx"), False),
    "marks of another type": (lambda client: client.set(f"{KEY}:m", "x"), True),
    "no index": (lambda client: client.hdel(KEY, "idx"), True),
    "an index of noise": (lambda client: client.hset(KEY, "idx", b"\x80\xff" * 99), True),
    "an index that is cut": (lambda client: client.hset(KEY, "idx", client.hget(KEY, "idx")[:-3]), True),
    "an entry without an end": (lambda client: client.hset(KEY, "idx", f"1\n1 1 a {'9' * 30}\nx"), True),
    "an entry of 5000 digits": (lambda client: client.hset(KEY, "idx", f"1\n{'9' * 5_000} 1 a 1\nx"), True),
    "more entries than there can be": (lambda client: client.hset(KEY, "idx", "1\n" + "1 1 a 1\nx" * 3_000), True),
    "marks in words": (lambda client: client.hset(f"{KEY}:m", "a:op1", "9" * 5_000), True),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_record_is_healed_by_the_next_commit(
    damage: str, ledger: RedisLedger, server: Server, open_ledger: Open
) -> None:
    """Nothing of it raises, and no commit stays `moved` until it expires; what is no record begins anew, at 1."""
    first = await commit_one(ledger, C, "op1")
    spoil, still = DAMAGES[damage]
    spoil(redis.Redis(unix_socket_path=str(server.socket)))
    for reader in (ledger, open_ledger(server.url)):
        loaded = await reader.load(C)
        assert (loaded.epoch, loaded.generation) == ((first.epoch, 1) if still else (None, 0))
    await ledger.mark(C, "op1", "applied") if still else None
    healed = await commit_one(ledger, C, "op2")
    assert healed.generation == (2 if still else 1)
    assert (healed.epoch == first.epoch) is still
    assert healed.entries[-1].operation == "op2"
    assert (await ledger.surface(C, healed.epoch or "", healed.entries[-1])) == b"surface of op2"
    assert await ledger.confirm(C) == healed
    assert server.client().ttl(KEY) > 0
    await ledger.mark(C, "op2", "proven")
    assert (await open_ledger(server.url).load(C)).entries[-1].proven
    assert (await commit_one(ledger, C, "op3")).generation == healed.generation + 1


async def test_what_was_committed_before_a_record_was_damaged_is_no_longer_compared(ledger: RedisLedger) -> None:
    """A loader from before cannot commit to the record that took its place: its epoch is another."""
    before = await commit_one(ledger, C, "op1")
    await ledger._contact.tell(Command(("HDEL", KEY, "e")))
    assert await ledger.commit(C, before, entry("op2", base=1), b"x") is Commit.MOVED
    await commit_one(ledger, C, "op3")
    assert await ledger.commit(C, before, entry("op4", base=1), b"x") is Commit.MOVED


@pytest.mark.parametrize("kind", ["hash", "string", "list", "noise"])
async def test_keys_of_another_type_hold_nothing_and_are_written_anew(
    kind: str, ledger: RedisLedger, server: Server
) -> None:
    """Notes, leases, limits and calibrations, whatever lies there."""
    client = server.client()
    for key in (f"{KEY}:n", "carryon:1:model:m", "carryon:1:model:c"):
        if kind == "hash":
            client.hset(key, mapping={"limit": "9" * 400, "a": "b", "lease": "x:" + "9" * 30})
        elif kind == "list":
            client.rpush(key, "x")
        else:
            client.set(key, "nan" if kind == "noise" else "9" * 400)
    assert await ledger.learned("m", "c") == Learned()
    assert (await ledger.load(C)).epoch is None
    await ledger.learn_limit("m", 8_192)
    await ledger.learn_calibration("c", 1.5)
    assert await ledger.learned("m", "c") == Learned(limit=8_192, calibration=1.5)
    await ledger.note(C, "name", "value")
    assert ("name", "value") in (await ledger.load(C)).notes
    assert await ledger.claim(C, "other", "me", 5.0)


# -- learned limits and calibration -------------------------------------------------------------------------


async def test_a_limit_is_learned_and_only_falls(ledger: RedisLedger, server: Server) -> None:
    """It expires like everything else."""
    await ledger.learn_limit("m", 128_000)
    await ledger.learn_limit("m", 100_000)
    await ledger.learn_limit("m", 120_000)
    assert (await ledger.learned("m", "c")).limit == 100_000
    assert 0 < server.client().ttl("carryon:1:model:{m}") <= 7 * 86_400


async def test_a_limit_below_half_needs_a_second_sighting(ledger: RedisLedger) -> None:
    """One garbled refusal changes nothing, the same number twice does."""
    await ledger.learn_limit("m", 128_000)
    await ledger.learn_limit("m", 8_192)
    assert (await ledger.learned("m", "c")).limit == 128_000
    await ledger.learn_limit("m", 4_096)
    assert (await ledger.learned("m", "c")).limit == 128_000
    await ledger.learn_limit("m", 4_096)
    assert (await ledger.learned("m", "c")).limit == 4_096


@pytest.mark.parametrize(
    ("window", "sightings", "learned"),
    [
        (0, (1_500,), 1_500),
        (128_000, (1_500,), 0),
        (128_000, (1_500, 1_600), 0),
        (128_000, (1_500, 1_500), 1_500),
        (128_000, (64_000,), 64_000),
        (128_000, (200_000, 1_500), 200_000),
        (2_000, (128_000, 1_500), 1_500),
    ],
)
async def test_a_known_window_is_a_limit_that_holds(
    ledger: RedisLedger, server: Server, window: int, sightings: tuple[int, ...], learned: int
) -> None:
    """The first refusal of all may be garbled too: it waits for a second sighting, and no longer than others."""
    for limit in sightings:
        await ledger.learn_limit("m", limit, window)
    assert (await ledger.learned("m", "c")).limit == learned
    assert 0 < server.client().ttl("carryon:1:model:{m}") <= 7 * 86_400


async def test_a_limit_below_1024_is_never_learned(ledger: RedisLedger) -> None:
    """No model has such a window."""
    await ledger.learn_limit("m", 1_023)
    assert (await ledger.learned("m", "c")).limit == 0
    await ledger.learn_limit("m", 1_024)
    assert (await ledger.learned("m", "c")).limit == 1_024


async def test_the_calibration_is_smoothed_and_clamped(ledger: RedisLedger) -> None:
    """One outlier moves it little; nonsense does not move it."""
    assert (await ledger.learned("m", "c")).calibration == 1.0
    await ledger.learn_calibration("c", 1.2)
    await ledger.learn_calibration("c", 2.2)
    assert (await ledger.learned("m", "c")).calibration == pytest.approx(1.4)
    for nonsense in (0.0, -1.0, float("nan"), float("inf")):
        await ledger.learn_calibration("c", nonsense)
    assert (await ledger.learned("m", "c")).calibration == pytest.approx(1.4)
    await ledger.learn_calibration("far", 100.0)
    assert (await ledger.learned("m", "far")).calibration == 4.0


# -- the increment ------------------------------------------------------------------------------------------


async def test_a_user_that_may_write_only_marks_and_notes_runs_every_script_but_commit(
    ledger: RedisLedger, server: Server, open_ledger: Open
) -> None:
    """The server itself proves that only commit.lua writes a record (rule 5.2)."""
    loaded = await commit_one(ledger, C, "op1")
    # The second selector lets scripts be called with the record among their keys, and refresh its expiry;
    # what the scripts' own commands may write, the first one says.
    rules = ("on", ">pw", "resetkeys", "+@all", "-evalsha", "-eval", "-pexpire", "%R~*", "%W~*:m", "%W~*:n")
    server.client().execute_command("ACL", "SETUSER", "marker", *rules, "(+evalsha +eval +pexpire ~*)")
    marker = open_ledger(f"{server.url}?username=marker&password=pw")
    before = server.client().dump(KEY)
    assert await marker.load(C) == loaded
    await marker.mark(C, "op1", "proven")
    await marker.note(C, "force", "1")
    assert await marker.claim(C, "lease", "a", 0)
    await marker.note(C, "lease", "")
    record = await marker.confirm(C)
    assert record is not None
    assert (record.entries[0].proven, record.notes) == (True, (("force", "1"),))
    with pytest.raises(StoreError):
        await marker.commit(C, record, entry("op2"), b"x")
    with pytest.raises(StoreError):
        await marker.commit("fresh.one", Record(), entry("op3"), b"x")
    assert server.client().dump(KEY) == before
    server.client().execute_command("ACL", "DELUSER", "marker")


def test_one_place_in_the_code_raises_a_generation() -> None:
    """It is in commit.lua; no other code writes a record's fields or calls an increment of the server."""
    root = Path(proxy.__file__).parent
    code = {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*")
        if path.suffix in {".py", ".lua"}
    }
    raising = re.compile(r"generation\s*(\+\s*1|\+=)|\bH?INCRBY(FLOAT)?\b|\bINCR\b")
    sites = [(name, line.strip()) for name, text in code.items() for line in text.splitlines() if raising.search(line)]
    assert sites == [("store/lua/commit.lua", "generation = generation + 1")]
    writers = [
        name for name, text in code.items() if re.search(r"""["'](HSET|HMSET|HSETNX|RESTORE)["'],\s*record\b""", text)
    ]
    assert writers == ["store/lua/commit.lua"]
