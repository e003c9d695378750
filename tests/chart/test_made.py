"""What is made of other files, and what has to be the same in two of them. No Helm is needed for it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from charts import made

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "carryon"


@pytest.mark.parametrize("file", made.FILES)
def test_what_is_made_is_as_made(file: str) -> None:
    """Make it anew with `python charts/made.py`."""
    assert (CHART / file).read_text(encoding="utf-8") == made.FILES[file]()


def test_every_value_is_explained() -> None:
    """Each leaf of the values has its line in the README; so has each mapping that Carryon or a pod takes whole."""
    said = {key for key, _, _ in made.values()}

    def leaves(tree: dict[str, object], at: str) -> set[str]:
        found: set[str] = set()
        for name, value in tree.items():
            path = f"{at}{name}"
            inner = isinstance(value, dict) and value and path not in said
            found |= leaves(dict(value), f"{path}.") if inner and isinstance(value, dict) else {path}
        return found

    assert leaves(yaml.safe_load((CHART / "values.yaml").read_text()), "") - said == set()


def test_the_chart_names_the_version_of_the_project() -> None:
    """The tag that is pulled when nobody names one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == project["version"]


def test_no_mapping_of_the_schema_takes_unknown_keys() -> None:
    """But for those whose keys belong to somebody else: labels, parts of a pod, names of upstreams."""
    open_, schema = [], json.loads((CHART / "values.schema.json").read_text())

    def walk(part: object, at: str) -> None:
        if isinstance(part, dict):
            if "properties" in part and part.get("additionalProperties") is not False:
                open_.append(at)
            for name, inner in part.items():
                walk(inner, f"{at}/{name}")

    walk(schema, "")
    assert open_ == ["/properties/extraVolumes/items"]


def test_what_the_chart_sets_is_not_said_in_the_file() -> None:
    """Each variable of the chart that is a setting is absent from the schema of `config`."""
    variables = set(re.findall(r"CARRYON_[A-Z_]+", (CHART / "templates" / "_env.tpl").read_text())) - {"CARRYON_CONFIG"}
    definitions = json.loads((CHART / "values.schema.json").read_text())["definitions"]
    assert len(variables) == 8
    for variable in variables:
        *group, key = variable.removeprefix("CARRYON_").lower().split("__")
        assert key not in definitions["carryon" + "".join(group).title()]["properties"], variable


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)", (CHART / "README.md").read_text()))
def test_links_of_the_charts_readme_resolve(link: str) -> None:
    """They lead out of the chart, to pages of the project."""
    assert (CHART / link).exists()
