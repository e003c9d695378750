"""What must hold for every real client, point by point, on all three APIs; the numbers are the points'.

A point that is shown in full or in part elsewhere is named in `SHOWN_BY`. Run with `-s` to see the list.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import brotli
import pytest
import pytest_asyncio
import zstandard

from tests.e2e.answers import HINTS
from tests.e2e.apis import APIS, Api
from tests.e2e.deliveries import EVENTS, PLAIN, Answer, Header, handed_on, says, some, told
from tests.e2e.played import Played, played
from tests.e2e.points import (
    door,
    edited,
    events,
    found_under,
    packed,
    recording,
    respelt,
    session,
    spellings,
    with_items,
)
from tests.e2e.reading import READINGS
from tests.e2e.replay import CAPTURES, RECORDINGS, Ask
from tests.e2e.stand import Row, Stage, staged
from tests.sockets import Peer, Raw, RawUpstream, client, raw_upstream, reply
from tests.store.servers import Server

pytestmark = pytest.mark.timeout(120)

_E2E = "tests/e2e/test_"
_CLIENTS = "tests/clients/test_clients.py::test_a_client_outlives_the_window"
_RECORDINGS = f"{_E2E}recordings.py::test_no_recorded_session_gets_another_history_s_surface_or_pays_twice"
_DIALECT = f"{_E2E}dialect_deliveries.py::test_"
#: What shows a point beside the tests here, or in place of one.
SHOWN_BY: dict[int, tuple[str, ...]] = {
    1: (f"{_E2E}byte_identity.py::test_what_was_never_compacted_is_the_same_bytes_both_ways", _RECORDINGS),
    2: ("tests/server/test_through.py::test_head_passes",),
    3: (f"{_CLIENTS}[codex-openai]", "tests/server/test_handler.py::test_a_websocket_is_426_at_once"),
    4: (_RECORDINGS,),
    5: (f"{_E2E}bad_input.py::test_coded_bodies_go_on_as_they_came_or_packed_without_their_coding",),
    6: (f"{_E2E}refusals_to_the_byte.py::test_what_is_not_retried_reaches_the_client_to_the_byte",),
    7: (f"{_E2E}timeouts.py::test_both_triggers_together_wait_for_summaries_no_longer_than_one_time_out",),
    8: (
        f"{_E2E}deliveries.py::test_every_answer_ends_as_the_rules_say_in_every_delivery",
        f"{_E2E}deliveries.py::test_an_overflow_after_content_passes_and_packs_the_next_request",
        f"{_DIALECT}a_stream_that_fails_before_content_is_recovered_in_every_delivery",
        f"{_DIALECT}a_stream_that_fails_after_content_passes_and_the_next_request_is_packed_first",
    ),
    9: (f"{_E2E}second_replies.py::test_what_the_retry_is_answered_is_handed_on_in_every_delivery",),
    10: (f"{_E2E}refusals_to_the_byte.py::test_what_is_not_retried_reaches_the_client_to_the_byte",),
    11: (_RECORDINGS,),
    12: (
        _RECORDINGS,
        f"{_E2E}histories.py::test_new_system_text_and_other_tools_leave_the_surface_and_are_sent_as_they_are",
    ),
    13: (
        f"{_E2E}habits.py::test_a_title_call_under_the_same_session_id_disturbs_nothing",
        f"{_E2E}habits.py::test_a_client_s_own_compaction_call_starts_no_summary_and_gets_what_is_stored",
    ),
    14: (
        f"{_E2E}habits.py::test_sessions_with_the_same_first_seven_messages_never_get_each_others_surface",
        _RECORDINGS,
    ),
    15: (
        f"{_E2E}histories.py::test_what_clients_respell_between_turns_leaves_the_surface",
        f"{_E2E}histories.py::test_one_changed_character_inside_the_covered_range_and_the_surface_does_not_apply",
    ),
    16: (f"{_E2E}tenants.py::test_two_tenants_with_the_same_bytes_share_nothing",),
    17: (
        f"{_E2E}crowds.py::test_one_request_in_flight_in_six_spellings_costs_one_summary",
        f"{_E2E}good_summaries.py::test_identical_requests_in_flight_cause_one_summary",
    ),
    18: (f"{_E2E}dialects.py::test_a_conversation_outlives_its_window", f"{_CLIENTS}[opencode]"),
    19: (
        *(f"{_CLIENTS}[{name}]" for name in ("codex", "opencode", "pi-chat", "pi-responses", "qwen-code")),
        f"{_E2E}two_processes.py::test_surfaces_live_on_when_carryon_is_started_again",
    ),
    20: ("tests/dialects/test_responses.py::test_histories_that_lie_elsewhere_are_marked",),
}

_BY_API = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
_STAGED = pytest.mark.asyncio(loop_scope="module")
#: Steps of a conversation below the threshold of the raw stage's window, several units long.
STEPS = 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(ledger: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """`carryon serve` before a recording upstream; tests keep apart by their keys."""
    async with staged(ledger, tmp_path_factory.mktemp("carryon")) as found:
        yield found


@pytest.fixture
async def raw(api: Api, valkey: Server) -> AsyncIterator[Played]:
    """The same between raw sockets, for answers to the byte."""
    async with played(valkey, clients=1) as found:
        found.path = f"/v1{api.path}".encode()
        yield found


def _body(api: Api, model: str, *, stream: bool = False, steps: int = STEPS, **more: object) -> bytes:
    whole = {**api.body(model, api.history(steps), stream=stream), **more}
    return json.dumps(whole, separators=(",", ":")).encode()


def _stream(*frames: bytes) -> Answer:
    return Answer(body=b"".join(frames), headers=EVENTS)


def _ok(api: Api, *, stream: bool) -> Answer:
    return _stream(*api.frames("aye 上", 250)) if stream else says(api.whole("aye 上", 250))


def _marked(upstream: RawUpstream) -> Raw:
    """The newest request that a test sent: Carryon asks for windows itself."""
    return [one for one in upstream.requests if one.values(b"x-mark")][-1]


def _is_there(named: str) -> bool:
    """Whether a module has this test, and the test this parameter where one is named."""
    path, _, test = named.partition("::")
    test, _, parameter = test.removesuffix("]").partition("[")
    found = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), test, None)
    marks = (mark for mark in getattr(found, "pytestmark", ()) if mark.name == "parametrize")
    ids = [getattr(one, "id", None) for mark in marks for one in mark.args[1]]
    return callable(found) and (not parameter or parameter in ids)


def test_00_every_point_is_shown() -> None:
    """Twenty points; each has a test here or elsewhere, and what is named elsewhere is there."""
    assert [one for tests in SHOWN_BY.values() for one in tests if not _is_there(one)] == []
    here = {int(found[1]): name for name in globals() if (found := re.match(r"test_(\d\d)_", name))}
    for point in range(1, 21):
        name = here.get(point, "").removeprefix(f"test_{point:02}_")
        print(f"{point:2}  {name:95} {len(SHOWN_BY[point])} elsewhere")
    assert {*here, *SHOWN_BY} >= {*range(1, 21)}


@_BY_API
async def test_01_below_the_threshold_both_sides_have_each_others_bytes(api: Api, valkey: Server) -> None:
    """Every request as recorded, answered by streams with comments, unknown events and CRLF, and by whole replies."""
    frames = list(api.frames("aye 上", 250))
    odd = (
        b": a comment\r\n\r\n",
        frames[0],
        b"event: x-own\ndata: what\n\nretry: 9\n\n",
        *frames[1:],
        b": the end\n\n",
    )
    answers = (_stream(*odd), _stream(*(frame.replace(b"\n", b"\r\n") for frame in odd)), _ok(api, stream=False))
    asks = [ask for one in RECORDINGS if one.api == api.name for ask in itertools.islice(one.asks(), 6)]
    assert len(asks) >= 18
    async with played(valkey, 1_000_000, clients=1) as raw:
        for number, ask in enumerate(asks):
            raw.path = f"/v1{ask.target}".encode()
            answer, model = answers[number % len(answers)], ask.body["model"]
            mine = [(name.encode(), value.encode()) for name, value in ask.headers.items()]
            got = await raw.ask(ask.spelled, model, (answer, PLAIN), headers=tuple(mine))
            (copy,) = raw.seen[model]
            assert copy.body == ask.spelled
            assert copy.start == b"POST %s HTTP/1.1" % raw.path
            assert [one for one in mine if one not in copy.headers] == []
            handed_on(got, answer, PLAIN)
            assert told(got)["action"] == "pass"


_PATHS = {
    b"HEAD /": b"HEAD /",
    b"GET /v1/models": b"GET /v1/models",
    b"GET /models?limit=3": b"GET /v1/models?limit=3",
    b"POST /v1/embeddings": b"POST /v1/embeddings",
    b"POST /embeddings": b"POST /v1/embeddings",
    b"POST /v1/messages/count_tokens?beta=true": b"POST /v1/messages/count_tokens?beta=true",
    b"POST /v1/files": b"POST /v1/files",
    b"POST /v1/audio/speech": b"POST /v1/audio/speech",
    b"DELETE /v1/responses/resp_1": b"DELETE /v1/responses/resp_1",
    b"GET /api/hello": b"GET /api/hello",
    b"POST /v1/chat/completions": b"POST /v1/chat/completions",
    b"POST /chat/completions": b"POST /v1/chat/completions",
    b"POST /responses": b"POST /v1/responses",
    b"POST /messages?beta=true": b"POST /v1/messages?beta=true",
    b"POST /u/up/v1/messages": b"POST /v1/messages",
    b"POST /u/up/responses": b"POST /v1/responses",
}


@pytest.mark.parametrize("base", ["", "/v1"])
async def test_02_a_base_url_may_end_in_v1_or_not_and_other_paths_pass(base: str, valkey: Server) -> None:
    """The client's and the upstream's; `HEAD /`, models, embeddings, files and unknown paths, both ways."""
    said = b'{ "odd" :1 }'

    async def answer(peer: Peer) -> None:
        while True:
            asked = await peer.message()
            whole = reply(said, headers=b"Content-Type: application/json\r\nX-Own: 1\r\n")
            await peer.send(whole.removesuffix(said) if asked.start.startswith(b"HEAD") else whole)

    async with raw_upstream(answer) as upstream, door(upstream.url + base, valkey) as port:
        for asked, arrives in _PATHS.items():
            body = b"" if asked.startswith((b"HEAD", b"GET", b"DELETE")) else b"\x00not json"
            async with client(port) as peer:
                head = b"%s HTTP/1.1\r\nHost: c\r\nX-Mark: 1\r\nContent-Length: %d\r\n\r\n" % (asked, len(body))
                await peer.send(head + body)
                got = await peer.message(bodiless=asked.startswith(b"HEAD"))
            seen = _marked(upstream)
            assert (seen.start, seen.body) == (arrives + b" HTTP/1.1", body)
            assert (got.status, got.values(b"x-own")) == (200, [b"1"])
            assert got.body == (b"" if asked.startswith(b"HEAD") else said)


@pytest.mark.parametrize("name", ["codex-0.171.0_ws_probe_404", "codex-0.171.0_remote_compaction_v2"])
async def test_03_a_recorded_upgrade_is_426_once_and_http_goes_on(name: str, valkey: Server) -> None:
    """Codex's own upgrade requests reach no upstream; the turn that follows does."""
    requests = json.loads((CAPTURES / f"{name}.json").read_text())["requests"]
    upgrades, posts = ([one for one in requests if one["method"] == which] for which in ("GET", "POST"))
    answer = _ok(READINGS["responses"].api, stream=True).body
    events_ = reply(answer, headers=b"Content-Type: text/event-stream\r\n")
    async with raw_upstream(events_, keep=True) as upstream, door(upstream.url, valkey) as port:
        async with client(port) as peer:
            await peer.send(_spelled(upgrades[0]))
            refused = await peer.message()
        assert (refused.status, refused.values(b"x-carryon-error")) == (426, [b"PROXY_NO_WEBSOCKET"])
        assert upstream.requests == []
        async with client(port) as peer:
            await peer.send(_spelled(posts[0]))
            assert (await peer.message()).body == answer


