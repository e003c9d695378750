"""`inspect`, `export`, `forget` and the admin API beside a real `carryon serve` on its embedded store, and alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.e2e.carryon import Carryon
from tests.e2e.scribe import Scribe
from tests.e2e.talk import WINDOW, Client, body, history
from tests.terminal import Done, run

pytestmark = pytest.mark.timeout(120)

#: Steps after which a history is over the threshold.
OVER = 13
KEY = "sk-a"


async def carryon(state: Path, *words: str | Path, **environ: str) -> Done:
    """Run a command on the store in this state directory."""
    return await asyncio.to_thread(run, *words, environ={"CARRYON_STATE_DIR": str(state), **environ})


async def test_what_is_stored_is_seen_taken_along_and_forgotten_while_carryon_runs_and_after(tmp_path: Path) -> None:
    """One conversation from packing to its end; the commands share the embedded store, and start it where none runs."""
    grown = body("m", history(OVER))
    file = tmp_path / "body.json"
    file.write_bytes(grown)
    async with Scribe() as upstream:
        proxy = Carryon(upstream.url, tmp_path, "--window", str(WINDOW))
        async with Client(await proxy.start(), key=KEY) as client:
            packed = await client.post(grown)
            assert packed.action == "pressure"
            sent = upstream.of("m", summaries=False)[-1].body
            await _seen(tmp_path, packed.conversation)
            taken = await carryon(tmp_path, "export", "--request", file, "--credential", "env:KEY", KEY=KEY)
            assert (taken.code, taken.out.encode()) == (0, sent), taken.err
            await _api(proxy, packed.conversation)
            assert (await client.post(grown)).action == "projected"
            gone = await carryon(tmp_path, "forget", packed.conversation[:9])
            assert (gone.code, gone.out) == (0, "forgot 1 conversation\n"), gone.err
            again = await client.post(grown)
            assert (again.action, again.generation) == ("pressure", 1), "packed anew, under another epoch"
        assert await proxy.stop() == 0
        assert not proxy.events("internal-fault")
    await _after(tmp_path, file, grown, packed.conversation)


async def _seen(state: Path, conversation: str) -> None:
    listed = await carryon(state, "inspect")
    assert re.search(
        rf"(?m)^{conversation[:12]}  [0-9a-f]{{12}} +m +1 +1 +\d+ +[\d,]+ → [\d,]+ +\d+s ago +in 6d$", listed.out
    )
    assert listed.out.endswith("\n1 conversation\n")
    one = await carryon(state, "inspect", conversation[:4])
    assert f"id          {conversation}\n" in one.out
    assert re.search(r"(?m)^ +1 .* S1 +scribe-1 \(.*\) +(proven|new) ", one.out), one.out
    assert "Objective as of summary" not in one.said
    told = json.loads((await carryon(state, "inspect", conversation, "--json")).out)
    assert told["surfaces"][0]["summary"] == "S1"
    first, second = map(json.loads, (await carryon(state, "export", conversation)).out.splitlines())
    assert first["conversation"]["generation"] == second["surface"]["generation"] == 1
    assert "Objective as of summary" in json.dumps(second["surface"]["parts"])


async def _api(proxy: Carryon, conversation: str) -> None:
    found = re.search(r"probes +(http://127\.0\.0\.1:\d+)/", proxy.log)
    assert found is not None
    async with ClientSession(found[1]) as session:
        async with session.get("/api/conversations") as reply:
            assert [row["id"] for row in (await reply.json())["conversations"]] == [conversation]
        async with session.get(f"/api/conversations/{conversation}", headers={"Host": "evil.example"}) as reply:
            assert reply.status == 403
        async with session.get("/metrics", headers={"Host": "evil.example"}) as reply:
            told = await reply.text()
            assert 'carryon_requests_total{action="pressure",status="2xx",upstream="default"} 1.0' in told
            assert "carryon_store_up 1.0" in told
            assert conversation not in told


async def _after(state: Path, file: Path, grown: bytes, conversation: str) -> None:
    """Carryon is gone: the store is started for each command, and stopped."""
    taken = await carryon(state, "export", "--request", file)
    assert taken.code == 0, taken.err
    assert len(taken.out.encode()) < len(grown)
    assert f"conversation {conversation}" in taken.err
    assert (await carryon(state, "forget", "--all", "--yes")).out == "forgot 1 conversation\n"
    assert (await carryon(state, "inspect")).out == "no conversation is stored\n"
    raw = await carryon(state, "export", "--request", file)
    assert (raw.code, raw.out.encode()) == (1, grown)
    assert "valkey.pid" not in os.listdir(state / "store"), "no server was left"  # noqa: PTH208 - names
