"""Documentation that stands by itself: links resolve, nothing names a machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: An absolute path on somebody's machine, or a way out of the repository.
_OUTSIDE = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|Users|mnt|srv)/|\.\./\w+/[A-Z]+\.md")


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _anchors(page: Path) -> set[str]:
    return {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in _HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_relative_link_resolves(page: Path) -> None:
    """A link leads to a file of this repository, and to a heading that is there."""
    for link in _LINK.findall(page.read_text()):
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), f"{link} leaves the repository"
        assert not anchor or anchor in _anchors(target), link


def test_every_page_is_reached_from_the_index() -> None:
    """A page nobody links to is not read."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text())}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= linked


def test_the_map_for_contributors_names_every_file() -> None:
    """Whoever adds a file or a folder says where it belongs."""
    table = "\n".join(re.findall(r"^\|.*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    listed = set(re.findall(r"`([a-z]+(?:\.py|/))`", table)) - {"proxy/"}
    files = {path.name for path in (ROOT / "proxy").glob("[a-z]*.py")}
    folders = {f"{path.parent.name}/" for path in (ROOT / "proxy").glob("*/__init__.py")}
    assert listed == files | folders


def test_a_decision_says_what_was_rejected() -> None:
    """Context, Decision, Rejected, Consequences; numbered without a gap."""
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in decisions] == list(range(1, len(decisions) + 1))
    for page in decisions:
        sections = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert sections == ["Context", "Decision", "Rejected", "Consequences"], page.name


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_no_text_names_a_machine_or_leaves_the_repository() -> None:
    """What is written here is true on every machine."""
    texts = [file for file in _tracked() if file.suffix in {".md", ".yaml", ".toml", ".lua", ".lock"} and file.exists()]
    found = [f"{_named(file)}: {match[0]}" for file in texts for match in _OUTSIDE.finditer(file.read_text())]
    assert found == []
