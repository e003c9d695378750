"""Who writes the summaries, where that is asked, and that another upstream learns nothing of the client."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import Dialect
from proxy.dialects.chat import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES
from proxy.house import House
from proxy.steps.summariser import _asking, writer
from proxy.steps.turn import Turn
from tests.houses import closed, furnished
from tests.houses import turned as read_as
from tests.phrases import LONG

SECRET = "sk-client-secret"
#: What a client sends that no other upstream may see.
HEADERS = (
    ("X-Api-Key", SECRET),
    ("Cookie", SECRET),
    ("X-Session-Id", SECRET),
    ("User-Agent", SECRET),
    ("OpenAI-Organization", SECRET),
    ("anthropic-beta", SECRET),
)
TARGET = f"/v1/chat/completions?api-key={SECRET}&x={SECRET}"


def housed(*, dialect: Dialect = CHAT, upstreams: dict[str, Any] | None = None, **summary: object) -> House:
    """A house with two upstreams, whose policy names a summariser."""
    given = upstreams or {"home": "http://home.test/v1", "cheap": "http://cheap.test/llm"}
    defaults = {"context_window": 10_000, "window_kind": "total", "summary": summary}
    models = [{"model": "small", "context_window": 4_096}]
    house = furnished(upstreams=given, defaults=defaults, models=models)
    house.dialects = {dialect.name: dialect}
    return house


def turned(house: House, target: str = TARGET) -> Turn:
    """A turn with a secret in all places where clients put some."""
    return read_as(house, LONG, *HEADERS, target=target, credential=f"Bearer {SECRET}")


async def test_a_conversation_s_own_model_writes_where_no_other_is_named() -> None:
    """At its own address, with all its headers; nor is a name that says the same another's."""
    for summary in ({}, {"model": "m"}, {"model": "m", "upstream": "home"}):
        house = housed(**summary)
        turn = turned(house)
        writes = writer(house, turn)
        call = writes.call(turn, b"{}")
        assert (writes.own, writes.destination.name, writes.model) == (True, "home", turn.model)
        assert writes.summariser(house, turn, 9_999) is None
        assert (call.upstream, call.url) == ("home", f"http://home.test{TARGET}")
        assert ("Authorization", f"Bearer {SECRET}") in call.headers
        await closed(house)


async def test_another_model_of_the_same_upstream_is_asked_with_the_conversation_s_credential() -> None:
    """Its own window counts; where nobody knows it, that of the conversation."""
    for model, window in (("small", 4_096), ("unheard-of", 10_000)):
        house = housed(model=model)
        turn = turned(house)
        writes = writer(house, turn)
        call = writes.call(turn, b"{}")
        found = writes.summariser(house, turn, 9_999)
        assert found is not None
        assert (found.model, found.window) == (model, window)
        assert call.url == f"http://home.test{TARGET}"
        assert call.headers == turn.call(b"{}").headers
        await closed(house)


