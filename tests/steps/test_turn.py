"""Reading a request: whose it is, where it goes, and what may be done with it."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any

import pytest

from proxy.errors import Answer
from proxy.message import Incoming
from proxy.steps.turn import Passage, Turn, read, spoken
from tests.houses import furnished, posted, turned
from tests.phrases import HISTORY, LONG, body


async def test_a_conversation_is_its_tenant_its_scope_and_its_opening() -> None:
    """The same opening under the same credential is one conversation; anything else is another."""
    house = furnished()
    mine = turned(house, LONG).conversation
    assert turned(house, body(*HISTORY[:4])).conversation == mine
    assert turned(house, LONG, credential="Bearer onf").conversation != mine
    assert turned(house, LONG, ("x-session-id", "s1")).conversation != mine
    assert turned(house, body(*HISTORY[1:])).conversation != mine


@pytest.mark.parametrize(
    ("headers", "extra", "skip"),
    [
        ((("X-CarryOn", " OFF "),), b"", "off"),
        ((), b', "previous_response_id": "r"', "server-history"),
        ((("Content-MD5", "abc"),), b"", "server-history"),
        ((("Signature", "keyId=1"),), b"", "server-history"),
    ],
)
async def test_what_may_not_be_changed_is_passed(headers: Any, extra: bytes, skip: str) -> None:
    """Switched off, history at the server, signed: a passage whose errors are still recognised."""
    found = read(furnished(), posted(body(*HISTORY, extra=extra), *headers))
    assert isinstance(found, Passage)
    assert (found.skip, found.inspect) == (skip, True)


async def test_a_misspelt_wish_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Never its value; the request goes on as one without it."""
    house = furnished()
    for _ in range(2):
        assert isinstance(read(house, posted(LONG, ("X-Carryon", "no-stor"))), Turn)
    assert [(record.getMessage(), record.header) for record in caplog.records] == [("header-unread", "x-carryon")]


async def test_a_limit_belongs_to_an_address() -> None:
    """Another server under the same name has its own."""
    first, second = (
        turned(furnished(upstreams={"default": {"base_url": f"http://127.0.0.1:{port}/v1"}}), LONG)
        for port in (18080, 18081)
    )
    assert first.keys.limit != second.keys.limit
    assert first.keys.calibration != second.keys.calibration


async def test_nobody_has_no_state_where_that_is_configured() -> None:
    """`tenant.anonymous: false` passes requests without a credential."""
    assert isinstance(read(furnished(), posted(LONG, credential="")), Turn)
    found = read(furnished(tenant={"anonymous": False}), posted(LONG, credential=""))
    assert isinstance(found, Passage)
    assert found.skip == "anonymous"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"model":"m"}',
        b'{"model":"m","model":"n","messages":[]}',
        b"\xff",
        LONG.replace(b'"model" :"m"', b'"model" :"%s"' % (b"m" * 513)),
    ],
    ids=range(7),
)
async def test_a_body_that_cannot_be_split_goes_on_as_it_came(raw: bytes) -> None:
    """Not JSON, no messages, a key named twice: a passage with the very bytes."""
    found = read(furnished(), posted(raw))
    assert isinstance(found, Passage)
    assert found.call.body == raw


@pytest.mark.parametrize(
    ("headers", "policy", "may_write", "may_pack", "hindrance"),
    [
        ((), {}, True, True, ""),
        ((("x-carryon", "no-store"),), {}, False, False, "off"),
        ((), {"dry_run": True}, False, False, "off"),
        ((), {"auto": False}, True, False, "off"),
        ((), {"max_overflow_retries": 0}, True, True, "off"),
        ((("x-deepseek-harness-compact", "1"),), {}, True, False, ""),
    ],
)
async def test_what_may_be_done_follows_headers_and_policy(
    headers: Any, policy: dict[str, object], *, may_write: bool, may_pack: bool, hindrance: str
) -> None:
    """Headers only narrow; the policy switches triggers."""
    turn = turned(furnished(defaults=policy), LONG, *headers)
    assert (turn.may_write, turn.may_pack, turn.hindrance) == (may_write, may_pack, hindrance)
    assert turn.may_mark is ("dry_run" not in policy)


async def test_our_own_headers_stay_here_and_the_operators_replace_the_clients() -> None:
    """No `x-carryon-*`, no tenant header goes on; a configured header stands in place of the client's."""
    upstream = {"base_url": "http://upstream.test/v1", "headers": {"X-Team": "ours"}}
    house = furnished(upstreams={"up": upstream}, tenant={"by": "header", "header": "X-Who"})
    turn = turned(house, LONG, ("X-Who", "me"), ("x-carryon-scope", "s"), ("x-team", "theirs"), ("X-Other", "1"))
    assert dict(turn.passage.call.headers) == {"Authorization": "Bearer one", "X-Other": "1", "X-Team": "ours"}
    assert turn.conversation != turned(house, LONG, ("X-Who", "you")).conversation


