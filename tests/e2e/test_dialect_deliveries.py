"""Overflow as the other two APIs tell it, through the real proxy: refusals, failed events, terminal reasons."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.apis import APIS, Api
from tests.e2e.deliveries import DELIVERIES, EVENTS, Answer, Delivery, handed_on, says, some, told
from tests.e2e.played import TOGETHER, Played, each, played
from tests.store.servers import Server

FIXTURE = Path(__file__).parents[1] / "data" / "overflow.jsonl"
#: Both but `chat`, which has its own file.
OTHERS = {api.name: api for api in APIS if api.name != "chat"}
#: Steps of the conversation that is played: below the threshold, several units.
STEPS = 6

pytestmark = pytest.mark.parametrize("api", OTHERS.values(), ids=OTHERS)


@pytest.fixture
async def stage(api: Api, valkey: Server) -> AsyncIterator[Played]:
    """Carryon before an upstream that speaks this API."""
    async with played(valkey, clients=TOGETHER) as found:
        found.path = f"/v1{api.path}".encode()
        yield found


def body(api: Api, model: str, *, stream: bool, steps: int = STEPS) -> bytes:
    """A request of that API, spelt compactly."""
    return json.dumps(api.body(model, api.history(steps), stream=stream), separators=(",", ":")).encode()


def event_stream(*frames: bytes) -> Answer:
    """Frames as an event stream."""
    return Answer(body=b"".join(frames), headers=EVENTS)


def event(value: dict[str, Any]) -> bytes:
    """One named event."""
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def second(api: Api, *, stream: bool) -> Answer:
    """What the retry is answered."""
    return event_stream(*api.frames("aye 上", 250)) if stream else says(api.whole("aye 上", 250))


def beginning(api: Api, echo: int = 0) -> list[bytes]:
    """What that API's streams begin with, before any content; the lifecycle events repeat `echo` characters."""
    frames = list(api.frames("aye", 250))
    start = frames[: 4 if api.name == "responses" else 3]
    if echo:
        value = json.loads(start[0].partition(b"data: ")[2])
        (value.get("response") or value["message"])["instructions"] = "上" * echo
        start[0] = event(value)
    return start


async def recovers(stage: Played, api: Api, answer: Answer, delivery: Delivery, *, stream: bool) -> None:
    """Two copies, the second smaller and valid; the client sees nothing of the first."""
    model, reply = stage.model(), second(api, stream=stream)
    asked = body(api, model, stream=stream)
    got = await stage.ask(asked, model, (answer, delivery), (reply, delivery))
    first, again = stage.seen[model]
    assert first.body == asked
    assert len(again.body) < len(asked)
    assert api.problem(json.loads(again.body)) is None
    handed_on(got, reply, delivery)
    assert (told(got)["action"], told(got)["generation"]) == ("overflow-retry", "1")


REFUSAL = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "Your input is too long."}
FAILED = event(
    {
        "type": "response.failed",
        "response": {"id": "resp_r", "status": "failed", "error": REFUSAL},
        "sequence_number": 9,
    }
)
STREAMS: dict[str, dict[str, bytes]] = {
    "responses": {
        "response.failed": FAILED,
        "a nested error event": event({"type": "error", "sequence_number": 9, "error": REFUSAL}),
        "a flat error event": event({**REFUSAL, "type": "error", "sequence_number": 9}),
    },
    "messages": {
        "an error event": event(
            {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}}
        ),
        "a terminal reason": event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "model_context_window_exceeded"},
                "usage": {"output_tokens": 0},
            }
        ),
    },
}


async def test_a_stream_that_fails_before_content_is_recovered_in_every_delivery(stage: Played, api: Api) -> None:
    """After nothing, after lifecycle events, and after ones that repeat the whole request."""
    cases = []
    for number, (name, frame) in enumerate(STREAMS[api.name].items()):
        for echo in (0, 40_000):
            for delivery in some(number):
                if echo and delivery.chunking == "bytes":
                    continue  # a system call for each of 100,000 bytes shows nothing new
                answer = event_stream(*beginning(api, echo), frame)
                cases.append(
                    (
                        f"{name}: {delivery}, echo={echo}",
                        lambda a=answer, d=delivery: recovers(stage, api, a, d, stream=True),
                    )
                )
    print(f"\n{api.name}: streams that fail before content: {await each(stage, cases)} requests, 0 wrong")


