"""Who shares a stored surface with whom (rule 4.1): by credential, token, header, nothing, and without any.

`carryon serve` and Valkey are real; the histories are byte for byte the same, only who sends them differs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.scribe import Request, Scribe
from tests.e2e.stored import PATIENT, proxied, records, stored
from tests.e2e.story import OVER, Story
from tests.e2e.talk import WINDOW, Client, history
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

ENVIRONMENT = PATIENT


@asynccontextmanager
async def _told_apart(upstream: Scribe, ledger: Server, state: Path, **tenant: str) -> AsyncIterator[Story]:
    """A conversation through a proxy that tells tenants apart like this."""
    environment = {f"CARRYON_TENANT__{name.upper()}": value for name, value in tenant.items()}
    running = proxied(ledger, upstream.url, state, "--window", str(WINDOW), **PATIENT, **environment)
    async with Client(await running.start()) as client:
        yield Story(client, upstream, f"sk-{state.name}", "tenants", session=state.name)
    assert await running.stop() == 0
    assert not running.events("internal-fault")


def _token(**claims: object) -> str:
    """A signed token as an identity provider writes it, but for the signature's truth."""
    sections = ({"alg": "RS256", "typ": "JWT"}, claims)
    spelled = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in sections]
    return ".".join((*spelled, f"signature{claims.get('exp', '')}"))


def _values(seen: Request, name: str) -> list[str]:
    return [value for key, value in seen.headers if key.lower() == name]


async def test_two_tenants_with_the_same_bytes_share_nothing(client: Client, upstream: Scribe, ledger: Server) -> None:
    """Another credential finds no surface, and makes a record and a summary of its own with its own credential."""
    story, other = (Story(client, upstream, key, "tenants") for key in ("sk-first", "sk-second"))
    covered = await story.pack(history(OVER))
    await other.reads_raw(history(OVER))
    assert await other.pack(history(OVER)) == covered
    assert _values(story.summaries[-1], "authorization") == ["Bearer sk-second"]
    assert other.conversation != story.conversation
    tenants = [records(ledger, one.conversation)[0].partition(".")[0] for one in (story, other)]
    assert len(set(tenants)) == 2
    assert (await stored(ledger, story.conversation)).record.generation == 1


#: Another credential of the same caller, or the same of another: whether the surface still applies.
_CREDENTIALS: dict[str, tuple[dict[str, str | None], bool]] = {
    "the same": ({"authorization": "Bearer sk-full-length"}, True),
    "one more character": ({"authorization": "Bearer sk-full-length1"}, False),
    "another scheme": ({"authorization": "bearer sk-full-length"}, False),
    "one more header": ({"authorization": "Bearer sk-full-length", "x-api-key": "sk-2"}, False),
    "in another header": ({"authorization": None, "x-api-key": "sk-full-length"}, False),
    "none": ({"authorization": None}, False),
}


@pytest.mark.parametrize(("shown", "applies"), _CREDENTIALS.values(), ids=_CREDENTIALS)
async def test_every_credential_counts_in_full(
    client: Client, upstream: Scribe, request: pytest.FixtureRequest, shown: dict[str, str | None], *, applies: bool
) -> None:
    """The default: whoever shows exactly the same credentials is the same tenant, whatever else a request says."""
    session = f"s{sum(request.node.name.encode())}"
    story = Story(client, upstream, "unused", "tenants", session=session)
    await story.pack(history(OVER), authorization="Bearer sk-full-length", user_agent="one")
    reads = story.reads_packed if applies else story.reads_raw
    await reads(history(OVER), **shown, user_agent="another")


async def test_a_token_that_rotates_keeps_its_surfaces_and_its_owner_alone_has_them(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """`tenant.by: jwt`: issuer and subject count; what is no such token is a credential like any other."""
    first = {"iss": "https://id.example", "sub": "first"}

    def bearer(**claims: object) -> dict[str, str]:
        return {"authorization": f"Bearer {_token(**claims)}"}

    async with _told_apart(upstream, ledger, tmp_path, by="jwt") as story:
        await story.pack(history(OVER), **bearer(**first, exp=1))
        await story.reads_packed(history(OVER + 1), **bearer(**first, exp=3_601))
        assert _values(upstream.requests[-1], "authorization") == [f"Bearer {_token(**first, exp=3_601)}"]
        await story.reads_packed(history(OVER + 1), **bearer(exp=3_601, aud="other", sub="first", iss=first["iss"]))
        others = (
            bearer(iss=first["iss"], sub="second"),
            bearer(iss="https://other.example", sub="first"),
            bearer(iss=first["iss"]),
            bearer(iss=first["iss"], sub=["first"]),
            {"authorization": f"Basic {_token(**first)}"},
            {"authorization": None, "x-api-key": _token(**first)},
            {"authorization": "Bearer a.b.c"},
            {"authorization": "Bearer sk-plain"},
        )
        for other in others:
            await story.reads_raw(history(OVER), **other)
        await story.pack(history(OVER), authorization="Bearer sk-plain")
        await story.reads_packed(history(OVER), authorization="Bearer sk-plain")
        await story.reads_raw(history(OVER), authorization="Bearer sk-plain-2")


async def test_a_gateway_s_header_tells_tenants_apart_and_is_not_sent_on(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """`tenant.by: header`: the same team shares whatever its keys; a request without the header is anonymous."""
    async with _told_apart(upstream, ledger, tmp_path, by="header", header="X-Team") as story:
        await story.pack(history(OVER), x_team="red", key="sk-1")
        await story.reads_packed(history(OVER), x_team="red", key="sk-2")
        await story.reads_raw(history(OVER), x_team="blue", key="sk-1")
        await story.reads_raw(history(OVER), key="sk-1")
        assert [_values(one, "x-team") for one in upstream.requests if one.model == "tenants"][-5:] == [[]] * 5


async def test_with_no_tenants_all_share(upstream: Scribe, ledger: Server, tmp_path: Path) -> None:
    """`tenant.by: none`: whoever sends a history gets what was packed for it, and it costs one summary."""
    async with _told_apart(upstream, ledger, tmp_path, by="none") as story:
        await story.pack(history(OVER), key="sk-1")
        await story.reads_packed(history(OVER), key="sk-2")
        await story.reads_packed(history(OVER), authorization=None)


async def test_those_who_show_nothing_share_and_are_apart_from_all_who_show_something(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """Requests without a credential are one tenant, `anonymous`."""
    async with _told_apart(upstream, ledger, tmp_path) as story:
        await story.pack(history(OVER), authorization=None)
        for nothing in (None, "", "Bearer"):
            await story.reads_packed(history(OVER), authorization=nothing)
        await story.reads_raw(history(OVER), authorization="Bearer anonymous")
        assert records(ledger, story.conversation) == [f"anonymous.{story.conversation}"]


async def test_those_who_show_nothing_may_be_left_without_state(
    upstream: Scribe, ledger: Server, tmp_path: Path
) -> None:
    """`tenant.anonymous: false`: such a request passes as it is, even over its threshold, and nothing is stored."""
    async with _told_apart(upstream, ledger, tmp_path, anonymous="false") as story:
        keys = set(ledger.client().scan_iter())
        for nothing in (None, "", "Bearer"):
            reply, seen, sent = await story.turn(history(OVER), authorization=nothing)
            assert (reply.action, reply.headers["x-carryon-skip"], seen.body) == ("pass", "anonymous", sent)
        assert {key for key in ledger.client().scan_iter() if "{" in key} <= keys
        await story.pack(history(OVER), authorization="Bearer sk-shown")
