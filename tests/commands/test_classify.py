from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.commands.classify import lines, one, shown
from tests.terminal import PATIENCE, arguments, environment, run

FIXTURE = Path(__file__).parents[1] / "data" / "overflow.jsonl"
KEYS = ["id", "verdict", "kind", "rule", "limit", "requested", "compactable"]
OVERFLOW = b'{"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}'


def classified(*data: bytes) -> list[tuple[dict[str, Any], bool]]:
    """What each line is answered with."""
    return [(json.loads(row), understood) for row, understood in lines(data)]


def test_every_unambiguous_line_of_the_fixture_gets_its_verdict_from_the_command() -> None:
    """The command, not only the function behind it: one answer per line, in order, exit 0."""
    rows = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    done = run("classify", "--jsonl", FIXTURE)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, [answer["id"] for answer in answers]) == (0, [row["id"] for row in rows])
    assert all(list(answer) == KEYS for answer in answers)
    wrong = [
        answer
        for row, answer in zip(rows, answers, strict=True)
        if not row.get("ambiguous")
        and (
            answer["verdict"] != row["verdict"]
            or (
                row["verdict"] != "OTHER" and (answer["limit"], answer["requested"]) != (row["limit"], row["requested"])
            )
        )
    ]
    assert wrong == []


def test_the_verdict_in_a_line_is_not_read() -> None:
    """A line that claims its own verdict is classified like one that does not."""
    row = {"id": "a", "status": 400, "delivery": "http", "body": "x", "verdict": "CONTEXT_WINDOW_EXCEEDED"}
    assert classified(json.dumps(row).encode())[0][0]["verdict"] == "OTHER"


def test_only_an_overflow_can_be_compactable() -> None:
    """Nothing else is cured by compaction, whatever the core leaves open."""
    assert one(OVERFLOW, 400)["compactable"] is True
    assert one(b'{"error": {"message": "bad key"}}', 400)["compactable"] is False


def test_an_error_inside_a_success_is_read_as_such() -> None:
    """`--status 200`: the body is an error object, not a refusal."""
    assert one(OVERFLOW, 200)["verdict"] == "CONTEXT_WINDOW_EXCEEDED"
    assert one(b'{"choices": [{"message": {"content": "prompt is too long"}}]}', 200)["verdict"] == "OTHER"


def test_people_see_words_and_nothing_that_is_unknown() -> None:
    """No None, no True: a limit that is not told is not shown."""
    text = shown(one(b"odd", 400))
    assert ("None" in text, "limit" in text, "compactable  no" in text) == (False, False, True)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"a":', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"status": ' + b"9" * 5_000 + b', "body": ""}', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b'{"status": 400}', "no body"),
    ],
)
def test_a_line_that_is_not_understood_is_answered_with_its_number(line: bytes, error: str) -> None:
    """The lines around it are still classified."""
    good = b'{"id": 7, "status": 400, "body": "x"}'
    (_, first), odd, (_, last) = classified(good, line, good)
    assert (first, last) == (True, True)
    assert odd == ({"line": 2, "error": error}, False)


@pytest.mark.parametrize(
    "row",
    [
        {"id": [1], "status": "four hundred", "body": 7, "headers": [1], "event": {}, "endpoint": 3, "delivery": None},
        {"id": None, "status": True, "body": None, "headers": {"a": [1]}},
        {"id": 1.5, "status": 1e300, "body": {"error": {"error": [{"error": {}}]}}},
        {"id": "\ud800", "status": -1, "body": "\ud800\x00"},
    ],
)
def test_odd_types_in_a_line_count_as_absent(row: dict[str, object]) -> None:
    """A verdict comes out all the same, as JSON on one line of ASCII."""
    ((answer, understood),) = classified(json.dumps(row).encode())
    assert (list(answer), understood, answer["verdict"]) == (KEYS, True, "OTHER")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["error", "message", "code", "x"]), inner)
    ),
    max_leaves=8,
)
ROWS = st.dictionaries(st.sampled_from(["id", "status", "delivery", "headers", "body", "event", "endpoint"]), JSON)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=40) | ROWS.map(lambda row: json.dumps(row).encode()), max_size=3))
def test_no_input_makes_it_fail(data: Iterable[bytes]) -> None:
    """Any bytes, any JSON: one line of JSON for each line that is not empty."""
    given_lines = [line for line in data if line.strip()]
    assert len(classified(*data)) == len(given_lines)