KEYED = {"base_url": "http://cheap.test/llm", "api_key": "sk-cheap"}
OTHERS: dict[str, tuple[dict[str, Any], set[tuple[str, str]]]] = {
    "its own key": (KEYED, {("Authorization", "Bearer sk-cheap")}),
    "its own key in its own header": ({**KEYED, "api_key_header": "x-key"}, {("x-key", "sk-cheap")}),
    "no key": ({"base_url": "http://cheap.test/llm"}, set()),
    "no key, though clients' pass": (
        {"base_url": "http://cheap.test/llm", "accept_client_credential": True},
        set(),
    ),
    "headers of the operator's": (
        {**KEYED, "headers": {"X-Team": "a", "Accept": "x/y"}},
        {("Authorization", "Bearer sk-cheap"), ("X-Team", "a"), ("Accept", "x/y")},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_another_upstream_gets_its_own_key_or_none_and_nothing_of_the_client_s(name: str) -> None:
    """No header, no query, no credential, wherever the client put it."""
    upstream, own = OTHERS[name]
    house = housed(upstreams={"home": "http://home.test/v1", "cheap": upstream}, model="small", upstream="cheap")
    turn = turned(house)
    writes = writer(house, turn)
    call = writes.call(turn, b"{}")
    assert (call.upstream, call.method, call.url) == ("cheap", "POST", "http://cheap.test/llm/chat/completions")
    assert SECRET not in repr((call.url, call.headers))
    plain = {("content-type", "application/json"), ("accept", "application/json, text/event-stream")}
    named = {header.lower() for header, _ in own}
    assert {*call.headers} == own | {pair for pair in plain if pair[0] not in named}
    await closed(house)


@pytest.mark.parametrize(
    ("dialect", "path", "key", "more"),
    [
        (CHAT, "chat/completions", ("Authorization", "Bearer sk-cheap"), set()),
        (RESPONSES, "responses", ("Authorization", "Bearer sk-cheap"), set()),
        (MESSAGES, "messages", ("x-api-key", "sk-cheap"), {("anthropic-version", "2023-06-01")}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_another_upstream_is_asked_in_the_conversation_s_dialect(
    dialect: Dialect, path: str, key: tuple[str, str], more: set[tuple[str, str]]
) -> None:
    """At its address for that dialect, with what its servers want to be told."""
    upstreams = {"home": "http://home.test/v1", "cheap": KEYED}
    house = housed(dialect=dialect, upstreams=upstreams, model="small", upstream="cheap")
    items = b'[{"role":"user","content":"hi"}]'
    body = b'{"model":"m","%s":%s}' % (dialect.form.items.encode(), items)  # type: ignore[attr-defined]
    turn = read_as(house, body, *HEADERS, target=f"/v1/{path}", credential=f"Bearer {SECRET}")
    call = writer(house, turn).call(turn, b"{}")
    assert call.url == f"http://cheap.test/llm/{path}"
    assert key in call.headers
    assert more <= {*call.headers}
    assert SECRET not in repr(call.headers)
    await closed(house)


async def test_another_upstream_s_window_is_asked_with_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is a request too."""
    house = housed(upstreams={"home": "http://home.test/v1", "cheap": KEYED}, model="tiny", upstream="cheap")
    turn = turned(house)
    asked: list[tuple[str, str, Any]] = []

    def known(upstream: Any, model: str, *, headers: Any, tenant: str) -> None:
        assert tenant == turn.tenant, "whose questions these are"
        asked.append((upstream.name, model, headers))

    monkeypatch.setattr(house.windows, "known", known)
    found = writer(house, turn).summariser(house, turn, 5_555)
    assert found is not None
    assert found.window == 5_555
    ((upstream, model, headers),) = asked
    assert (upstream, model) == ("cheap", "tiny")
    assert headers == (("Authorization", "Bearer sk-cheap"),), "what a question says itself is not said twice"
    await closed(house)


async def test_a_client_chooses_no_upstream_for_its_summaries() -> None:
    """Neither a header nor the body names one: only the policy does (rule 11.4)."""
    house = housed()
    named = (
        ("X-Carryon-Summary-Upstream", "http://evil.test"),
        ("Host", "evil.test"),
        ("X-Forwarded-Host", "evil.test"),
    )
    turn = read_as(house, LONG, *named, target="/v1/chat/completions")
    assert writer(house, turn).call(turn, b"").url == "http://home.test/v1/chat/completions"
    await closed(house)


@pytest.mark.parametrize(
    ("url", "model", "found"),
    [
        ("https://u/v1/responses/compact?a=b", "", "https://u/v1/responses?a=b"),
        ("https://u/v1/responses?a=/responses/compact", "", "https://u/v1/responses?a=/responses/compact"),
        ("https://u/v1/compact", "", "https://u/v1/compact"),
        ("https://u/v1/messages", "m", "https://u/v1/messages"),
        (
            "https://u/openai/deployments/a/chat/completions?v=1",
            "",
            "https://u/openai/deployments/a/chat/completions?v=1",
        ),
        (
            "https://u/openai/deployments/a/chat/completions?v=1",
            "b/../c?d",
            "https://u/openai/deployments/b%2F..%2Fc%3Fd/chat/completions?v=1",
        ),
    ],
)
def test_a_request_of_our_own_asks_for_an_answer_of_the_model_it_names(url: str, model: str, found: str) -> None:
    """For a client that asked the upstream to compact; where the path names a deployment, the other one's."""
    assert _asking(url, model) == found
