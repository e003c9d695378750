"""Nothing of a credential or of content where it does not belong (rules 13.2 and 13.4, I13).

The installed command runs at its lowest log level while requests that carry a unique word in every place come to every
kind of end. Then its output, its own answers, its probe pages and all of Redis are searched for those words.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from proxy.store.binary import find_server
from proxy.store.redis import RedisLedger
from proxy.store.sealing import Seals
from tests.e2e.carryon import Carryon
from tests.e2e.hostile import CUT, OVERFLOW, Seen, Witness, answered, heard, replied, witness
from tests.e2e.scribe import HEADINGS, INSTRUCTION
from tests.sockets import exchange, reply
from tests.store.servers import Server

pytestmark = pytest.mark.timeout(120)

_WINDOW = 19_000
SECRET = "a secret of at least thirty-two characters"
_FILLER = "invoice total amount currency round decimal ledger customer account balance " * 120
_MODEL = "canary-model"


def _words(kinds: str) -> dict[str, str]:
    return {kind: f"cnry{secrets.token_hex(6)}" for kind in kinds.split()}


#: What proves who somebody is: it may be nowhere.
CREDENTIALS = _words(
    "authorization x-api-key api-key x-goog-api-key cookie proxy-authorization query-key lent-looking-header basic"
)
#: What a request holds beside its conversation: it may be nowhere either.
ENVELOPE = _words(
    "header-name header-value scope user-agent query path system tool-description user-id session cache-key"
    " top-level-name top-level-value name-of-a-user upstream-reply upstream-header upstream-error upstream-reason"
    " request-id broken-body broken-head deployment"
)
#: What a conversation holds. A surface spells some of it again: that is what a surface is for (section 1). It stands in
#: the field of a record that holds the surface, sealed, and nowhere else.
CONVERSATION = _words("task rule remark call-id tool-name argument result summary summariser path-in-an-argument")
_SUMMARY = "\n\n".join(f"## {heading}\n{heading} {CONVERSATION['summary']}." for heading in HEADINGS)


def _step(number: int) -> list[dict[str, Any]]:
    word = CONVERSATION
    arguments = json.dumps({"path": f"src/{word['path-in-an-argument']}.py", "text": word["argument"]})
    call = {
        "id": f"{word['call-id']}_{number}",
        "type": "function",
        "function": {"name": word["tool-name"], "arguments": arguments},
    }
    return [
        {"role": "assistant", "content": f"{word['remark']} {number}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"{number} {word['result']} {_FILLER}"},
        {"role": "user", "content": f"Always {word['rule']} {number}. {_FILLER}", "name": ENVELOPE["name-of-a-user"]},
    ]


def _body(steps: int, **more: object) -> bytes:
    found = {
        "model": _MODEL,
        "messages": [
            {"role": "system", "content": ENVELOPE["system"]},
            {"role": "user", "content": f"Task {CONVERSATION['task']}"},
            *(message for number in range(steps) for message in _step(number)),
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": CONVERSATION["tool-name"], "description": ENVELOPE["tool-description"]},
            }
        ],
        "user": ENVELOPE["user-id"],
        "metadata": {"session_id": ENVELOPE["session"]},
        "prompt_cache_key": ENVELOPE["cache-key"],
        ENVELOPE["top-level-name"]: ENVELOPE["top-level-value"],
        **more,
    }
    return json.dumps(found).encode()


_QUERY = f"?key={CREDENTIALS['query-key']}&trace={ENVELOPE['query']}"
_LINES = {
    "Authorization": f"Bearer {CREDENTIALS['authorization']}",
    "X-Api-Key": CREDENTIALS["x-api-key"],
    "Api-Key": CREDENTIALS["api-key"],
    "X-Goog-Api-Key": CREDENTIALS["x-goog-api-key"],
    "Cookie": f"session={CREDENTIALS['cookie']}",
    "Proxy-Authorization": f"Basic {CREDENTIALS['proxy-authorization']}",
    "X-Amz-Security-Token": CREDENTIALS["lent-looking-header"],
    "X-Session-Id": ENVELOPE["scope"],
    "User-Agent": ENVELOPE["user-agent"],
    "X-Request-Id": ENVELOPE["request-id"],
    f"X-{ENVELOPE['header-name']}": ENVELOPE["header-value"],
}


def _head(method: str, path: str, length: int, *lines: str) -> bytes:
    shown = [f"{name}: {value}" for name, value in _LINES.items()]
    framed = [] if any(line.startswith("Transfer-Encoding") for line in lines) else [f"Content-Length: {length}"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: h", *shown, *lines, *framed, "", ""]).encode()


def _post(body: bytes, *lines: str, path: str = "/v1/chat/completions") -> bytes:
    return _head("POST", f"{path}{_QUERY}", len(body), *lines) + body


_NOTED = f"X-Up: {ENVELOPE['upstream-header']}\r\nX-{ENVELOPE['upstream-header']}: 1\r\n".encode()


def _said(text: str, *, model: str = "m") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = json.dumps({"id": ENVELOPE["upstream-reply"], "model": model, "choices": [choice]}).encode()
    return reply(body, headers=b"Content-Type: application/json\r\n" + _NOTED)


_ERROR = json.dumps({"error": {"message": ENVELOPE["upstream-error"], "code": ENVELOPE["upstream-error"]}}).encode()


def _answer(seen: Seen) -> bytes:
    """What the request's own `X-Play` asks of the upstream; summaries as `X-Summary` says."""
    if seen.start.startswith(b"GET"):
        return reply(_ERROR, status=f"404 {ENVELOPE['upstream-reason']}", headers=_NOTED)
    if INSTRUCTION.encode() in seen.body:
        return _SUMMARIES[b"".join(seen.values(b"x-summary"))]
    play = b"".join(seen.values(b"x-play"))
    packed = play == b"overflow" and len(seen.body) < 30_000
    return _PLAYED.get(b"" if packed else play, _said(ENVELOPE["upstream-reply"]))