def _spelled(request: dict[str, Any]) -> bytes:
    body = b"" if request["body"] is None else json.dumps(request["body"]).encode()
    lines = [f"{request['method']} {request['path']} HTTP/1.1", "Host: c"]
    lines += [f"{name}: {value}" for name, value in request["headers"]]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


_HEADERS = {
    "x-codex-own": "1",
    "openai-beta": "responses=v1",
    "anthropic-beta": "context-1m-2025-08-07",
    "x-stainless-own": "1",
    "session_id": "s-1",
    "session-id": "s-2",
    "x-session-affinity": "s-3",
    "x-client-request-id": "r-1",
}


@_STAGED
@_BY_API
async def test_04_every_header_arrives_with_turns_packed_or_not_and_with_summaries(stage: Stage, api: Api) -> None:
    """Those of the recording, and one of each kind that clients send."""
    row = Row(name="headers")
    for ask in session(api.name):
        ask.headers.update(_HEADERS)
        found = await stage.send(row, ask, f"sk-headers-{api.name}")
        if found.reply.action == "projected":
            break
    assert row.wrong == []
    assert row.summaries
    assert {"pass", "pressure", "projected"} == row.actions.keys()


_CODINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}


@_STAGED
@_BY_API
async def test_05_compressed_bodies_are_packed_and_pass_as_they_came(stage: Stage, api: Api, valkey: Server) -> None:
    """Over the threshold a coded body is packed and sent plain; else it passes, of an unknown coding as well."""
    asks = session(api.name)
    at, _ = await packed(stage, asks, f"sk-find-{api.name}")
    for coding, encode in _CODINGS.items():
        before, key = len(stage.upstream.heard), f"sk-{coding}-{api.name}"
        got = await stage.post(asks[at], key, encode(asks[at].spelled), **{"Content-Encoding": coding})
        (turn,) = stage.upstream.turns(since=before)
        assert (got.status, got.action, turn.headers.get("content-encoding")) == (200, "pressure", None)
        assert not stage.upstream.witnesses[api.name].judged(turn.body, asks[at].spelled).wrong
    async with raw_upstream(reply(), keep=True) as upstream, door(upstream.url, valkey) as port, client(port) as peer:
        for coding, content in [
            *((name, code(asks[0].spelled)) for name, code in _CODINGS.items()),
            ("x-own", b"\x01"),
        ]:
            head = b"POST /v1%s HTTP/1.1\r\nHost: c\r\nX-Mark: 1\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n"
            await peer.send(head % (api.path.encode(), coding.encode(), len(content)) + content)
            assert (await peer.message()).status == 200
            seen = _marked(upstream)
            assert (seen.body, seen.values(b"content-encoding")) == (content, [coding.encode()])