def test_the_command_reads_odd_files_to_their_end(tmp_path: Path) -> None:
    """Broken, huge, binary and empty lines: exit 1 where one was not understood, never a traceback."""
    file = tmp_path / "odd.jsonl"
    huge = json.dumps({"id": "huge", "status": 400, "body": "tokens " * 400_000}).encode()
    file.write_bytes(b'{"a":\n\n[1]\n' + huge + b'\n\x00\xff\n{"id": "last", "status": 400, "body": "x"}')
    done = run("classify", "--jsonl", file)
    answers = [json.loads(line) for line in done.said.splitlines()]
    assert done.code == 1
    assert [answer.get("id", answer.get("line")) for answer in answers] == [1, 3, "huge", 5, "last"]


def test_an_empty_input_is_no_error() -> None:
    """Nothing to classify: nothing printed for lines, OTHER for a body."""
    assert (run("classify", "--jsonl").code, run("classify", "--jsonl").said) == (0, "")
    assert json.loads(run("classify", "--json").said)["verdict"] == "OTHER"


@pytest.mark.parametrize("words", [(), ("-",)])
def test_one_error_is_read_from_standard_input(words: tuple[str, ...]) -> None:
    """What `curl` printed goes in, the verdict comes out."""
    done = run("classify", *words, stdin=OVERFLOW)
    assert done.code == 0
    assert "CONTEXT_WINDOW_EXCEEDED" in done.out
    assert "200000" in done.out


def test_one_error_is_read_from_a_file_as_json(tmp_path: Path) -> None:
    """`--json` gives the same fields as a line does, but for the id."""
    file = tmp_path / "error.json"
    file.write_bytes(OVERFLOW)
    found = json.loads(run("classify", file, "--json").out)
    assert list(found) == KEYS[1:]
    assert (found["limit"], found["requested"]) == (200_000, 210_000)


@pytest.mark.parametrize("place", ["", "absent.json"])
def test_a_file_that_cannot_be_read_is_exit_2(tmp_path: Path, place: str) -> None:
    """A folder and a missing file: one message with its cure."""
    done = run("classify", tmp_path / place)
    assert (done.code, "cannot be read" in done.said, "cure:" in done.said) == (2, True, True)


@pytest.mark.parametrize("text", ["prompt is too long", '{"error":"x"}', "word " * 2_000])
def test_text_in_place_of_a_file_is_exit_2_and_shown_the_pipe(text: str) -> None:
    """The error itself was pasted as an argument, longer than a name may be perhaps."""
    done = run("classify", text)
    assert done.code == 2
    assert "name a file, or pipe the text: echo '…' | carryon classify" in done.said


def test_on_a_terminal_it_says_that_it_waits(tmp_path: Path) -> None:
    """Else it looks hung. Nothing of it goes where the verdict goes."""
    near, far = os.openpty()
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as to, err.open("wb") as beside:
        process = subprocess.Popen(
            arguments("classify"), stdin=far, stdout=to, stderr=beside, cwd="/", env=environment()
        )
    os.close(far)
    try:
        os.write(near, b"prompt is too long: 210000 tokens > 200000 maximum\n\x04")
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(near)
    assert err.read_text() == "paste the error, then Ctrl-D\n"
    assert "CONTEXT_WINDOW_EXCEEDED" in out.read_text()


def test_what_is_piped_is_not_waited_for() -> None:
    """No word on standard error then."""
    assert run("classify", stdin=OVERFLOW).err == ""
