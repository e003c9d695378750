"""Documentation that stands by itself: links and rules resolve, the code's words are explained, no machine is named."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard, get_args

import pytest

from proxy.upstream import ErrorKind

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


_RULES = re.compile(r"\b[Rr]ules? ((?:I?\d+(?:\.\d+)?(?:, and |, | and |(?= |\b)))+)")
_MENTIONED = (*sorted((ROOT / "proxy").rglob("*.py")), *sorted((ROOT / "proxy").rglob("*.lua")))
#: Documents from which Carryon was built, and which are not part of it.
_ELSEWHERE = re.compile(r"\bSPEC\b|\b(?:SPEC|DESIGN|COMPACTION|CLIENTS|RELIABILITY|OVERFLOW|STYLE)\.md\b")


def _rules() -> set[str]:
    """What `docs/rules.md` numbers: sections, rules, invariants."""
    text = (ROOT / "docs" / "rules.md").read_text()
    return set(re.findall(r"^(?:## |- \*\*)(I?\d+(?:\.\d+)?)\b", text, re.MULTILINE))


def test_every_rule_that_is_named_can_be_looked_up() -> None:
    """`rule 7.3` in code, tests, configuration and docs is a line of the rules; a step is a row of its table."""
    files = [*_MENTIONED, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "config").glob("*.yaml")), *PAGES]
    named = {
        (_named(file), number)
        for file in files
        for match in _RULES.finditer(file.read_text())
        for number in re.findall(r"I?\d+(?:\.\d+)?", match[1])
    }
    assert len(named) > 60
    assert {(file, number) for file, number in named if number not in _rules()} == set()


def test_no_text_points_at_a_document_that_is_not_here() -> None:
    """A stranger has this repository and nothing else."""
    texts = [file for file in _tracked() if file.suffix in {".py", ".lua", ".md", ".yaml", ".toml"} and file.exists()]
    found = [
        f"{_named(file)}: {match[0]}"
        for file in texts
        if file != Path(__file__)
        for match in _ELSEWHERE.finditer(file.read_text())
    ]
    assert found == []


#: Files of `proxy/` that another file's tests test, and why. A package's `__init__.py` holds names, protocols and plain
#: data, which are tested where they are used.
_TESTED_ELSEWHERE: dict[str, str] = {}


def test_every_file_has_the_tests_that_bear_its_name() -> None:
    """`proxy/a/b.py` is tested by `tests/a/test_b.py`: whoever changes the one finds the other."""
    files = {path.relative_to(ROOT / "proxy") for path in (ROOT / "proxy").rglob("*.py")}
    named = {path for path in files if path.name != "__init__.py"}
    assert len(named) > 80
    lone = {str(path) for path in named if not (ROOT / "tests" / path.with_name(f"test_{path.name}")).is_file()}
    assert lone == set(_TESTED_ELSEWHERE)


# --- words that operators meet ------------------------------------------------------------------------


def _trees(*patterns: str) -> Iterator[ast.AST]:
    for pattern in patterns:
        yield from (ast.parse(file.read_text()) for file in sorted((ROOT / "proxy").glob(pattern)))


def _words(node: ast.AST | None) -> set[str]:
    """The reason-like texts in an expression."""
    inside = ast.walk(node) if node is not None else ()
    texts = {one.value for one in inside if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {text for text in texts if re.fullmatch(r"[a-z]+(?:-[a-z]+)*", text)}


def _emitted() -> set[str]:
    calls = (node for tree in _trees("**/*.py") for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = (call for call in calls if ast.unparse(call.func).endswith("emit") and call.args)
    return {word for call in names for word in _words(call.args[0])}


def _reasons(kind: str) -> set[str]:
    """The values that the code gives to `x-carryon-<kind>`: `skip` or `refused`."""
    found: set[str] = set()
    for tree in _trees("exchange.py", "steps/*.py", "core/evidence.py"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                found |= _assigned(node, kind)
            elif isinstance(node, ast.FunctionDef) and node.name in _DECIDES[kind]:
                found |= {word for one in ast.walk(node) if isinstance(one, ast.Return) for word in _words(one.value)}
                found |= {word for one in ast.walk(node) if isinstance(one, ast.Tuple) for word in _words(one)}
            elif isinstance(node, ast.Call):
                found |= _given(node, kind)
    return found


#: Functions that choose among reasons, by what they return or from which pairs they take it.
_DECIDES = {"refused": ("_hindrance", "authorise"), "skip": ("hindered",)}
_ARGUMENTS = {"refused": ("Denied", "denied"), "skip": ("replace",)}


def _assigned(node: ast.Assign, kind: str) -> set[str]:
    (target,) = node.targets
    pairs = [(target, node.value)]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = list(zip(target.elts, node.value.elts, strict=True))
    return {word for to, value in pairs if isinstance(to, ast.Attribute) and to.attr == kind for word in _words(value)}


def _given(node: ast.Call, kind: str) -> set[str]:
    name = ast.unparse(node.func).rpartition(".")[2]
    if name not in _ARGUMENTS[kind]:
        return set()
    named = [word.value for word in node.keywords if word.arg in ("reason", "skip")]
    return {word for value in (*node.args, *named) for word in _words(value)}


def _explained(heading: str) -> set[str]:
    """The words in the first column of the tables of a section of the page for operators."""
    sections = re.split(r"^## ", (ROOT / "docs" / "operations.md").read_text(), flags=re.MULTILINE)
    section = next(section for section in sections if section.startswith(heading))
    return set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) - {"x-carryon-skip", "x-carryon-refused"}


def test_every_event_of_the_log_is_explained() -> None:
    """And none that nobody emits."""
    assert _explained("The log") == _emitted()


def test_every_reason_of_a_skip_is_explained() -> None:
    """What `x-carryon-skip` may say, and nothing else."""
    assert _explained("Why nothing was done") == _reasons("skip") | {"server-history"}  # as `hindrance` said


def test_every_reason_of_a_refusal_is_explained() -> None:
    """What `x-carryon-refused` may say, and nothing else."""
    assert _explained("Why an overflow was handed over") == _reasons("refused")


def test_every_answer_of_our_own_is_explained() -> None:
    """Each `PROXY_…` code has its row."""
    codes = {code for tree in _trees("**/*.py") for code in _codes(tree)}
    page = (ROOT / "docs" / "operations.md").read_text()
    assert {code for code in codes if f"`{code}" not in page} == set()


def test_every_way_in_which_an_upstream_fails_is_explained() -> None:
    """With its code: the kind in capitals."""
    page = (ROOT / "docs" / "operations.md").read_text()
    assert {kind for kind in get_args(ErrorKind) if f"`PROXY_UPSTREAM_{kind.upper()}`" not in page} == set()


def test_every_field_of_a_request_is_explained() -> None:
    """What the log's line of a request may hold, and nothing else."""
    calls = [
        node for tree in _trees("steps/report.py", "events.py") for node in ast.walk(tree) if _logs_a_request(node)
    ]
    fields = {word.arg for call in calls for word in call.keywords} - {"level"}
    sections = re.split(r"^## ", (ROOT / "docs" / "operations.md").read_text(), flags=re.MULTILINE)
    (section,) = (section for section in sections if section.startswith("The fields of a request"))
    rows = re.findall(r"^\| ((?:`[a-z]+`(?:, )?)+) \|", section, re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`([a-z]+)`", row)} == fields


def _logs_a_request(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("emit") and "request" in _words(node.args[0])


def _codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^PROXY_[A-Z_]+", node.value)


def test_every_silenced_lint_says_why() -> None:
    """A `noqa` names its rule and, after a dash, its reason."""
    bare = re.compile(r"# (?:ruff: )?noqa(?!: [A-Z]+\d+(?:, [A-Z]+\d+)* - \w)")
    files = [file for file in _tracked() if file.suffix == ".py" and file.exists() and file != Path(__file__)]
    assert [_named(file) for file in files for _ in bare.finditer(file.read_text())] == []