@_BY_API
async def test_06_an_overflow_that_cannot_be_repaired_stays_a_refusal(raw: Played, api: Api) -> None:
    """Streamed or not, encoded or not: status, bytes and headers; with nothing to pack, or packed in vain."""
    for number, (stream, steps) in enumerate(itertools.product((False, True), (0, STEPS))):
        for delivery in some(number):
            first, newest = (says(api.refusal(asked, 900), 400, *HINTS) for asked in (9_000, 8_500))
            model = raw.model()
            answers = [(first, delivery)] if steps == 0 else [(first, delivery), (newest, delivery)]
            asked = _body(api, model, stream=stream, steps=steps)
            got = await raw.ask(asked, model, *answers, all_said=False)
            copies = raw.seen[model]
            assert copies[0].body == asked
            assert len(copies) <= len(answers)
            handed_on(got, answers[len(copies) - 1][0], delivery)
            assert (told(got)["action"], told(got)["error"]) == ("overflow-refused", "CONTEXT_WINDOW_EXCEEDED")


_FAILS: dict[str, list[bytes]] = {
    "chat": [b'data: {"error":{"message":"too long","code":"context_length_exceeded"}}\n\n'],
    "responses": [
        b'event: response.failed\ndata: {"type":"response.failed","sequence_number":9,"response":{"id":"resp_first",\
"status":"failed","error":{"code":"context_length_exceeded","message":"too long"}}}\n\n'
    ],
    "messages": [
        b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error",\
"message":"prompt is too long: 9000 tokens > 8000 maximum"}}\n\n'
    ],
}
#: What stands once in a stream that is whole; and how many frames come before the first content.
_ONCE: dict[str, tuple[str, ...]] = {
    "chat": (),
    "responses": ("response.created", "response.in_progress", "response.completed"),
    "messages": ("message_start", "message_delta", "message_stop"),
}
_BEGINNING = {"chat": 1, "responses": 4, "messages": 3}