_SUMMARIES = {
    b"": _said(_SUMMARY, model=CONVERSATION["summariser"]),  # who wrote a summary is noted with it
    b"short": _said(ENVELOPE["upstream-error"], model=ENVELOPE["upstream-reply"]),
    b"refused": reply(_ERROR, status="429 Slow", headers=_NOTED),
}
_PLAYED = {
    b"overflow": reply(OVERFLOW % 6_000, status="400 Bad", headers=_NOTED),
    b"refuse": reply(_ERROR, status=f"400 {ENVELOPE['upstream-reason']}", headers=_NOTED),
    b"fail": reply(_ERROR, status="500 Oh", headers=_NOTED),
    b"garbage": f"HTTP/9 {ENVELOPE['upstream-reason']}\r\n{ENVELOPE['upstream-header']}\r\n\r\n".encode(),
    b"cut": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + ENVELOPE["upstream-reply"].encode() + CUT,
}


def _turns() -> Iterator[tuple[str, bytes]]:
    """Requests that come to one kind of end after the other, each built on what the ones before it left."""
    whole = _body(4)
    yield "passes", _post(_body(0))
    yield "is packed", _post(whole)
    yield "is projected", _post(_body(5))
    yield "is packed again", _post(_body(9))
    yield "overflows", _post(_body(6), "X-Play: overflow")
    yield "overflows and is handed over", _post(_body(6), "X-Play: overflow", "x-carryon: no-store")
    yield "is off", _post(whole, "x-carryon: off", "X-Play: overflow")
    yield "is refused", _post(whole, "X-Play: refuse")
    yield "fails", _post(whole, "X-Play: fail")
    yield "is answered by garbage", _post(whole, "X-Play: garbage")
    yield "a summary is refused", _post(_body(7, user="other"), "X-Summary: refused", "X-Session-Id: two")
    yield "a summary is none", _post(_body(8, user="other"), "X-Summary: short", "X-Session-Id: three")
    yield "a stream", _post(_body(1, stream=True))


