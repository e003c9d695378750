"""The page of the configuration says what the code says: each key, its default, its unit, its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from proxy.errors import ConfigError
from proxy.settings import Settings, load
from proxy.settings.rules import MEMBERS

PAGE = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text(encoding="utf-8")
#: key, default, unit
ROWS = re.findall(r"^\| `([\w.<>\[\]]+)` \| (`[^`]*`|required) \| ([^|]*?) ?\| \S", PAGE, re.MULTILINE)
_MEMBER = {"upstreams": "upstreams.<name>.", "client_keys": "client_keys[].", "models": "models[]."}


def _keys(shape: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key of the configuration as the page spells it; of an entry of `models` those that `defaults` has not."""
    for name, known in shape.model_fields.items():
        if not before and name in MEMBERS:
            inherited = MEMBERS[name].__base__
            own = set(inherited.model_fields) if name == "models" and inherited is not None else set()
            yield from (f"{_MEMBER[name]}{field}" for field in MEMBERS[name].model_fields if field not in own)
        elif isinstance(known.annotation, type) and issubclass(known.annotation, BaseModel):
            yield from _keys(known.annotation, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def _value(cell: str) -> Any:
    text = cell.strip("`")
    return "*" if text == "*" else yaml.safe_load(text)


def _tree(rows: list[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in rows:
        *above, last = key.split(".")
        place = tree
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def _loaded(tmp_path: Path, tree: dict[str, Any]) -> Settings:
    file = tmp_path / "page.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return load(file, {})


def test_every_key_has_its_row_and_no_row_is_of_another_key() -> None:
    """Once each."""
    assert sorted(key for key, _, _ in ROWS) == sorted(_keys(Settings))


def test_every_default_on_the_page_is_the_default(tmp_path: Path) -> None:
    """A file that says what the page says is as good as none; upstreams and entries likewise."""
    plain = [(key, _value(default)) for key, default, _ in ROWS if not re.search(r"[<\[]", key)]
    assert _loaded(tmp_path, _tree(plain)) == Settings()
    for name, before in _MEMBER.items():
        shown = {key.removeprefix(before): cell for key, cell, _ in ROWS if key.startswith(before)}
        for field, cell in shown.items():
            known = MEMBERS[name].model_fields[field]
            assert (cell == "required") == known.is_required(), f"{before}{field}"
            if not known.is_required():
                made = known.get_default(call_default_factory=True)
                assert _value(cell) == (list(made) if isinstance(made, tuple) else made), f"{before}{field}"


#: What a value of another kind is, by the unit that the page names.
_WRONG: dict[str, Any] = {
    "duration": 30, "size": 30, "count": "many", "tokens": "many", "characters": "many", "ratio": 80,
    "yes or no": 7, "path": 7, "text": 7, "regular expressions": ["("], "patterns of names": 7, "pattern of names": 7,
}  # fmt: skip


@pytest.mark.parametrize(("key", "unit"), [(key, unit) for key, _, unit in ROWS if unit])
def test_a_unit_on_the_page_is_that_of_the_key(tmp_path: Path, key: str, unit: str) -> None:
    """A value of another kind is refused at that very key."""
    written = key.replace("<name>", "a")
    base, _, field = written.partition("[].")
    if field:
        tree: dict[str, Any] = {base: [{field: _WRONG[unit]}]}
        named = f"{base}[0].{field}"
    else:
        tree, named = _tree([(written, _WRONG[unit])]), written
    if base.startswith("upstreams"):
        tree["upstreams"]["a"]["base_url"] = "http://a"
    with pytest.raises(ConfigError) as refusal:
        _loaded(tmp_path, tree)
    assert refusal.value.key.startswith(named)


def test_the_mistakes_on_the_page_are_told_in_those_words(tmp_path: Path) -> None:
    """As `carryon check` prints them."""
    (shown,) = re.findall(r"```text\ncarryon: (.*?)\n```", PAGE, re.DOTALL)
    file = tmp_path / "carryon.yaml"
    file.write_text("# 1\nlisten:\n  prot: 1\n# 4\n# 5\n# 6\n# 7\nredis:\n  timeout: 30\n")
    with pytest.raises(ConfigError) as refusal:
        load(file, {})
    assert str(refusal.value).replace(str(file), "carryon.yaml") == shown
