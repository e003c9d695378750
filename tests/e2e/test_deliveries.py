"""An overflow in every delivery, through the real proxy: recovered unseen, or handed on to the byte (rules 7 to 9)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.answers import AFTER_CONTENT, GOOD, GOOD_STREAM, PASSED, PASSED_STREAMS, REFUSED, ROLE, STREAMED
from tests.e2e.deliveries import (
    CHUNKINGS,
    DELIVERIES,
    ENDLESS,
    PLAIN,
    Answer,
    Delivery,
    delta,
    handed_on,
    says,
    some,
    streams,
    told,
)
from tests.e2e.played import TOGETHER, Played, each, played, request
from tests.phrases import HISTORY, message
from tests.sockets import client
from tests.store.servers import Server

FIXTURE = Path(__file__).parents[1] / "data" / "overflow.jsonl"
Plays = Callable[[Played, Answer, Delivery, bool], Awaitable[object]]


async def recovers(stage: Played, answer: Answer, delivery: Delivery, stream: bool) -> None:  # noqa: FBT001 - a row's
    """Two copies, the second smaller; the client sees nothing of the first."""
    model, second = stage.model(), GOOD_STREAM if stream else GOOD
    body = request(model, stream=stream, messages=HISTORY[:5])
    got = await stage.ask(body, model, (answer, delivery), (second, delivery))
    first, again = stage.seen[model]
    assert first.body == body
    assert len(again.body) < len(body)
    handed_on(got, second, delivery)
    assert (told(got)["action"], told(got)["generation"]) == ("overflow-retry", "1")


async def passes(stage: Played, answer: Answer, delivery: Delivery, stream: bool) -> None:  # noqa: FBT001 - a row's
    """One copy, and what it was answered, with Carryon's headers beside it."""
    model = stage.model()
    body = request(model, stream=stream)
    got = await stage.ask(body, model, (answer, delivery))
    assert [copy.body for copy in stage.seen[model]] == [body]
    handed_on(got, answer, delivery)
    assert told(got).keys() == {"action", "conversation", "tokens", "skip"}
    assert told(got)["action"] == "pass"