def _oddities() -> Iterator[tuple[str, bytes]]:
    """Requests for all other ends."""
    whole = _body(4)
    yield "is no JSON", _post(whole[:-9] + ENVELOPE["broken-body"].encode())
    yield "names a key twice", _post(whole[:-1] + f', "model": "{ENVELOPE["broken-body"]}"}}'.encode())
    yield "is no gzip", _post(whole, "Content-Encoding: gzip")
    yield "is of an unknown coding", _post(whole, f"Content-Encoding: {ENVELOPE['broken-head']}")
    yield "expects more", _post(whole, f"Expect: {ENVELOPE['broken-head']}")
    yield "is for no upstream", _post(whole, path=f"/u/{ENVELOPE['path']}/v1/chat/completions")
    yield "climbs", _post(whole, path=f"/v1/../{ENVELOPE['path']}")
    yield "is of another dialect", _post(whole, path="/v1/responses")
    yield "is of a deployment", _post(whole, path=f"/openai/deployments/{ENVELOPE['deployment']}/embeddings")
    yield "is a file", _head("GET", f"/v1/files/{ENVELOPE['path']}{_QUERY}", 0)
    yield "is a socket", _head("GET", f"/v1/realtime{_QUERY}", 0, "Connection: Upgrade", "Upgrade: websocket")
    yield "is for another host", _head("GET", f"http://{ENVELOPE['path']}/{_QUERY}", 0)
    yield "is too large", _head("POST", f"/v1/chat/completions{_QUERY}", 1 << 30)
    yield "has a header too long", _head("GET", f"/v1/models{_QUERY}", 0, f"X: {ENVELOPE['broken-head'] * 4_000}")
    yield "is malformed", _head("GET", f"/v1/models{_QUERY}", 0, f"{ENVELOPE['broken-head']} : {CREDENTIALS['basic']}")
    yield "is smuggled", _post(whole, "Transfer-Encoding: chunked", "Content-Length: 4")
    yield "has broken chunks", _head("POST", f"/v1/files{_QUERY}", 0, "Transfer-Encoding: chunked") + b"zz\r\n"
    yield "is no request", f"{ENVELOPE['broken-head']} {CREDENTIALS['basic']}\r\n\r\n".encode()
    started = f"GET /v1/{ENVELOPE['broken-head']} HTTP/1.1\r\nAuthorization: {CREDENTIALS['basic']}"
    yield "stops in its head", started.encode()
    yield "stops in its body", _head("POST", f"/v1/chat/completions{_QUERY}", 99_999) + whole[:500]


@asynccontextmanager
async def _running(upstream: Witness, store: Server, state: Path) -> AsyncIterator[Carryon]:
    carryon = Carryon(
        upstream.url,
        state,
        CARRYON_REDIS__URL=store.url,
        CARRYON_REDIS__DURABILITY="memory",
        CARRYON_REDIS__TIMEOUT="2s",
        CARRYON_SECRET=SECRET,
        CARRYON_LOG__LEVEL="debug",
        CARRYON_DEFAULTS__CONTEXT_WINDOW=str(_WINDOW),
        CARRYON_DEFAULTS__THRESHOLD_RATIO="0.5",
        CARRYON_TIMEOUTS__HEADER="1s",
        CARRYON_TIMEOUTS__BODY_IDLE="1s",
        PYTHONASYNCIODEBUG="1",
    )
    await carryon.start()
    try:
        yield carryon
    finally:
        assert await carryon.stop() == 0


def _plain(store: Server) -> str:
    """All of Redis as text, names and values, as it lies there."""
    client = redis.Redis(unix_socket_path=str(store.socket))
    plain = []
    for key in client.scan_iter(count=1_000):
        plain.append(key)
        kind = client.type(key)
        values = client.hgetall(key) if kind == b"hash" else {b"": client.get(key)} if kind == b"string" else None
        assert values is not None, kind
        plain += [part for pair in values.items() for part in pair]
    return b"\n".join(plain).decode("latin-1")


async def _packed(store: Server) -> str:
    """What is in the surfaces, for whoever has the secret."""
    client = redis.Redis(unix_socket_path=str(store.socket), decode_responses=True)
    ledger, found = RedisLedger(store.url, seals=Seals([SECRET.encode()]), timeout=5.0, durability="memory"), []
    for name in (key.partition("{")[2][:-1] for key in client.scan_iter("carryon:1:{*}") if key.endswith("}")):
        record = await ledger.load(name)
        found += [await ledger.surface(name, record.epoch or "", entry) for entry in record.entries]
    await ledger.close()
    assert found
    assert all(found), "every surface opens"
    return b"\n".join(surface or b"" for surface in found).decode("latin-1")


