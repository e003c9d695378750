from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.commands.check import checked, shown
from proxy.errors import ConfigError
from proxy.settings import load
from tests.terminal import run

CONFIG = Path(__file__).parents[2] / "config"
FILES = sorted([CONFIG / "carryon.yaml", *(CONFIG / "examples").glob("*.yaml")])
#: What the examples name by `env:`.
NAMED = {"VLLM_API_KEY": "a-made-up-key"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_that_ships_is_good(file: Path) -> None:
    """Each example loads, names its upstreams and a policy for the catch-all model; no secret is shown."""
    found = checked(load(file, NAMED))
    assert found["upstreams"]
    assert found["policies"][-1]["model"] == "*"
    text = shown(found, str(file)) + json.dumps(found)
    assert text.startswith(f"{file}: good\n")
    assert NAMED["VLLM_API_KEY"] not in text


def test_the_command_prints_the_policies_for_people() -> None:
    """The window with its source, and the numbers that follow from it."""
    done = run("check", CONFIG / "examples" / "openai.yaml")
    assert done.code == 0
    assert "upstream   openai = https://api.openai.com/v1 (the client's credential, the default)" in done.out
    assert "model      openai / gpt-5\n           window 272,000 tokens (input, yaml)" in done.out
    assert "threshold 217,600" in done.out
    assert "unknown here: asked from the upstream" in done.out


def test_the_command_prints_json_for_scripts() -> None:
    """The same facts; a variable that the file names is taken from the environment."""
    done = run("check", "--json", CONFIG / "examples" / "vllm.yaml", environ=NAMED)
    found = json.loads(done.out)
    assert (done.code, found["listen"], found["upstreams"][0]["credential"]) == (0, "0.0.0.0:8787", "its own key")
    assert found["policies"][-1]["limits"]["window"] == 65_536


def test_a_window_that_no_file_names_comes_from_the_packaged_table() -> None:
    """It is shown with that source, without asking anybody."""
    found = checked(load(None, {}, {"upstream": "https://api.openai.com/v1"}))
    assert found["policies"][-1]["limits"] is None
    named = load(Path(CONFIG / "examples" / "openai.yaml"), {})
    rows = {row["model"]: row["window_source"] for row in checked(named)["policies"]}
    assert rows == {"gpt-5": "yaml", "gpt-4o*": "yaml", "*": None}


WRONG = {
    "unknown.yaml": ("listn: {}\n", ":1: listn: is not a key", "write listen"),
    "broken.yaml": ("listen: [\n", "broken.yaml", "cure:"),
    "contradiction.yaml": ("defaults: {retain_ratio: 0.9}\n", "retain_ratio", "cure:"),
    "missing_variable.yaml": ("secret: env:NO_SUCH_NAME\n", "NO_SUCH_NAME is not set", "cure:"),
    "later.yaml": ("encryption_keys: [abc]\n", "encryption_keys", "cure:"),
    "binary.yaml": ("\x00\x01", "special character", "cure:"),
    "deep.yaml": (f"listen: {'[' * 3000}\n", "nested too deeply", "cure:"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_a_mistake_with_place_and_cure(tmp_path: Path, name: str) -> None:
    """Every kind of mistake names the file and says how to mend it."""
    text, place, cure = WRONG[name]
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    text = str(raised.value)
    assert str(file) in text
    assert place in text
    assert cure in text


def test_a_file_that_is_no_text_is_exit_2(tmp_path: Path) -> None:
    """The command shows the same, and no traceback."""
    file = tmp_path / "carryon.yaml"
    file.write_bytes(b"a: \x00")
    done = run("check", file)
    assert (done.code, f"{file}: is not YAML" in done.said, "cure:" in done.said) == (2, True, True)


def test_a_missing_file_is_exit_2(tmp_path: Path) -> None:
    """Not the defaults: a named file that is not there is a mistake."""
    done = run("check", tmp_path / "absent.yaml")
    assert (done.code, "absent.yaml: cannot be read" in done.said) == (2, True)


def test_a_file_that_is_not_there_is_exit_2_with_the_cure_for_this_command(tmp_path: Path) -> None:
    """`check` has no `--config`."""
    done = run("check", tmp_path / "nope.yaml")
    assert (done.code, "--config" in done.said) == (2, False)
    assert "cure: name an existing, readable file\n" in done.said
