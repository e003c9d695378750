"""The page on Kubernetes: what it says to type and to write is what Helm takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.chart.engine import CHART, Helm, one

pytestmark = [pytest.mark.chart, pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|yaml)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
HELM = [line for line in COMMANDS if line.startswith("helm ") and "charts/carryon" in line]
VALUES = [text for kind, text in BLOCKS if kind == "yaml"]


def test_the_quick_start_has_at_most_six_commands() -> None:
    """From the checkout to the line to paste."""
    first = next(text for kind, text in BLOCKS if kind == "sh")
    assert len(first.splitlines()) <= 6


@pytest.mark.parametrize("line", HELM)
def test_a_command_of_the_page_renders(helm: Helm, line: str) -> None:
    """As it stands there, but that nothing is sent to a cluster."""
    words = shlex.split(line)
    options = words[words.index("charts/carryon") + 1 :]
    objects = list(yaml.safe_load_all(helm.run("template", "carryon", CHART, *options)))
    assert one(objects, "Deployment")["metadata"]["name"] == "carryon"


@pytest.mark.parametrize("text", VALUES, ids=lambda text: text.split()[0])
def test_values_of_the_page_render(helm: Helm, text: str) -> None:
    """Each block beside the one value that has no default."""
    assert one(helm.render(CHART / "ci" / "minimal.yaml", yaml.safe_load(text)), "Deployment")


def test_the_page_names_the_values_that_exist(helm: Helm) -> None:
    """What is written as `a.b` in code is a value, a key of Carryon, or a name of somebody else's."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    named = [name for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)`", PAGE) if name.partition(".")[0] in known]
    assert len(named) > 20
    for name in named:
        part = known
        for key in name.split("."):
            assert name.startswith("config.") or key in part, name
            part = part.get(key, {})
