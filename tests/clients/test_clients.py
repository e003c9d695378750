"""Real clients, headless, on loopback: alone they end at the window, through `carryon serve` they outlive it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.clients import pages
from tests.clients.coding import AGENTS, Codex, CodexBuiltIn
from tests.clients.model import Model, Seen
from tests.clients.table import SDKS, Client, Place, Turn
from tests.e2e.carryon import Carryon

pytestmark = pytest.mark.timeout(300)

#: `make clients` runs the first, `make clients-all` both.
CLIENTS = [
    *(pytest.param(client, marks=pytest.mark.clients, id=client.name) for client in (*SDKS, Codex(), CodexBuiltIn())),
    *(pytest.param(client, marks=pytest.mark.agents, id=client.name) for client in AGENTS),
]

ALL = range(1, pages.TURNS + 1)
#: Carryon is restarted between these: by then every history is far over the window.
BEFORE, AFTER = ALL[:4], ALL[4:]
#: SDKs meet Carryon as it comes. Agents that compact by themselves are told in the documentation to turn this off:
#: what is packed beside a request comes too late for one that takes its usage for a reason.
BESIDE = {"CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "true"}
_ROW = "{:33} {:9} {:9} {:6} {:>8} {:>8} {:>8} {:>5} {:>7}  {}"
_HEAD = _ROW.format(
    "client", "version", "api", "turns", "history", "raw", "sent", "packs", "refused", "without Carryon"
)
_LEGEND = """
history: tokens of the pages in the client's history, as the upstream counts; raw: its largest request as Carryon
measured it; sent: the largest the upstream accepted, as it counts; packs: surfaces committed; refused: by the upstream
"""


@dataclass(slots=True)
class Carried:
    """What came of a session through Carryon. `restart` is how many requests of a lane came before the restart."""

    turns: list[Turn] = field(default_factory=list)
    restart: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="session")
def table() -> Iterator[list[str]]:
    """The rows, printed at the end."""
    rows: list[str] = []
    yield rows
    print("\n".join((_LEGEND, _HEAD, *rows)))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_outlives_the_window(client: Client, table: list[str], tmp_path: Path) -> None:
    """Three windows of turns: none lost, none compacted by the client, all valid; a restart changes nothing."""
    if reason := client.missing():
        pytest.skip(reason)
    pages.lay(tmp_path / "notes")
    alone = await _alone(client, tmp_path)
    async with Model(str(tmp_path / "notes"), read=client.read, window=client.window) as model:
        port = _free()
        options = ("--window", str(client.window), "--port", str(port))
        carryon = Carryon(model.url, tmp_path / "state", *options, **(BESIDE if client in SDKS else {}))
        carried = await _carried(client, carryon, model, tmp_path)
    table.extend(_row(client, lane, alone[lane], carried, carryon, model) for lane in client.lanes)
    for lane in client.lanes:
        assert alone[lane], "alone it has no trouble: this test would prove nothing"
        _kept(client, lane, carried, model)
    refused = [event for event in carryon.events("request") if event.get("error") == "PROXY_NO_WEBSOCKET"]
    assert len(refused) == client.upgrades * pages.TURNS, "told once, it speaks HTTP at once"
    assert not carryon.events("internal-fault")
    assert not carryon.events("surface-retired")


async def _alone(client: Client, folder: Path) -> dict[str, str]:
    """What happens to each lane without Carryon: a lost turn, or a compaction of its own; empty where neither does."""
    found = dict.fromkeys(client.lanes, "")
    async with Model(str(folder / "notes"), read=client.read, window=client.window) as model:
        async for turn in client.turns(Place(url=model.url, folder=folder / "alone"), ALL):
            if not found[turn.lane] and model.of(turn.lane, "own"):
                found[turn.lane] = f"its own compaction in turn {turn.number}"
            elif not found[turn.lane] and turn.error:
                found[turn.lane] = f"turn {turn.number} lost: {turn.error[:90]}"
            if all(found.values()):
                break
    return found


async def _carried(client: Client, carryon: Carryon, model: Model, folder: Path) -> Carried:
    carried = Carried()
    for numbers in (BEFORE, AFTER):
        place = Place(url=await carryon.start(), folder=folder / "carried")
        carried.restart = {lane: len(model.seen.get(lane, ())) for lane in client.lanes}
        try:
            async for turn in client.turns(place, numbers):
                carried.turns.append(turn)
        finally:
            code = await carryon.stop()
        assert code == 0
    return carried


def _kept(client: Client, lane: str, carried: Carried, model: Model) -> None:
    turns = [turn for turn in carried.turns if turn.lane == lane]
    assert [turn.error for turn in turns if turn.error] == []
    assert [turn.number for turn in turns if pages.done(turn.number) in turn.said] == [*ALL]
    assert model.of(lane, "own") == []
    assert [one.problem for one in model.seen[lane] if one.problem] == []
    assert model.read(lane) > 3 * model.window
    if not client.resumes:
        return
    first = next(one for one in model.seen[lane][carried.restart[lane] :] if one.kind in ("turn", "summary"))
    assert first.kind == "turn", "what was packed before the restart was lost: it is packed anew"
    assert "<conversation_summary" in str(first.body)


def _row(client: Client, lane: str, alone: str, carried: Carried, carryon: Carryon, model: Model) -> str:
    requests = [event for event in carryon.events("request") if event.get("model") == lane]
    conversations = {event.get("conversation") for event in requests}
    packs = sum(event["conversation"] in conversations for event in carryon.events("commit"))
    turns: list[Seen] = model.of(lane, "turn")
    return _ROW.format(
        lane,
        client.version(),
        turns[0].api,
        f"{sum(pages.done(turn.number) in turn.said for turn in carried.turns if turn.lane == lane)} of {pages.TURNS}",
        f"{model.read(lane):,}",
        f"{max(event.get('raw') or 0 for event in requests):,}",
        f"{max(one.tokens for one in turns if not one.refused):,}",
        packs,
        sum(one.refused for one in model.seen[lane]),
        alone or "no trouble",
    )


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
