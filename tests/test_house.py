"""What a process holds for its requests."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from proxy.dialects.chat import CHAT
from proxy.house import Background, Measures, Reading, destinations
from proxy.settings import Settings
from tests.houses import closed, furnished, turned
from tests.phrases import LONG, body, message


async def test_work_beside_the_requests_is_ended_and_its_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What ends in time ends by itself, the rest is cancelled; a failure is one line without its text."""
    background, done = Background(), asyncio.Event()

    async def ends() -> None:
        done.set()

    async def fails() -> None:
        raise ValueError("a secret")

    hung = asyncio.sleep(60)
    for work in (ends(), fails(), hung):
        background.spawn(work)
    began = asyncio.get_running_loop().time()
    await background.close(0.1)
    assert done.is_set()
    assert asyncio.get_running_loop().time() - began < 1.0
    (record,) = [record for record in caplog.records if record.getMessage() == "background-failed"]
    assert "ValueError" in record.__dict__["error"]
    assert "secret" not in record.__dict__["error"]


async def test_long_texts_are_counted_in_a_thread_and_once() -> None:
    """The loop goes on meanwhile; what is known is counted inline, to the same number."""
    measures, threads = Measures(), set[str]()
    transcript = CHAT.split(body(message("user", "word " * 40_000)))
    assert transcript is not None
    meter = measures.meter(CHAT, "m")
    count = meter._count

    def noted(text: str) -> int:
        threads.add(threading.current_thread().name.partition("_")[0])
        return count(text)

    meter._count = noted
    first = await measures.estimate(CHAT, transcript.envelope, transcript.items, "m")
    assert threads == {"meter"}
    assert await measures.estimate(CHAT, transcript.envelope, transcript.items, "m") == first
    measures.close()


async def test_a_body_whose_client_left_is_not_read_any_more() -> None:
    """What waits for a thread is dropped with its request; what runs in one is waited for by nobody."""
    reading, begun, ended, goes_on = Reading(), threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    done: list[str] = []

    def long() -> None:
        begun.release()
        goes_on.wait(10)
        done.append(threading.current_thread().name.partition("_")[0])
        ended.release()

    running = [asyncio.ensure_future(reading.run(long)) for _ in range(2)]
    for _ in running:
        assert await asyncio.to_thread(begun.acquire, timeout=10)
    waiting = [asyncio.ensure_future(reading.run(lambda: done.append("left"))) for _ in range(8)]
    last = asyncio.ensure_future(reading.run(lambda: done.append("stayed")))
    await asyncio.sleep(0)
    for one in (*waiting, running[0]):
        one.cancel()
    await asyncio.gather(*waiting, running[0], return_exceptions=True)
    await asyncio.sleep(0)
    goes_on.set()
    await last
    for _ in running:  # nobody waits for the one whose client left: it ends all the same
        assert await asyncio.to_thread(ended.acquire, timeout=10)
    assert sorted(done) == ["read", "read", "stayed"]
    reading.close()


async def test_a_policy_is_resolved_once() -> None:
    """The same object for the same upstream and model."""
    house = furnished(models=[{"model": "big*", "context_window": 99_999}])
    up = house.upstreams[0].name
    assert house.policies(up, "big-1") is house.policies(up, "big-1")
    assert (house.policies(up, "big-1").window, house.policies(up, "m").window) == (99_999, 10_000)
    await closed(house)


async def test_a_store_that_is_away_forgets_marks_and_notes() -> None:
    """Neither raises: the ledger has warned."""
    house = furnished()
    turn = turned(house, LONG)
    await house.mark(turn.conversation, "op", "proven")
    await house.note(turn.conversation, "force", "1:ab")
    await closed(house)


async def test_a_fault_is_counted_and_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """Rule 2.11: the count is what tests watch."""
    house = furnished()
    try:
        dict[str, int]()["a secret"]
    except KeyError:
        house.fault("somewhere")
    assert house.internal_faults == 1
    (record,) = [record for record in caplog.records if record.getMessage() == "internal-fault"]
    assert "KeyError" in record.__dict__["error"]
    assert "secret" not in str(record.__dict__["error"])
    await closed(house)


def test_destinations_keep_the_order_and_hide_the_secrets() -> None:
    """The first configured upstream is the default; no `repr` shows a key."""
    settings = Settings.model_validate(
        {
            "upstreams": {
                "b": "http://b.test/v1",
                "a": {"base_url": "http://a.test/v1", "api_key": "sk-x", "headers": {"X-Key": "sk-y"}},
            }
        }
    )
    found = destinations(settings)
    assert [one.name for one in found] == ["b", "a"]
    assert (found[1].api_key, found[1].headers) == ("sk-x", (("X-Key", "sk-y"),))
    assert "sk-" not in repr(found)


async def test_background_work_gets_some_time_and_is_then_cancelled() -> None:
    """What ends in time ends by itself; closing waits no longer than it says."""
    ended: list[str] = []

    async def quick() -> None:
        await asyncio.sleep(0.01)
        ended.append("quick")

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    background = Background()
    background.spawn(quick())
    background.spawn(slow())
    began = time.monotonic()
    await background.close(0.1)
    await asyncio.sleep(0)
    assert ended == ["quick", "cancelled"]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("length", [10, 30_000])
async def test_short_and_long_texts_are_counted_the_same(length: int) -> None:
    """Long ones in a thread; the number is that of the meter."""
    transcript = CHAT.split(body(message("user", "word " * length)))
    assert transcript is not None
    measures = Measures()
    found = await measures.estimate(CHAT, transcript.envelope, transcript.items, "m")
    assert found == Measures().meter(CHAT, "m").total(transcript.envelope, transcript.items)
    assert length <= found < length + 100
    measures.close()


def test_a_meter_is_kept_for_each_encoding() -> None:
    """Models that share an encoding share what was counted."""
    measures = Measures()
    assert measures.meter(CHAT, "gpt-5") is measures.meter(CHAT, "qwen3")
    assert measures.meter(CHAT, "gpt-5") is not measures.meter(CHAT, "gpt-4")
    measures.close()


def test_a_destination_has_its_own_wordings_ready() -> None:
    """Patterns are compiled once, at start."""
    upstream = {"base_url": "http://upstream.test/v1", "overflow_patterns": ["boat is (very )?full"]}
    (found,) = destinations(Settings.model_validate({"upstreams": {"up": upstream}}))
    assert [bool(pattern.search("the boat is full")) for pattern in found.overflow_patterns] == [True]
