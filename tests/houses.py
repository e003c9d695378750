"""A house around given doors, for tests of the rooms between them."""

from __future__ import annotations

import secrets
from typing import Any

from proxy.compaction.builtin import Builtin
from proxy.dialects.chat import CHAT
from proxy.encodings import codings, decode
from proxy.house import Background, House, destinations, policies
from proxy.learning import Learning
from proxy.message import Headers, Incoming
from proxy.settings import Settings
from proxy.steps.sight import Sight, Size, look, size
from proxy.steps.turn import Turn, read
from proxy.store.redis import RedisLedger
from proxy.windows import Windows
from tests.playbook import TARGET
from tests.store.servers import SEALS

#: Nobody listens there: for tests that must not reach a store.
NOWHERE = "redis://127.0.0.1:1/0"


def furnished(url: str = NOWHERE, *, upstream: Any = None, compactor: Any = None, **settings: Any) -> House:
    """Make a house with a ledger on `url`; `settings` by name over one upstream with a window of 10,000."""
    given: dict[str, Any] = {
        "upstreams": {
            f"up-{secrets.token_hex(4)}": "http://upstream.test/v1"
        },  # what is learned of it is no other test's
        "defaults": {"context_window": 10_000, "window_kind": "total"},
        "redis": {"timeout": "2s"},
        **settings,
    }
    given["defaults"] = {"pressure": {"after_reply": False}, **given["defaults"]}
    made = Settings.model_validate(given)
    ledger = RedisLedger(url, seals=SEALS, timeout=2.0, durability="memory")
    background = Background()

    resolved = policies(made)

    async def nobody(upstream: str, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        return 404, b""

    return House(
        settings=made,
        policies=resolved,
        upstreams=destinations(made),
        dialects={"chat": CHAT},
        ledger=ledger,
        upstream=upstream,
        windows=Windows(resolved, nobody),
        compactor=compactor or Builtin(),
        learning=Learning(ledger, background.spawn),
        secret=b"a secret for tests",
        background=background,
    )


def posted(body: bytes, *headers: tuple[str, str], target: str = TARGET, credential: str = "Bearer one") -> Incoming:
    """A client's POST; `credential` empty sends none."""
    shown = (("Authorization", credential),) if credential else ()
    plain = decode(body, codings(headers), 1 << 26)
    return Incoming(method="POST", target=target, headers=(*shown, *headers), body=body, plain=plain)


def turned(house: House, body: bytes, *headers: tuple[str, str], **more: str) -> Turn:
    """The same, read."""
    found = read(house, posted(body, *headers, **more))
    assert isinstance(found, Turn)
    return found


async def seen(house: House, turn: Turn) -> tuple[Size, Sight]:
    """What is known of a turn's model, and one look at the ledger."""
    known = size(house, turn)
    return known, await look(house, turn, known)


async def closed(house: House) -> None:
    """Let what runs beside the requests end, then close what was opened."""
    await house.background.close(2.0)
    await house.windows.close()
    await house.ledger.close()
    house.measures.close()
    house.reading.close()