def _cases(
    stage: Played, answers: dict[str, Answer], plays: Plays, *, every: bool
) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
    for number, (name, answer) in enumerate(answers.items()):
        event_stream = name in STREAMED or name in PASSED_STREAMS
        for at, delivery in enumerate(DELIVERIES if every else some(number)):
            stream = event_stream or bool((number + at + at // len(CHUNKINGS)) % 2)  # either way is asked for
            yield (
                f"{name}: {delivery}, stream={stream}",
                lambda *a, s=stream, w=answer, d=delivery: plays(stage, w, d, s),
            )


TABLES: dict[str, tuple[dict[str, Answer], Plays]] = {
    "refusals": (REFUSED, recovers),
    "streams": (STREAMED, recovers),
    "what passes": (PASSED, passes),
    "streams that pass": (PASSED_STREAMS, passes),
}


@pytest.mark.parametrize("table", TABLES)
async def test_every_answer_ends_as_the_rules_say_in_every_delivery(table: str, valkey: Server) -> None:
    """Recovered with two copies and nothing of the first to be seen, or handed on to the byte with one."""
    answers, plays = TABLES[table]
    async with played(valkey, clients=TOGETHER) as stage:
        tried = await each(stage, _cases(stage, answers, plays, every=False))
    print(f"\ndeliveries of {table}: {len(answers)} answers, {tried} requests, 0 wrong")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("table", TABLES)
async def test_every_answer_ends_as_the_rules_say_in_all_sixty_deliveries(table: str, valkey: Server) -> None:
    """The whole product of coding, chunking and framing."""
    answers, plays = TABLES[table]
    async with played(valkey, clients=TOGETHER) as stage:
        tried = await each(stage, _cases(stage, answers, plays, every=True))
    print(f"\nall deliveries of {table}: {len(answers)} answers, {tried} requests, 0 wrong")


# --- the fixture ----------------------------------------------------------------------------------------


def _rows() -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
    return [row for row in rows if row["api"] in ("chat", "native") and "endpoint" not in row]


def _played(row: dict[str, Any]) -> tuple[Answer, bool]:
    """A row as an upstream's reply, and whether that is a stream."""
    headers = tuple((name.encode(), value.encode()) for name, value in row["headers"].items())
    if row["delivery"] in ("http", "in_band_200_json"):
        answer = says(row["body"], row["status"])
        named = any(name.lower() == b"content-type" for name, _ in headers)
        return replace(answer, headers=headers if named else (*answer.headers, *headers)), False
    if row["body"].__class__ is dict and row["body"].get("object") == "chat.completion":
        return says(row["body"]), False
    event = f"event: {row['event']}\n" if "event" in row else ""
    before = [frame for what in row.get("preceded_by", ()) for frame in _BEFORE[what](row)]
    return streams(*before, f"{event}data: {json.dumps(row['body'])}", done=True), True


_BEFORE: dict[str, Callable[[dict[str, Any]], tuple[object, ...]]] = {
    "sse comment": lambda _: (": OPENROUTER PROCESSING", ROLE),
    "content deltas?": lambda _: (ROLE,),
    "delta.content == the overflow text": lambda row: (ROLE, delta(content=row["body"]["error"]["message"])),
}


async def _as_the_row_says(stage: Played, row: dict[str, Any], delivery: Delivery, tally: Counter[str]) -> None:
    answer, stream = _played(row)
    model, second = stage.model(), GOOD_STREAM if stream else GOOD
    got = await stage.ask(request(model, stream=stream), model, (answer, delivery), (second, delivery), all_said=False)
    copies, action = len(stage.seen[model]), told(got)["action"]
    handed_on(got, answer if copies == 1 else second, delivery)
    expected = {"overflow-retry": 2, "overflow-refused": 1, "pass": 1}
    assert copies == expected[action]
    tally[f"{action}{', ambiguous' if row.get('ambiguous') else ''}"] += 1
    if row.get("ambiguous"):
        return
    overflow, cured = row["verdict"] == "CONTEXT_WINDOW_EXCEEDED", row.get("compactable", True)
    # Below 1,024 tokens there is no room for a conversation: a cure cannot be expected.
    open_ = row["limit"] is not None and row["limit"] < 1_024
    wanted = ({"overflow-retry"} if cured else {"overflow-refused"}) if overflow else {"pass"}
    assert action in (wanted | {"overflow-refused"} if open_ else wanted), told(got)


async def test_every_line_of_the_fixture_played_as_a_reply_ends_as_it_says(valkey: Server) -> None:
    """Overflows are recovered (one that output alone fills is handed over), all else passes with one copy."""
    rows, tally = _rows(), Counter[str]()
    async with played(valkey, clients=TOGETHER) as stage:
        tried = await each(
            stage,
            (
                (f"{row['id']}: {delivery}", lambda r=row, d=delivery: _as_the_row_says(stage, r, d, tally))
                for number, row in enumerate(rows)
                for delivery in (DELIVERIES[7 * number % len(DELIVERIES)],)
            ),
        )
    print(f"\nfixture through the proxy: {len(rows)} lines, {tried} requests, {dict(sorted(tally.items()))}")


# --- after content, and silently ------------------------------------------------------------------------


async def _packed_before(stage: Played, answer: Answer, delivery: Delivery) -> None:
    model = stage.model()
    body = request(model, stream=True)
    got = await stage.ask(body, model, (answer, delivery))
    assert [copy.body for copy in stage.seen[model]] == [body]
    handed_on(got, answer, delivery)
    assert told(got)["action"] == "pass"
    grown = (*HISTORY, message("assistant", "The tide"), message("user", "go on"))
    for messages, action in ((HISTORY[:3], "pass"), (grown, "pressure")):
        body = request(model, stream=True, messages=messages)
        got = await stage.ask(body, model, (GOOD_STREAM, PLAIN))
        handed_on(got, GOOD_STREAM, PLAIN)
        (sent,) = stage.seen[model]
        assert told(got)["action"] == action, "another transcript is left alone, this one is packed"
        assert (sent.body == body) is (action == "pass")
    assert told(got)["generation"] == "1"


@pytest.mark.parametrize("window", [10_000, None], ids=["window known", "window unknown"])
async def test_an_overflow_after_content_passes_and_packs_the_next_request(valkey: Server, window: int | None) -> None:
    """Not a byte is changed, nothing is sent again; the transcript that goes on is packed before it is sent."""
    async with played(valkey, window, clients=TOGETHER) as stage:
        tried = await each(
            stage,
            (
                (f"{name}: {delivery}", lambda a=answer, d=delivery: _packed_before(stage, a, d))
                for number, (name, answer) in enumerate(AFTER_CONTENT.items())
                for delivery in list(some(number))[:3]
            ),
        )
    print(f"\noverflows after content, window {window}: {tried} transcripts, 0 wrong")


async def test_a_client_that_leaves_at_the_error_has_its_next_request_packed(
    valkey: Server, wait_for: Callable[..., Awaitable[None]]
) -> None:
    """It reads no further, and the upstream would never have ended: what was relayed is enough to know."""
    async with played(valkey) as stage:
        model, answer = stage.model(), AFTER_CONTENT["an error frame"]
        async with client(stage.port) as leaving:
            await stage.send(leaving, request(model, stream=True), model, (answer, ENDLESS))
            await asyncio.wait_for(leaving.reader.readuntil(b"context_length_exceeded"), 10)
        await wait_for(lambda: len(stage.house.forced) > 0, "the note")
        grown = request(model, stream=True, messages=(*HISTORY, message("user", "go on")))
        got = await stage.ask(grown, model, (GOOD_STREAM, PLAIN))
        assert (told(got)["action"], told(got)["generation"]) == ("pressure", "1")


async def _feeds_the_next_check(stage: Played, answer: Answer, delivery: Delivery, *, action: str, times: int) -> None:
    model = stage.model()
    body = request(model, stream=False)
    handed_on(await stage.ask(body, model, (answer, delivery)), answer, delivery)
    longer = (*HISTORY, *(message("user", f"{at} {HISTORY[0].decode()}") for at in range(times)))
    got = await stage.ask(request(model, stream=False, messages=longer), model, (GOOD, PLAIN))
    assert told(got)["action"] == action, told(got)


@pytest.mark.parametrize(
    ("name", "times", "action"),
    [
        ("200", 1, "pass"),
        ("200, more counted than the window holds", 1, "pressure"),  # it counts three times what the meter did
        ("200, hardly anything counted", 1, "pass"),
        ("200, hardly anything counted", 26, "pressure"),  # and does not make the meter count less
    ],
)
async def test_silent_acceptance_and_truncation_pass_and_feed_the_next_pressure_check(
    name: str, times: int, action: str, valkey: Server
) -> None:
    """No error is seen where there is none; what was counted is learned, or is too little to be believed."""
    plain, counted = PASSED[name], json.loads(PASSED[name].body)["usage"]
    told_last = streams(ROLE, delta(content="aye"), delta("stop"), {"choices": [], "usage": counted}, done=True)
    async with played(valkey, clients=TOGETHER) as stage:
        await each(
            stage,
            (
                (
                    f"{name}: {delivery}",
                    lambda a=answer, d=delivery: _feeds_the_next_check(stage, a, d, action=action, times=times),
                )
                for answer in (plain, told_last)
                for delivery in some(times)
            ),
        )
