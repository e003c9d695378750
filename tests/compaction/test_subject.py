"""What a job is about."""

from __future__ import annotations

from proxy.compaction.flights import Flights
from proxy.compaction.patience import Patience
from proxy.compaction.subject import Subject
from proxy.core.meter import Meter
from proxy.dialects.chat import CHAT
from proxy.policy import Policy, limits
from proxy.store.redis import RedisLedger
from proxy.store.within import Within
from tests.store.servers import SEALS


async def never(body: bytes, seconds: float) -> bytes | None:
    """No summariser."""
    raise AssertionError(body, seconds)


async def test_logs_name_a_job_s_conversation_without_its_tenant() -> None:
    """And every stored surface suits it, where nobody says otherwise."""
    about = Subject(
        ledger=Within(RedisLedger("redis://127.0.0.1:1", seals=SEALS), 1.0, each=1.0),
        conversation="tenant.conversation",
        dialect=CHAT,
        meter=Meter(CHAT.weigh, len),
        calibration=1.0,
        limits=limits(Policy(), window=2_048, kind="input"),
        policy=Policy(),
        trigger="pressure",
        goal=1_000,
        window=2_048,
        post=never,
        flights=Flights(),
        patience=Patience(30.0),
    )
    assert about.opaque == "conversation"
