"""The compactor that `docs/extending.md` shows works as it stands there: installed, then chosen by its name."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from proxy.boot import opened
from proxy.compaction.patience import Patience
from proxy.settings import Settings
from proxy.steps.packing import begun, run
from proxy.steps.report import Report
from tests.houses import seen, turned
from tests.phrases import LONG

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text()
SYSTEM = {"role": "system", "content": "Never touch vendor/."}


def shown(language: str) -> str:
    """The page's first block in a language."""
    block = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert block
    return block[1]


def installed(folder: Path) -> str:
    """Lay the page's package there as an installer would; the name of its compactor."""
    entry = re.fullmatch(r'\[project\.entry-points\."(.+)"\]\n(\w+) = "(\w+):(\w+)"\n', shown("toml"))
    assert entry
    group, name, module, cls = entry.groups()
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{module}.py").write_text(shown("python"))
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{cls}\n")
    return name


@pytest.fixture
def compactor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which the page's compactor can be chosen."""
    name = installed(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    return name


async def test_the_page_s_compactor_is_found_by_name_and_packs(tmp_path: Path, compactor: str) -> None:
    """One commit; the model then sees its note, system text of mid-conversation, and the newest step."""
    given = {
        "upstreams": {"up": "http://upstream.test/v1"},
        "compactor": compactor,
        "state_dir": str(tmp_path / "state"),
        "defaults": {"context_window": 10_000},
        "redis": {"timeout": "2s"},
    }
    body = json.loads(LONG)
    body["messages"].insert(4, SYSTEM)
    async with opened(Settings.model_validate(given)) as house:
        turn, patience = turned(house, json.dumps(body).encode()), Patience(1.0)
        known, sight = await seen(house, turn)
        assert known.limits is not None
        work = await begun(
            house, turn, known, sight, patience, trigger="overflow", limits=known.limits, goal=1, calibration=1.0
        )
        await run(house, turn, work, patience, Report())
        record = await house.ledger.load(turn.conversation)
    assert (record.generation, len(work.commits)) == (1, 1)
    messages = [json.loads(item.raw) for item in work.view.items]
    assert messages[0] == {"role": "user", "content": "The earlier part of this conversation is not shown."}
    assert messages[1:] == [SYSTEM, body["messages"][-1]]