@_BY_API
async def test_09_a_retry_within_a_stream_is_one_coherent_stream(raw: Played, api: Api) -> None:
    """One id, one beginning, numbers that rise, one usage which is the upstream's, one end; nothing of the first."""
    frames = list(api.frames("aye", 250))
    begun = [frame.replace(b'_r"', b'_first"').replace(b'"r"', b'"first"') for frame in frames[: _BEGINNING[api.name]]]
    model, second = raw.model(), _ok(api, stream=True)
    if api.name == "chat":
        usage = b'data: {"id":"r","choices":[],"usage":{"prompt_tokens":250,"completion_tokens":5}}\n\n'
        second = _stream(*frames[:-1], usage, frames[-1])
    got = await raw.ask(
        _body(api, model, stream=True), model, (_stream(*begun, *_FAILS[api.name]), PLAIN), (second, PLAIN)
    )
    handed_on(got, second, PLAIN)
    seen = events(got.body)
    assert b"first" in b"".join(begun)
    assert b"first" not in got.body
    assert {"r", "resp_r", "msg_r"} >= {*found_under("id", seen)}
    kinds = Counter(one.get("type") for one in seen)
    assert [kinds[kind] for kind in _ONCE[api.name]] == [1] * len(_ONCE[api.name])
    numbers = [one["sequence_number"] for one in seen if "sequence_number" in one]
    assert numbers == [*range(len(numbers))]
    counted = [_prompt(one) for one in found_under("usage", seen) if one and _prompt(one)]
    assert counted == [250]
    assert got.body.count(b"data: [DONE]") == (api.name == "chat")


