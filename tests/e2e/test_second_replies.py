"""What the client has after a retry, and what no upstream may say (rules 7.6, 4.10, 10.6), in every delivery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.e2e.answers import AFTER_CONTENT, GOOD, GOOD_STREAM, HINTS, PASSED, PASSED_STREAMS, REFUSED, ROLE, STREAMED
from tests.e2e.deliveries import PLAIN, Answer, Delivery, handed_on, says, some, streams, told
from tests.e2e.played import TOGETHER, Played, each, played, request
from tests.store.servers import Server

_ROLES = {"error": {"message": "roles must alternate", "code": "invalid_prompt"}}
#: The answer to the second copy, whose reply the client gets, and what Carryon says.
SECOND: dict[str, tuple[Answer, int, str, str | None]] = {
    "another overflow": (REFUSED["400 with numbers"], 2, "overflow-refused", "too-large"),
    "another overflow, 429": (REFUSED["429 of a gateway"], 2, "overflow-refused", "too-large"),
    "another overflow in a 200": (REFUSED["flat error in a 200"], 2, "overflow-refused", "too-large"),
    "another overflow in a stream": (
        STREAMED["error frame after what commits nothing"],
        2,
        "overflow-refused",
        "too-large",
    ),
    "another overflow as a sentence": (STREAMED["text as a delta, then the error"], 2, "overflow-refused", "too-large"),
    "429": (PASSED["429"], 2, "overflow-retry", None),
    "402": (PASSED["402 for credit"], 2, "overflow-retry", None),
    "500": (says(_ROLES, 500, *HINTS), 2, "overflow-retry", None),
    "503": (PASSED["503 empty"], 2, "overflow-retry", None),
    "529": (PASSED["529"], 2, "overflow-retry", None),
    "a rate in a 200": (PASSED["200 with a rate"], 2, "overflow-retry", None),
    "a rate in a stream": (PASSED_STREAMS["stream with a rate"], 2, "overflow-retry", None),
    "another error in a stream": (streams(ROLE, _ROLES, done=True), 2, "overflow-retry", None),
    "an overflow after content": (AFTER_CONTENT["an error frame"], 2, "overflow-retry", None),
    "a refusal of what was packed": (PASSED["400 of another kind"], 1, "overflow-refused", "invalid"),
    "422 for what was packed": (says(_ROLES, 422), 1, "overflow-refused", "invalid"),
}


async def _retry_meets(stage: Played, name: str, delivery: Delivery, *, stream: bool) -> None:
    second, gets, action, refused = SECOND[name]
    model, first = stage.model(), REFUSED["400 with a code"]
    got = await stage.ask(request(model, stream=stream), model, (first, delivery), (second, delivery))
    assert len(stage.seen[model]) == 2
    handed_on(got, (first, second)[gets - 1], delivery)
    assert told(got)["action"] == action
    assert told(got).get("refused") == refused
    assert told(got).get("error") == (None if refused is None else "CONTEXT_WINDOW_EXCEEDED")
    assert told(got).get("generation") == ("1" if gets == 2 else None)


async def test_what_the_retry_is_answered_is_handed_on_in_every_delivery(valkey: Server) -> None:
    """The newest overflow, any other failure as it came; the original where what was packed is refused as such."""
    async with played(valkey, clients=TOGETHER) as stage:
        tried = await each(
            stage,
            (
                (f"{name}: {delivery}", lambda n=name, d=delivery, s=bool(at % 2): _retry_meets(stage, n, d, stream=s))
                for number, name in enumerate(SECOND)
                for at, delivery in enumerate(list(some(number))[:4])
            ),
        )
    print(f"\nanswers to the retry: {len(SECOND)} answers, {tried} requests, 0 wrong")


# --- headers --------------------------------------------------------------------------------------------

_THEIRS = ((b"x-carryon-action", b"overflow-retry"), (b"X-Carryon-Refused", b"off"), (b"X-CARRYON-FOO", b"1"))


@pytest.mark.parametrize("shown", [True, False], ids=["headers shown", "headers off"])
async def test_no_upstream_speaks_in_carryons_name(valkey: Server, *, shown: bool) -> None:
    """Its `x-carryon-*` are dropped from every reply, whether or not ours are shown; hints for clients are kept."""
    async with played(valkey, response_headers=shown) as stage:
        for answer in (GOOD, PASSED["429"], PASSED["200 of another type"], REFUSED["400 with a code"], GOOD_STREAM):
            model = stage.model()
            lying = replace(answer, headers=(*answer.headers, *_THEIRS, *HINTS))
            got = await stage.ask(request(model, stream=False), model, (lying, PLAIN), (lying, PLAIN), all_said=False)
            handed_on(got, replace(answer, headers=(*answer.headers, *HINTS)), PLAIN)
            assert not got.values(b"x-carryon-foo")
            ours = [name for name, _ in got.headers if name.lower().startswith(b"x-carryon")]
            assert bool(ours) is shown
            assert len(set(ours)) == len(ours)
            assert not any(name.startswith(b"X-C") for name in ours)
