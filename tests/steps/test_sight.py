"""What the model would see of a turn, as the ledger shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.compaction.patience import Patience
from proxy.core.surface import Put
from proxy.dialects.chat import CHAT
from proxy.house import House
from proxy.steps.packing import begun
from proxy.steps.sight import (
    counted,
    estimated,
    evident,
    force,
    forced,
    forgotten,
    look,
    size,
    suits,
    surely_below,
    unseen,
)
from proxy.steps.turn import Turn
from tests.houses import closed, furnished, seen, turned
from tests.phrases import EDITED, HISTORY, LONG, SHORT, body, note, packed


async def pack(house: House, turn: Turn) -> None:
    """Commit a note for all but the newest message."""
    known, sight = await seen(house, turn)
    assert known.limits is not None
    work = await begun(
        house, turn, known, sight, Patience(1.0), trigger="overflow", limits=known.limits, goal=1, calibration=1.0
    )
    await work.propose((Put(CHAT.user("note: all that went before")),), len(HISTORY) - 1)
    assert work.commits


async def test_without_a_surface_the_client_s_bytes_stand(house: House, turn: Turn) -> None:
    """A look finds nothing: no entry, no body of ours, generation 0."""
    _, sight = await seen(house, turn)
    assert (sight.entry, sight.body, sight.generation, sight.looked) == (None, None, 0, True)
    assert await estimated(house, turn, sight) == counted(house, turn, unseen(house, turn))


async def test_a_surface_applies_to_exactly_what_it_is_bound_to(house: House, turn: Turn) -> None:
    """The same items and what follows them; not with one character changed."""
    await pack(house, turn)
    _, sight = await seen(house, turn)
    assert (sight.body, sight.generation) == (SHORT, 1)
    confirmed = await evident(house, turn, size(house, turn), sight.records)
    assert confirmed is not None
    assert confirmed.body == SHORT
    credential = dict(turn.passage.call.headers)["Authorization"]
    longer = turned(house, body(*HISTORY, HISTORY[1], HISTORY[2]), credential=credential)
    assert (await seen(house, longer))[1].body == packed(note(), HISTORY[-1], HISTORY[1], HISTORY[2])
    assert (await seen(house, turned(house, body(*EDITED), credential=credential)))[1].body is None


async def test_a_surface_seen_rejected_rests_whether_or_not_that_was_noted(house: House, turn: Turn) -> None:
    """The process's own memory suffices."""
    await pack(house, turn)
    _, sight = await seen(house, turn)
    assert sight.entry is not None
    house.retired.put(sight.entry.operation, value=True)
    assert (await seen(house, turn))[1].body is None


async def test_another_model_s_surface_applies_only_where_the_raw_history_needs_one(house: House, turn: Turn) -> None:
    """At or over the other model's threshold, or its window unknown."""
    await pack(house, turn)
    known, sight = await seen(house, turn)
    other = turned(house, LONG.replace(b'"m"', b'"n"'), credential=dict(turn.passage.call.headers)["Authorization"])
    assert known.limits is not None
    cases = {
        "fits": known,
        "does not fit": replace(known, limits=replace(known.limits, threshold=100)),
        "unknown": replace(known, limits=None),
    }
    applies = {name: (await suits(house, other, case, sight.applied.record.entries)) for name, case in cases.items()}
    assert sight.entry is not None
    assert {name: chosen(sight.entry) for name, chosen in applies.items()} == {
        "fits": False,
        "does not fit": True,
        "unknown": True,
    }


@pytest.mark.parametrize(
    ("window", "raw", "below"),
    [
        (1_000_000, LONG, True),
        (10_000, LONG, False),
        (1_000_000, LONG.replace(b'"x_unknown"', b'"a": {"type" : "image_url"}, "x_unknown"'), False),
    ],
)
async def test_only_few_bytes_of_text_prove_a_request_below(window: int, raw: bytes, *, below: bool) -> None:
    """A token is at least a byte, but not where there are images."""
    house = furnished(defaults={"context_window": window, "window_kind": "total"})
    turn = turned(house, raw)
    assert surely_below(house, turn, size(house, turn)) is below
    await closed(house)