def _prompt(usage: dict[str, int]) -> int:
    return sum(usage.get(key, 0) for key in ("prompt_tokens", "input_tokens", "cache_read_input_tokens"))


@_BY_API
async def test_10_refusals_of_other_kinds_pass_once_with_what_they_advise(raw: Played, api: Api) -> None:
    """429 and 5xx, raw or for a packed request: one copy, the same bytes and headers."""
    model = raw.model()
    grown = _body(api, model, steps=STEPS + 1)
    await raw.ask(
        _body(api, model), model, (says(api.refusal(9_000, 2_500), 400), PLAIN), (_ok(api, stream=False), PLAIN)
    )
    for status in (408, 429, 500, 502, 503, 529):
        answer = says({"error": {"message": "Come back later.", "type": "overloaded_error"}}, status, *HINTS)
        for name, asked in ((raw.model(), None), (model, grown)):
            got = await raw.ask(asked or _body(api, name), name, (answer, PLAIN))
            handed_on(got, answer, PLAIN)
            assert len(raw.seen[name]) == 1
            assert told(got)["action"] == ("pass" if asked is None else "projected")


_SEALED = {
    "responses": {"type": "compaction", "id": "cmp_1", "encrypted_content": "SEALED" * 9},
    "messages": {"role": "assistant", "content": [{"type": "compaction", "content": "What went before."}]},
}


@_STAGED
@pytest.mark.parametrize("name", ["responses", "messages"])
async def test_11_what_is_sealed_is_kept_as_it_came_beside_what_it_belongs_to(stage: Stage, name: str) -> None:
    """The upstream's own compaction and all reasoning that is kept, over several packings; every body is valid."""
    api, field, rewritten = READINGS[name].api, READINGS[name].field, 0
    for ask in session(name):
        own = with_items(ask, lambda items: [*items[:1], _SEALED[name], *items[1:]] if len(items) > 1 else items)
        before = len(stage.upstream.heard)
        assert (await stage.post(own, f"sk-sealed-{name}")).status == 200
        (turn,) = stage.upstream.turns(since=before)
        items, given = turn.json[field], own.body[field]
        rewritten += items != given
        assert items.count(_SEALED[name]) == given.count(_SEALED[name])
        for one in stage.upstream.heard[before:]:
            bare = [item for item in one.json[field] if item != _SEALED[name]]
            assert api.problem({**one.json, field: bare}) is None
        for at, item in enumerate(items):
            if item.get("type") == "reasoning" or "thinking" in str(item.get("content")):
                place = given.index(item)
                assert items[at : at + 2] == given[place : place + 2]
    assert rewritten > 3