async def test_a_projection_is_sent_as_identity_and_the_client_s_bytes_as_they_came() -> None:
    """A compressed body is read; what replaces it has neither its coding nor its length."""
    zipped = gzip.compress(LONG, mtime=0)
    turn = turned(furnished(), zipped, ("Content-Encoding", "gzip"), ("Content-Length", str(len(zipped))))
    assert turn.transcript.body == LONG
    assert turn.call(None) is turn.passage.call
    assert turn.call(None).body == zipped
    changed = turn.call(b"{}")
    assert changed.body == b"{}"
    assert [name for name, _ in changed.headers] == ["Authorization"]


QWEN = b'{"model":"qwen-3","input":"hi"}'


@pytest.mark.parametrize(
    ("target", "raw", "headers", "upstream"),
    [
        ("/v1/responses", QWEN, (), "local"),
        ("/v1/messages", QWEN, (), "local"),
        ("/v1/messages", gzip.compress(QWEN, mtime=0), (("Content-Encoding", "gzip"),), "local"),
        ("/v1/chat/completions", QWEN, (), "local"),
        ("/v1/chat/completions", LONG.replace(b'"m"', b'"qwen-3"'), (), "local"),
        ("/v1/responses", QWEN, (("Content-Encoding", "unheard-of"),), "first"),
        ("/v1/responses", b'{"model":"qwen-3","model":"m"}', (), "first"),
        ("/v1/responses", b'{"model":["qwen-3"]}', (), "first"),
        ("/v1/responses", b'{"input":"qwen-3"}', (), "first"),
        ("/v1/responses", b"qwen-3", (), "first"),
        ("/u/first/v1/responses", QWEN, (), "first"),
        ("/openai/deployments/qwen-3/chat/completions", b'{"input":"hi"}', (), "local"),
        ("/openai/deployments/qwen-3/chat/completions", b'{"model":"m"}', (), "first"),
    ],
)
async def test_the_model_a_body_names_chooses_the_upstream_in_every_dialect(
    target: str, raw: bytes, headers: Any, upstream: str
) -> None:
    """Also where nobody splits the body (rule 11.4)."""
    house = furnished(
        upstreams={"first": "http://a.test/v1", "local": {"base_url": "http://b.test/v1", "serves": ["qwen*"]}}
    )
    found = read(house, posted(raw, *headers, target=target))
    assert not isinstance(found, Answer)
    assert (found.passage if isinstance(found, Turn) else found).call.upstream == upstream


@pytest.mark.parametrize("target", ["/v1/../admin", "/u/nobody/v1/chat/completions"])
async def test_an_address_that_leads_nowhere_is_404(target: str) -> None:
    """Dot segments and unknown upstreams."""
    found = read(furnished(), posted(LONG, target=target))
    assert isinstance(found, Answer)
    assert found.status == 404


async def test_a_lent_key_needs_a_key_of_ours() -> None:
    """With `client_keys` the right one is exchanged for the upstream's, any other is 401."""
    keys = [{"name": "ann", "sha256": hashlib.sha256(b"hers").hexdigest()}]
    upstream = {"base_url": "http://upstream.test/v1", "api_key": "the upstream's"}
    house = furnished(upstreams={"up": upstream}, client_keys=keys)
    denied = read(house, posted(LONG))
    assert isinstance(denied, Answer)
    assert denied.status == 401
    assert turned(house, LONG, credential="Bearer hers").passage.call.headers == (
        ("Authorization", "Bearer the upstream's"),
    )


async def test_a_deployment_in_the_path_names_the_model() -> None:
    """Below `openai/deployments/<name>/` the model need not stand in the body."""
    turn = turned(
        furnished(), body(*HISTORY).replace(b'"model" :"m",', b""), target="/openai/deployments/big/chat/completions"
    )
    assert turn.model == "big"


async def test_other_requests_stream_through() -> None:
    """What is no POST of a dialect is a passage that nobody looks into."""
    found = read(furnished(), Incoming(method="GET", target="/v1/models?x=1", headers=()))
    assert isinstance(found, Passage)
    assert (found.call.url, found.inspect, found.dialect) == ("http://upstream.test/v1/models?x=1", False, None)


def test_the_path_tells_in_which_shape_we_answer() -> None:
    """Also for what could not be read."""
    shapes = {"/v1/messages": "messages", "/v1/chat/completions": "chat", "/v1/models": None, "/v1/../x": None}
    assert {path: spoken(posted(b"", target=path)) for path in shapes} == shapes