async def test_a_forced_transcript_is_looked_at_until_it_was_tried(house: House, turn: Turn) -> None:
    """The note is found by whoever goes on from there, at once and at every replica, and by no other branch."""
    force(house, turn)
    assert forced(house, turn, unseen(house, turn)), "before it is in the store"
    await house.background.close(1.0)
    assert not surely_below(house, turn, size(house, turn))
    credential = dict(turn.passage.call.headers)["Authorization"]
    edited = turned(house, body(*EDITED), credential=credential)
    assert not forced(house, edited, (await seen(house, edited))[1])
    longer = turned(house, body(*HISTORY, HISTORY[1]), credential=credential)
    house.forced.put(turn.conversation, "")
    assert forced(house, longer, (await seen(house, longer))[1]), "another replica"
    await house.background.close(1.0)
    assert forced(house, longer, (await seen(house, longer))[1])
    forgotten(house, longer, (await seen(house, longer))[1])
    await house.background.close(1.0)
    assert not forced(house, longer, (await seen(house, longer))[1])
    assert not house.forced.get(longer.conversation)


async def test_while_the_store_is_away_a_look_is_no_evidence() -> None:
    """Nothing remembered: the raw transcript, marked so."""
    house = furnished()
    turn = turned(house, LONG)
    sight = await look(house, turn, size(house, turn))
    assert (sight.looked, sight.store_away, sight.body) == (False, True, None)
    await closed(house)


async def test_an_unknown_window_is_warned_of_once_and_not_while_it_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By upstream and model (rule 6.1)."""
    house = furnished(defaults={})
    await house.windows.warm()
    one, other = turned(house, LONG), turned(house, LONG.replace(b'"m"', b'"n"'))

    def warned() -> list[str]:
        return [record.__dict__["model"] for record in caplog.records if record.getMessage() == "window-unknown"]

    for turn in (one, other):
        assert size(house, turn).window is None
    assert warned() == []
    for turn in (one, other):
        await house.windows.ask(house.settings.upstreams[turn.destination.name], turn.model)
    for turn in (one, one, other):
        size(house, turn)
    assert warned() == ["m", "n"]
    await closed(house)


async def test_windows_are_asked_with_the_credential_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its header is called, and with what the operator configured; with nothing else."""
    upstream = {
        "base_url": "http://upstream.test/v1",
        "api_key": "k",
        "api_key_header": "X-Gateway-Key",
        "headers": {"X-Team": "ours"},
    }
    house, asked = furnished(upstreams={"up": upstream}), list[object]()
    monkeypatch.setattr(house.windows, "known", lambda *_, headers, **__: asked.append(headers))
    size(house, turned(house, LONG, ("anthropic-version", "1"), ("X-Other", "1")))
    assert asked == [(("anthropic-version", "1"), ("x-gateway-key", "k"), ("X-Team", "ours"))]
    await closed(house)


@pytest.mark.parametrize(("header", "dry", "noted"), [("", False, True), ("no-store", False, True), ("", True, False)])
async def test_a_dry_run_notes_nothing_about_surfaces(
    house: House, turn: Turn, header: str, *, dry: bool, noted: bool
) -> None:
    """A surface that applies under `no-store` is in use: it must not be the first to be dropped (rule 4.5)."""
    await pack(house, turn)
    headers = (("x-carryon", header),) if header else ()
    again = turned(house, LONG, *headers, credential=dict(turn.passage.call.headers)["Authorization"])
    _, sight = await seen(house, replace(again, policy=replace(again.policy, dry_run=dry)))
    assert sight.entry is not None
    assert (house.marked.get(sight.entry.operation) is not None) is noted


async def test_a_learned_limit_in_force_is_told_once(
    house: House, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever configured a window sees why another one holds (rule 6.1)."""
    caplog.set_level("INFO")
    assert size(house, turn).window is not None
    house.learning.limit(turn.keys, 6_000, 10_000)
    await house.background.close(1.0)
    found = [size(house, turn).window for _ in range(2)]
    assert [(one.tokens, one.source) for one in found if one] == [(6_000, "learned")] * 2
    told = [record for record in caplog.records if record.getMessage() == "limit-learned"]
    assert [(record.model, record.limit) for record in told] == [("m", 6_000)]  # type: ignore[attr-defined]
