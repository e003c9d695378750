from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.commands.check import checked, shown
from proxy.commands.effective import describe
from proxy.errors import ConfigError, Mistake
from proxy.policy import limits, resolve
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
    assert (done.code, f"{file}:1: is not YAML" in done.said, "cure:" in done.said) == (2, True, True)


def test_a_missing_file_is_exit_2(tmp_path: Path) -> None:
    """Not the defaults: a named file that is not there is a mistake."""
    done = run("check", tmp_path / "absent.yaml")
    assert (done.code, "absent.yaml: cannot be read" in done.said) == (2, True)


def test_a_file_that_is_not_there_is_exit_2_with_the_cure_for_this_command(tmp_path: Path) -> None:
    """`check` has no `--config`."""
    done = run("check", tmp_path / "nope.yaml")
    assert (done.code, "--config" in done.said) == (2, False)
    assert "cure: name an existing, readable file\n" in done.said


@pytest.mark.parametrize(
    ("window", "threshold", "low_water", "tail", "surface"),
    [(2_048, 1_638, 1_130, 327, 409), (8_192, 6_553, 4_521, 1_310, 1_638), (200_000, 160_000, 110_400, 32_000, 40_000)],
)
def test_the_numbers_of_a_window_are_printed_as_one_reckons_them(
    tmp_path: Path, *, window: int, threshold: int, low_water: int, tail: int, surface: int
) -> None:
    """Threshold 0.8 of the window, low water 0.69 of that, tail 0.16 of the window: each below the one before."""
    file = tmp_path / "carryon.yaml"
    file.write_text(f"models:\n  - {{model: m, context_window: {window}}}\n")
    assert window > threshold > low_water > tail >= 1
    done = run("check", file)
    numbers = f"threshold {threshold:,}, low_water {low_water:,}, tail {tail:,}, reserve 0, surface {surface:,}"
    assert f"window {window:,} tokens (total, yaml)\n           {numbers}" in done.out
    found = json.loads(run("check", "--json", file).out)["policies"][0]["limits"]
    assert [found[name] for name in ("window", "threshold", "low_water", "tail")] == [
        window,
        threshold,
        low_water,
        tail,
    ]


def test_mistakes_are_json_where_json_was_asked_for(tmp_path: Path) -> None:
    """All of them, with the fields that the text has; still exit 2."""
    file = tmp_path / "carryon.yaml"
    file.write_text("listen:\n  prot: 1\nredis: {timeout: 5}\n")
    done = run("check", "--json", file)
    assert (done.code, done.err) == (2, "")
    first, second = json.loads(done.out)["mistakes"]
    assert first == {
        "file": str(file),
        "line": 2,
        "key": "listen.prot",
        "message": "is not a key of the configuration",
        "cure": "write port, or remove it",
    }
    assert (second["key"], second["line"]) == ("redis.timeout", 3)
    absent = json.loads(run("check", "--json", tmp_path / "absent.yaml").out)["mistakes"]
    assert [(one["file"], one["line"], one["key"]) for one in absent] == [(str(tmp_path / "absent.yaml"), None, "")]


def test_what_a_policy_says_otherwise_is_spelled_as_a_file_spells_it(tmp_path: Path) -> None:
    """Key by key, against the defaults as they ship; a threshold only where no window turns it into tokens."""
    file = tmp_path / "carryon.yaml"
    file.write_text(
        "defaults: {summary: {method: outline}}\n"
        "models:\n"
        "  - {model: m, threshold_ratio: 0.5, auto: false, summary: {timeout: 10s}, pins: {patterns: [x]}}\n"
        "  - {model: n, threshold_ratio: 0.5, context_window: 4096, prune: {exempt_tools: [t]}}\n"
        "  - {model: o, like: gpt-4o}\n"
    )
    rows = run("check", file).out.split("model      openai / ")[1:]
    assert [row.splitlines()[-1].strip() for row in rows] == [
        'auto false, threshold_ratio 0.5, summary.method outline, summary.timeout 10s, pins.patterns ["x"]',
        'summary.method outline, prune.exempt_tools ["t"]',
        "like gpt-4o, summary.method outline",
        "summary.method outline",
    ]


_BUDGETS = st.fixed_dictionaries(
    {},
    optional={
        "threshold_ratio": st.floats(0.05, 1.0) | st.sampled_from([0.05, 0.8, 1.0]),
        "threshold_tokens": st.integers(64, 300_000),
        "retain_ratio": st.floats(0.001, 0.999) | st.sampled_from([0.001, 0.16, 0.999]),
        "retain_tokens": st.integers(1, 300_000),
        "reserve_output": st.sampled_from(["auto", "off"]) | st.integers(0, 300_000),
        "window_kind": st.sampled_from(["input", "total"]),
        "context_window": st.integers(1024, 1_000_000) | st.sampled_from([1024, 2048, 8192, 200_000]),
    },
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    defaults=_BUDGETS, entry=_BUDGETS, window=st.integers(1024, 1_000_000),
    output=st.none() | st.integers(0, 2_000_000), adds=st.booleans(),
)  # fmt: skip
def test_a_configuration_is_refused_with_a_reason_or_its_numbers_are_in_order(
    tmp_path: Path, *, defaults: dict[str, Any], entry: dict[str, Any], window: int, output: int | None, adds: bool
) -> None:
    """For every legal ratio, window and requested output: window, threshold, low water, tail, at least one token."""
    file = tmp_path / "carryon.yaml"
    file.write_text(json.dumps({"defaults": defaults, "models": [{"model": "m", **entry}]}))
    refused: tuple[Mistake, ...] = ()
    try:
        found = load(file, {})
    except ConfigError as error:
        refused = error.mistakes
    told = {mistake.key.split(".")[-1] for mistake in refused}
    assert told <= {"retain_ratio", "retain_tokens", "threshold_tokens"}
    assert all(mistake.line and mistake.cure for mistake in refused)
    if refused:
        return
    rows = [row["limits"] for row in describe(found)["policies"] if row["limits"]]
    for model in ("m", "other"):
        policy = resolve(found, "openai", model)
        made = limits(
            policy,
            window=policy.window or window,
            kind=policy.window_kind or "total",
            requested=output,
            adds_output=adds,
        )
        rows.append({name: getattr(made, name) for name in ("window", "threshold", "low_water", "tail", "reserve")})
    for row in rows:
        assert row["window"] >= row["threshold"] > row["low_water"] > row["tail"] >= 1
        assert row["threshold"] + row["reserve"] <= row["window"]