_ENVELOPE: dict[str, dict[str, object]] = {
    "chat": {"tools": [], "metadata": {"a": "1"}, "store": True, "seed": 1.50},
    "responses": {
        "instructions": "Be another.",
        "tools": [{"type": "web_search"}],
        "metadata": {"a": "1"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
    },
    "messages": {
        "system": [{"type": "text", "text": "Be another.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "thinking": {"type": "disabled"},
        "stop_sequences": ["END"],
    },
}


@_STAGED
@_BY_API
async def test_12_what_surrounds_the_history_is_sent_as_it_is_now(stage: Stage, api: Api) -> None:
    """Other system text, tools and settings in the turn after the packing: the surface applies, and they are sent."""
    key, scope = f"sk-envelope-{api.name}", {} if api.name == "messages" else {"prompt_cache_key": "k"}
    asks = [_with(ask, **scope) for ask in session(api.name)]
    at, _ = await packed(stage, asks, key)
    found = await stage.outcome(_with(asks[at + 1], **_ENVELOPE[api.name]), key)
    assert (found.reply.action, found.reply.generation, found.seen.wrong) == ("projected", 1, "")
    wanted = {**scope, **_ENVELOPE[api.name]}
    assert {name: found.turn.json[name] for name in wanted} == wanted


def _with(ask: Ask, **fields: object) -> Ask:
    return replace(ask, body={**ask.body, **fields})


@_STAGED
@pytest.mark.parametrize(
    "name",
    [
        "opencode-1.18.33_chat_tool",
        pytest.param("codex-0.171.0_local", marks=pytest.mark.slow),
        "codex-0.171.0_remote",
        "claude-code-2.1_title",
        pytest.param("qwen-code-0.15.10_chat", marks=pytest.mark.slow),
    ],
)
async def test_13_calls_beside_a_session_change_neither_generation_nor_surfaces(stage: Stage, name: str) -> None:
    """Titles, memory sub-agents, the client's own compaction: the next main turn is projected as before."""
    row, last, undisturbed, aside = Row(name=name), (0, 0), 0, False
    for ask in _with_calls_beside(name):
        found = await stage.send(row, ask, f"sk-beside-{name}")
        if ask.kind != "main":
            aside = True
            continue
        line, generation = last
        if generation and ask.line == line:
            assert found.reply.generation == generation + (found.reply.action == "pressure")
            undisturbed += aside
        last, aside = (ask.line, found.reply.generation), False
    assert row.wrong == []
    assert undisturbed > 1


_CODEX = "x-codex-turn-metadata"


@_STAGED
@pytest.mark.parametrize(
    ("name", "kind"),
    [("codex-0.171.0_local", "compaction"), ("codex-0.171.0_remote", "turn")],
    ids=["header", "trigger"],
)
async def test_13_codex_s_own_compaction_over_the_threshold_is_not_packed_for(
    stage: Stage, name: str, kind: str
) -> None:
    """Told by its header or by `compaction_trigger`: as it came, no summary; the turn after it is packed as ever."""
    asks, headers = list(recording(name).asks()), {_CODEX: json.dumps({"request_kind": kind})}
    mains = [ask for ask in asks if ask.kind == "main"]
    at, _ = await packed(stage, mains, f"sk-find-{kind}")
    own = next(ask for ask in asks[asks.index(mains[at]) :] if ask.kind == "own")
    found = await stage.outcome(own, f"sk-own-{kind}", **headers)
    assert (found.reply.action, found.turn.body, found.asked) == ("pass", own.spelled, [])
    assert (await stage.outcome(mains[at], f"sk-own-{kind}")).reply.action == "pressure"
    found = await stage.outcome(own, f"sk-own-{kind}", **headers)
    assert (found.reply.action, found.asked, found.seen.wrong) == ("projected", [], "")


def _with_calls_beside(name: str) -> list[Ask]:
    """All requests of a session; a call that does not send its history again (a title's) after each of its own."""
    asks = list(recording(name).asks())
    if asks[0].kind != "beside":
        return asks
    return [one for ask in asks if ask.kind == "main" for one in (ask, asks[0])]


@_STAGED
@_BY_API
async def test_15_other_spellings_keep_the_surface_and_one_character_loses_it(stage: Stage, api: Api) -> None:
    """Moved marks, new ids, arguments anew, reasoning dropped or folded; then an edit inside what was replaced."""
    asks, key = session(api.name), f"sk-spelling-{api.name}"
    at, first = await packed(stage, asks, key)
    again = respelt(asks[at + 1])
    assert again.spelled != asks[at + 1].spelled
    found = await stage.outcome(again, key)
    assert (found.reply.action, found.reply.generation, found.seen.wrong) == ("projected", 1, "")
    assert found.seen.surface == first.seen.surface
    lost = await stage.outcome(edited(asks[at + 1]), key, **{"x-carryon": "no-store"})
    assert (lost.reply.action, lost.turn.body) == ("pass", edited(asks[at + 1]).spelled)


@_STAGED
@_BY_API
async def test_16_two_tenants_with_the_same_bytes_share_nothing(stage: Stage, api: Api) -> None:
    """Each pays for its own summary and has a conversation of its own."""
    asks = session(api.name)
    mine, hers = [await packed(stage, asks, f"sk-tenant-{api.name}-{who}") for who in (1, 2)]
    assert mine[0] == hers[0]
    assert len(mine[1].asked) == len(hers[1].asked) > 0
    assert mine[1].reply.conversation != hers[1].reply.conversation
    assert mine[1].seen.stamp != hers[1].seen.stamp


@_STAGED
@_BY_API
async def test_17_one_request_in_flight_in_six_spellings_costs_one_summary(stage: Stage, api: Api) -> None:
    """The order of keys differs on every attempt, as with Codex; the surface is one."""
    asks = session(api.name)
    at, _ = await packed(stage, asks, f"sk-flight-{api.name}")
    before = len(stage.upstream.heard)
    bodies = list(spellings(asks[at], 6))
    assert len(set(bodies)) == 6
    got = await asyncio.gather(*(stage.post(asks[at], f"sk-flight-{api.name}-6", body) for body in bodies))
    heard = stage.upstream.heard[before:]
    assert {(one.status, one.generation) for one in got} == {(200, 1)}
    assert [one.summary for one in heard].count(True) == 1
    field = READINGS[api.name].field
    assert len({json.dumps(one.json[field]) for one in heard if not one.summary}) == 1


@_STAGED
@_BY_API
async def test_19_a_session_goes_on_where_it_was_after_a_restart(stage: Stage, api: Api) -> None:
    """Packed, Carryon stopped and started: the next turn is projected with the same surface and no summary."""
    asks, key = session(api.name), f"sk-restart-{api.name}"
    at, first = await packed(stage, asks, key)
    assert stage.running is not None
    assert await stage.running.stop() == 0
    stage.url = await stage.running.start()
    found = await stage.outcome(asks[at + 1], key)
    assert (found.reply.action, found.reply.generation, found.asked) == ("projected", 1, [])
    assert (found.seen.surface, found.seen.wrong) == (first.seen.surface, "")


_ELSEWHERE: dict[str, dict[str, object]] = {
    "previous_response_id": {"previous_response_id": "resp_0"},
    "conversation": {"conversation": {"id": "conv_1"}},
    "item_reference": {},
}


@pytest.mark.parametrize("how", _ELSEWHERE)
async def test_20_a_history_at_the_server_passes_untouched(how: str, valkey: Server) -> None:
    """Over the window, and refused as too long: one copy as it came, the refusal as it came."""
    api = READINGS["responses"].api
    refusal: list[Header] = list(HINTS)
    async with played(valkey, clients=1) as raw:
        raw.path = b"/v1/responses"
        for answer in (_ok(api, stream=True), says(api.refusal(30_000, 8_000), 400, *refusal)):
            model = raw.model()
            asked = _body(api, model, stream=True, steps=60, **_ELSEWHERE[how])
            if how == "item_reference":
                asked = asked.replace(b'"input":[', b'"input":[{"type":"item_reference","id":"msg_0"},')
            got = await raw.ask(asked, model, (answer, PLAIN))
            assert [copy.body for copy in raw.seen[model]] == [asked]
            handed_on(got, answer, PLAIN)
            assert told(got).get("skip", told(got).get("refused")) == "server-history"