async def test_a_refusal_is_recovered_streamed_or_not(stage: Played, api: Api) -> None:
    """400 in the API's own words, and the same as JSON inside a 200."""
    refusal = api.refusal(9_000, 8_192)
    cases = [
        (f"{status}, {stream}: {delivery}", lambda a=answer, d=delivery, s=stream: recovers(stage, api, a, d, stream=s))
        for status in (400, 200)
        for stream in (False, True)
        for answer in (says(refusal, status),)
        for delivery in some(status + stream)
    ]
    print(f"\n{api.name}: refusals: {await each(stage, cases)} requests, 0 wrong")


async def test_a_stream_that_fails_after_content_passes_and_the_next_request_is_packed_first(
    stage: Played, api: Api
) -> None:
    """Rule 9.3: what was said cannot be taken back."""
    frames = list(api.frames("The tide", 250))
    cut = next(at for at, frame in enumerate(frames) if b"The tide" in frame and b"delta" in frame)
    answer = event_stream(*frames[: cut + 1], next(iter(STREAMS[api.name].values())))
    for delivery in some(0):
        model = stage.model()
        asked = body(api, model, stream=True)
        got = await stage.ask(asked, model, (answer, delivery))
        assert [copy.body for copy in stage.seen[model]] == [asked]
        handed_on(got, answer, delivery)
        reply = second(api, stream=True)
        got = await stage.ask(body(api, model, stream=True, steps=STEPS + 1), model, (reply, delivery))
        (only,) = stage.seen[model]
        assert len(only.body) < len(asked)
        assert api.problem(json.loads(only.body)) is None
        assert told(got)["action"] == "pressure"
        handed_on(got, reply, delivery)


async def test_a_beginning_beyond_the_holds_bounds_is_released_and_not_retried(api: Api, valkey: Server) -> None:
    """What repeats more than `hold.bytes` goes to the client as it came, error and all."""
    async with played(valkey, clients=1, hold={"bytes": "64KiB"}) as stage:
        stage.path = f"/v1{api.path}".encode()
        model = stage.model()
        asked = body(api, model, stream=True)
        answer = event_stream(*beginning(api, 40_000), next(iter(STREAMS[api.name].values())))
        got = await stage.ask(asked, model, (answer, DELIVERIES[0]))
        assert [copy.body for copy in stage.seen[model]] == [asked]
        handed_on(got, answer, DELIVERIES[0])


async def test_every_line_of_the_fixture_ends_as_it_says(stage: Played, api: Api) -> None:
    """Overflows are recovered (one that output alone fills is handed over), all else passes with one copy."""
    lines = (json.loads(line) for line in FIXTURE.read_text().splitlines())
    rows = [row for row in lines if row["api"] == api.name and "endpoint" not in row]
    tally = Counter[str]()
    cases = [
        (row["id"], lambda r=row, d=delivery: _as_it_says(stage, api, r, d, tally))
        for number, row in enumerate(rows)
        for delivery in (DELIVERIES[7 * number % len(DELIVERIES)],)
    ]
    assert await each(stage, cases) == len(rows) > 10
    print(f"\n{api.name}: fixture through the proxy: {len(rows)} lines, {dict(sorted(tally.items()))}")


async def _as_it_says(stage: Played, api: Api, row: dict[str, Any], delivery: Delivery, tally: Counter[str]) -> None:
    stream = row["delivery"] not in ("http", "in_band_200_json")
    if stream:
        spoken = "content_block_delta" in row.get("preceded_by", ())
        start = list(api.frames("aye", 250))[:4] if spoken else beginning(api)
        frame = f"event: {row['event']}\ndata: {json.dumps(row['body'])}\n\n".encode()
        answer = event_stream(*start, frame)
    else:
        spoken, headers = False, tuple((name.encode(), value.encode()) for name, value in row["headers"].items())
        answer = says(row["body"], row["status"])
        named = any(name.lower() == b"content-type" for name, _ in headers)
        answer = replace(answer, headers=headers if named else (*answer.headers, *headers))
    model, reply = stage.model(), second(api, stream=stream)
    asked = body(api, model, stream=stream)
    got = await stage.ask(asked, model, (answer, delivery), (reply, delivery), all_said=False)
    copies, action = len(stage.seen[model]), told(got)["action"]
    handed_on(got, answer if copies == 1 else reply, delivery)
    tally[action] += 1
    overflow, cured = row["verdict"] == "CONTEXT_WINDOW_EXCEEDED", row.get("compactable", True)
    wanted = "pass" if spoken or not overflow else "overflow-retry" if cured else "overflow-refused"
    assert action == wanted or row.get("ambiguous"), told(got)
    assert copies == (2 if action == "overflow-retry" else 1)