def _found(words: dict[str, str], text: str) -> set[str]:
    return {kind for kind, word in words.items() if word.lower() in text.lower()}


@pytest.fixture
def store() -> Iterator[Server]:
    """A Valkey of its own, for a test that takes it away."""
    server = Server(find_server())
    yield server
    server.stop()


async def test_no_word_of_a_request_is_where_it_does_not_belong(tmp_path: Path, store: Server) -> None:
    """Logs, own answers, probe pages and Redis; with a store, and without."""
    own: list[bytes] = []
    requests = 0
    async with witness(_answer) as upstream, _running(upstream, store, tmp_path) as carryon:
        port = int(carryon.url.split(":")[2].partition("/")[0])
        log = tmp_path / "carryon.log"
        for with_store in (True, False):
            if not with_store:
                plain, packed = _plain(store), await _packed(store)
                store.process.kill()
                store.process.wait()
            for _, raw in _turns():
                requests += 1
                own += await _own(port, raw)
            for answers in await asyncio.gather(*(_own(port, raw) for _, raw in _oddities())):
                requests += 1
                own += answers
            cut = await heard(port, _post(_body(1), "X-Play: cut"))
            own.append(cut.head.head)
        started = log.read_text(errors="replace")
        own += [await _page(started, path) for path in ("livez", "readyz", "metrics", ENVELOPE["path"])]
        lines = carryon.events("request")
    text = log.read_text(errors="replace")
    said = b"\n".join(own).decode("latin-1")
    everything = {**CREDENTIALS, **ENVELOPE, **CONVERSATION}
    assert {line["action"] for line in lines if "action" in line} >= {"pass", "pressure", "projected", "overflow-retry"}
    assert {line["error"] for line in lines if "error" in line} >= {"PROXY_BAD_REQUEST", "PROXY_BODY_TOO_LARGE"}
    assert not _found(everything, text), _around(everything, text)
    assert not _found(everything, said), _around(everything, said)
    assert not _found(everything, plain), _around(everything, plain)
    assert not _found({**CREDENTIALS, **ENVELOPE}, packed)
    assert _found(CONVERSATION, packed) >= {"summary", "summariser", "task"}
    assert "Traceback" not in text
    print(
        f"\ncanaries: {len(everything)} words in {requests} requests; log {len(text)} characters, own answers"
        f" {len(said)}, Redis {len(plain)}; hits 0; in surfaces: {sorted(_found(CONVERSATION, packed))}"
    )


def _around(words: dict[str, str], text: str) -> list[str]:
    """Where they were found, for whoever must mend it."""
    hits = ((kind, at) for kind, word in words.items() for at in re.finditer(word, text, re.IGNORECASE))
    return [f"{kind}: {text[max(0, at.start() - 200) : at.end() + 50]}" for kind, at in hits][:3]


async def _own(port: int, raw: bytes) -> list[bytes]:
    """What Carryon itself says of a request: whole answers of its own, its own headers of others."""
    closing = raw.replace(b" HTTP/1.1\r\nHost: h\r\n", b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", 1)
    if b"stream" in raw or b"X-Play: garbage" in raw:
        found = [await answered(port, raw)]
    else:
        found = await replied(port, closing)
    return [b"".join((one.head, one.body)) if one.own else _ours(one) for one in found]


def _ours(seen: Seen) -> bytes:
    lines = [b"%s: %s" % pair for pair in seen.headers if pair[0].lower().startswith(b"x-carryon-")]
    # One of them names the model that the upstream says wrote the summary.
    return b"\n".join(line for line in lines if not line.startswith(b"x-carryon-summary"))


async def _page(log: str, path: str) -> bytes:
    found = re.search(r"probes +http://127\.0\.0\.1:(\d+)/", log)
    assert found is not None
    return await exchange(int(found[1]), _head("GET", f"/{path}{_QUERY}", 0, "Connection: close"))


def test_a_word_that_is_there_is_found() -> None:
    """In any case and anywhere; else the search above would prove nothing."""
    word = ENVELOPE["system"]
    assert _found(ENVELOPE, f"x{word.upper()}y") == {"system"}
    assert not _found(CREDENTIALS, word)
