"""What a reply proves, retires and teaches."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.overflow import Kind, Verdict, classify
from proxy.core.surface import raw_projection
from proxy.house import House
from proxy.steps.healing import broken_off, concluded, retire, taught
from proxy.steps.sight import Sight, Size, size, unseen
from proxy.steps.turn import Turn
from proxy.store import Entry, Record
from proxy.surfaces import Applied
from proxy.upstream import Delivered, Overflowed, Refused
from proxy.upstream.reply import Reply, Tail
from tests.houses import seen, turned
from tests.phrases import ERROR_FRAME, HISTORY, OK, body, chunks_of, delta

OTHER = Verdict(kind=Kind.OTHER, rule="test")
ENTRY = Entry(generation=1, operation="op", digest=b"", covered=1, base=0, model="m", window=0, before=9, after=1, at=0)


def carrying(house: House, turn: Turn, entry: Entry | None = ENTRY) -> Sight:
    """A sight of a body that carried this surface."""
    applied = Applied(record=Record(), projection=raw_projection(turn.transcript), entry=entry)
    return replace(unseen(house, turn), applied=applied, looked=True, estimate=1_000)


def reply(status: int = 200, body: bytes = b"", kind: str = "application/json") -> Reply:
    """A reply whose end was kept."""
    tail = Tail(Identity(), 1 << 16)  # type: ignore[arg-type]
    tail.feed(body)
    return Reply(status=status, headers=(("Content-Type", kind),), source=chunks_of(), tail=tail)


class Identity:
    """A decoder of nothing."""

    def feed(self, data: bytes) -> bytes:
        """Give the same bytes."""
        return data


@pytest.mark.parametrize(
    ("status", "verdict", "times", "retired"),
    [
        (400, OTHER, 1, True),
        (422, OTHER, 1, True),
        (500, OTHER, 1, False),
        (500, OTHER, 2, True),
        (401, OTHER, 3, False),
        (404, OTHER, 3, False),
        (429, Verdict(kind=Kind.RATE_LIMITED, rule="test"), 3, False),
        (400, Verdict(kind=Kind.OUTPUT_TOO_LARGE, rule="test"), 3, False),
        (400, None, 3, False),
        (400, classify(status=400, body='{"error": {"code": "invalid_api_key", "message": "no"}}'), 3, False),
        (400, classify(status=400, body='{"error": {"code": "model_not_found", "message": "no"}}'), 3, False),
        (500, classify(status=500, body='{"error": {"message": "the engine is overloaded"}}'), 3, False),
        (400, classify(status=400, body='{"error": {"message": "roles must alternate"}}'), 1, True),
        (400, classify(status=400, body='{"error": {"code": "content_filter", "message": "no"}}'), 1, True),
    ],
)
async def test_only_a_refusal_of_the_surface_itself_retires_it(
    house: House, turn: Turn, status: int, verdict: Verdict | None, times: int, *, retired: bool
) -> None:
    """Kind OTHER with 400 or 422, with 500 the second time (rule 4.10)."""
    found = [
        retire(house, turn, carrying(house, turn), Refused(reply=reply(status), verdict=verdict)) for _ in range(times)
    ]
    assert found[-1] is retired
    assert bool(house.retired.get("op")) is retired


async def test_an_error_inside_a_200_retires_the_second_time(house: House, turn: Turn) -> None:
    """Some upstreams reject a body only there: it counts like a 500, unless the server is only busy (rule 4.10)."""
    errors = [
        {"type": "invalid_request_error", "message": "no"},
        {"type": "overloaded_error", "message": "Overloaded"},
        {"type": "server_error", "message": "The server is busy, please try again later"},
        {"type": "rate_limit_error", "message": "Slow down"},
        {"code": 400, "message": "no"},
    ]
    read = [classify(status=200, body=json.dumps({"error": one}), in_band=True) for one in errors]
    found = [
        retire(house, turn, carrying(house, turn), Delivered(reply=reply(), why="error", verdict=verdict))
        for verdict in read
    ]
    assert found == [False, False, False, False, True]


async def test_a_dry_run_proves_and_retires_nothing_and_no_store_learns_nothing(house: House, turn: Turn) -> None:
    """`no-store` still proves and retires what is stored: that protects the conversation (rules 4.10, 10.8, 11.6)."""
    dry = replace(turn, policy=replace(turn.policy, dry_run=True), may_write=False)
    ended = reply(body=OK.body)
    concluded(house, dry, Size(), carrying(house, turn), Delivered(reply=ended), ended)
    assert not house.proven.get("op")
    assert not retire(house, dry, carrying(house, turn), Refused(reply=reply(400), verdict=OTHER))
    unstored = replace(turn, may_write=False)
    assert retire(house, unstored, carrying(house, turn), Refused(reply=reply(400), verdict=OTHER))
    concluded(house, unstored, Size(), carrying(house, turn), Delivered(reply=ended), ended)
    assert house.proven.get("op")
    verdict = Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="test", limit=4_096)
    taught(house, unstored, Size(), Overflowed(reply=reply(400), verdict=verdict))
    await house.background.close(2.0)
    learned = house.learning.known(turn.keys)
    assert (learned.limit, learned.calibration) == (0, 1.0)


async def test_what_was_proven_or_not_carried_is_not_retired(house: House, turn: Turn) -> None:
    """Proven in the ledger or in this process; and a body without a surface has none to retire."""
    refusal = Refused(reply=reply(400), verdict=OTHER)
    assert not retire(house, turn, carrying(house, turn, replace(ENTRY, proven=True)), refusal)
    assert not retire(house, turn, carrying(house, turn, None), refusal)
    concluded(house, turn, Size(), carrying(house, turn), Delivered(reply=reply()), reply())
    assert not retire(house, turn, carrying(house, turn), refusal)


@pytest.mark.parametrize(
    ("delivered", "proven"),
    [
        (Delivered(reply=reply()), True),
        (Delivered(reply=reply(), why="error", verdict=OTHER), False),
    ],
)
async def test_only_a_success_proves(house: House, turn: Turn, delivered: Delivered, *, proven: bool) -> None:
    """An error inside a 200 is none."""
    concluded(house, turn, Size(), carrying(house, turn), delivered, delivered.reply)
    assert bool(house.proven.get("op")) is proven


@pytest.mark.parametrize(
    ("frames", "forces"),
    [
        ((delta(content="a"), "[DONE]"), False),
        ((delta(content="a"), ERROR_FRAME), True),
        ((delta(content="a"), ERROR_FRAME, "[DONE]"), True),
        ((delta(content="maximum context length exceeded"), "[DONE]"), False),
        ((delta(content="a"), json.dumps({"error": {"message": "rate limit reached", "code": "rate_limit"}})), False),
    ],
)
async def test_an_overflow_at_the_end_of_a_stream_forces_the_next_compaction(
    house: House, turn: Turn, frames: Any, *, forces: bool
) -> None:
    """Read from the kept end, errors only (rule 9.3); such a reply proves nothing."""
    body = b"".join(f"data: {frame}\n\n".encode() for frame in frames)
    ended = reply(body=body, kind="text/event-stream; charset=utf-8")
    concluded(house, turn, Size(), carrying(house, turn), Delivered(reply=ended, events=True), ended)
    assert bool(house.forced.get(turn.conversation)) is forces
    assert bool(house.proven.get("op")) is not forces


@pytest.mark.parametrize(("delivered", "forces"), [({"events": True}, True), ({"events": False}, False)])
async def test_a_stream_that_broke_off_behind_an_overflow_forces_as_well(
    house: House, turn: Turn, delivered: dict[str, bool], *, forces: bool
) -> None:
    """Many a client leaves at the first error it reads; nothing else is learned of such a reply."""
    body = b"".join(f"data: {frame}\n\n".encode() for frame in (delta(content="a"), ERROR_FRAME))
    left = reply(body=body)
    broken_off(house, turn, Size(), Delivered(reply=left, **delivered), left)
    assert bool(house.forced.get(turn.conversation)) is forces
    assert not house.proven.get("op")
    broken_off(house, turn, Size(), Delivered(reply=left, **delivered), None)  # type: ignore[arg-type]
    assert house.internal_faults == (1 if forces else 0)


async def test_the_operators_own_wordings_count_at_the_end_of_a_stream(house: House, turn: Turn) -> None:
    """`overflow_patterns` of the upstream, as for a reply that is held."""
    frames = (delta(content="a"), json.dumps({"error": {"message": "the boat is full"}}))
    ended = reply(body=b"".join(f"data: {frame}\n\n".encode() for frame in frames), kind="text/event-stream")
    told = replace(turn.destination, overflow_patterns=(re.compile("boat is full"),))
    turns = (turn, replace(turn, passage=replace(turn.passage, destination=told)))
    for one, forces in zip(turns, (False, True), strict=True):
        concluded(house, one, Size(), carrying(house, turn), Delivered(reply=ended, events=True), ended)
        assert bool(house.forced.get(turn.conversation)) is forces


async def test_a_limit_far_below_the_known_window_is_not_believed_at_once(house: House, turn: Turn) -> None:
    """The first garbled refusal of all changes nothing (rule 8.5)."""
    known, _ = await seen(house, turn)
    verdict = Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="test", limit=1_500)
    for believed in (0, 1_500):
        taught(house, turn, known, Overflowed(reply=reply(400), verdict=verdict))
        await house.background.close(2.0)
        assert house.learning.known(turn.keys).limit == believed


async def test_usage_calibrates_and_refusals_teach_limits(house: House, turn: Turn) -> None:
    """Whoever succeeds teaches the meter; whoever is refused teaches the window, recovered or not."""
    ended = reply(body=OK.body.replace(b'"prompt_tokens": 250', b'"prompt_tokens": 700'))
    concluded(house, turn, Size(), carrying(house, turn), Delivered(reply=ended), ended)
    assert house.learning.known(turn.keys).calibration == pytest.approx(0.7)
    verdict = Verdict(kind=Kind.CONTEXT_WINDOW_EXCEEDED, rule="test", limit=4_096)
    taught(house, turn, Size(), Overflowed(reply=reply(400), verdict=verdict))
    await house.background.close(2.0)
    assert house.learning.known(turn.keys).limit == 4_096


async def test_a_fault_in_learning_is_counted_and_raises_nothing(house: House, turn: Turn) -> None:
    """The reply is all but sent: nothing may break it."""
    broken = replace(turn, dialect=None)  # type: ignore[arg-type]
    ended = reply(body=OK.body)
    concluded(house, broken, Size(), carrying(house, turn), Delivered(reply=ended), ended)
    assert house.internal_faults == 1


async def test_a_dialogue_is_measured_as_the_upstream_counted_it(house: House, turn: Turn) -> None:
    """Its next turns by its own last count, an unrelated one by what all replies taught."""
    credential = dict(turn.passage.call.headers)["Authorization"]
    for one, counted in ((turn, 1_500), (turned(house, body(*HISTORY[1:])), 500)):
        usage = {"prompt_tokens": counted, "completion_tokens": 1, "total_tokens": counted + 1}
        ended = reply(body=json.dumps({"choices": [], "usage": usage}).encode())
        concluded(house, one, Size(), carrying(house, one, None), Delivered(reply=ended), ended)
    later = turned(house, body(*HISTORY, HISTORY[1]), credential=credential)
    other = turned(house, body(*HISTORY[2:]), credential=credential)
    assert size(house, later).learned.calibration == pytest.approx(1.5)
    assert 0.5 < size(house, other).learned.calibration < 1.5
