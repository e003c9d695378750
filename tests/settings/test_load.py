"""Loading: what stands over what, and the ways to get it wrong (more of them, by the command: `tests/e2e`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from proxy.errors import ConfigError, Mistake
from proxy.settings import Settings, load
from proxy.settings.load import located
from proxy.settings.rules import MEMBERS

CONFIG = Path(__file__).parents[2] / "config"
SECRET = "hunter2hunter2hunter2"

#: What is written, the line and key that must be named, words of the message, words of the cure.
MISTAKES: list[tuple[str, int, str, str, str]] = [
    ("listn: {}\n", 1, "listn", "not a key", "write listen"),
    ("listen:\n  prot: 1\n", 2, "listen.prot", "not a key", "write port"),
    ("listen:\n  zzz: 1\n", 2, "listen.zzz", "not a key", "the keys here are host, port"),
    ("listen:\n  port: 1\n  port: 2\n", 3, "listen.port", "written twice", "keep one"),
    ("listen:\n  port: many\n", 2, "listen.port", "not a whole number", "whole number"),
    ("listen:\n  port: 70000\n", 2, "listen.port", "more than 65535", "smaller number"),
    ("listen:\n  port: -1\n", 2, "listen.port", "less than 0", "larger number"),
    ("listen:\n  max_body: 64\n", 2, "listen.max_body", "64 has no unit", "64MiB"),
    ("listen:\n  max_body: 64 parsecs\n", 2, "listen.max_body", "parsecs is not a unit", "64MiB"),
    ("listen:\n  max_body: 2GiB\n", 2, "listen.max_body", "above listen.max_inflight_bytes", "raise"),
    ("listen:\n  workers: 2\n", 2, "listen.workers", "not in this version", "replicas"),
    ("window: 4k\n", 1, "window", "not a key", "write context_window, in defaults or in an entry of models"),
    ("timeout: 4s\n", 1, "timeout", "not a key", "write timeouts, or remove it"),
    ("listen: 8787\n", 1, "listen", "not a mapping", "write a mapping"),
    ("admin:\n  port: 8787\n", 2, "admin.port", "also listen.port", "port of its own"),
    ("admin:\n  token: abc\n", 2, "admin.token", "shorter than 16", "openssl rand -hex 32"),
    ("admin:\n  token: a token of two lines\n", 2, "admin.token", "no header can carry", "openssl rand -hex 32"),
    ("admin:\n  hosts: ['http://a.example']\n", 2, "admin.hosts[0]", "neither a name nor", "name alone"),
    ("admin:\n  hosts: ['a.example:80']\n", 2, "admin.hosts[0]", "neither a name nor", "admin.example.com"),
    ("admin:\n  hosts: ['*']\n", 2, "admin.hosts[0]", "neither a name nor", "name alone"),
    ("admin:\n  hosts: a.example\n", 2, "admin.hosts", "not a list", "list"),
    ("admin:\n  show_text: 1\n", 2, "admin.show_text", "a number where yes or no", "true or false"),
    ("encryption_keys: [abc]\n", 1, "encryption_keys[0]", "shorter than 16", "openssl rand -hex 32"),
    ("secret: short\n", 1, "secret", "shorter than 16", "openssl rand -hex 32"),
    ("secret: 12345678901234567890\n", 1, "secret", "is not text", "in quotes"),
    ("tenant:\n  by: header\n", 2, "tenant.header", "required with tenant.by: header", "name the header"),
    ("tenant:\n  header: X-Team\n", 2, "tenant.header", "needs tenant.by: header", "tenant.by: header"),
    ("tenant:\n  by: cookie\n", 2, "tenant.by", "known here", "choose one of 'credential', 'jwt', 'header' or 'none'"),
    ("tenant: {by: header, header: 'X Team'}\n", 1, "tenant.header", "not the name of a header", "X-Team-Id"),
    ("redis:\n  url: redis://host\n", 2, "secret", "required with redis.url", "openssl rand -hex 32"),
    ("redis:\n  url: redis+sentinel://host\n", 2, "redis.url", "not in this version", "redis://host"),
    ("redis:\n  url: redis+cluster://host\n", 2, "redis.url", "not in this version", "redis://host"),
    ("redis:\n  url: http://host\n", 2, "redis.url", "does not begin with redis://", "redis://host"),
    ("redis:\n  timeout: 150\n", 2, "redis.timeout", "150 has no unit", "150ms"),
    ("redis:\n  ttl: 60s\n", 2, "redis.ttl", "shorter than", "7d"),
    ("redis:\n  durability: full\n", 2, "redis.durability", "known here", "'auto', 'memory', 'aof' or 'replica'"),
    ("upstreams: {}\n", 1, "upstreams", "is empty", "name at least one"),
    ("upstreams:\n  a: host/v1\n", 2, "upstreams.a.base_url", "does not begin with http", "https://api.example.com/v1"),
    ("upstreams:\n  a: {serves: [m]}\n", 2, "upstreams.a.base_url", "required", "write it"),
    (f"upstreams:\n  a: http://u:{SECRET}@h\n", 2, "upstreams.a.base_url", "holds a credential", "api_key"),
    ("upstreams:\n  a: http://h/v1?x=1\n", 2, "upstreams.a.base_url", "query", "scheme, host and path"),
    ("upstreams:\n  a b: http://h\n", 2, "upstreams.a b", "not a name", "letters"),
    ("upstreams:\n  a:\n    base_url: http://h\n    overflow_patterns:\n      - 'ok'\n      - '(no'\n", 6,
     "upstreams.a.overflow_patterns[1]", "not a regular expression", "single quotes"),
    ("upstreams:\n  a:\n    base_url: http://h\n    serves: gpt\n", 4,
     "upstreams.a.serves", "not a list", "write a list"),
    ("upstreams:\n  a:\n    base_url: http://h\n    ca_file: /nothing.pem\n", 4,
     "upstreams.a.ca_file", "names no file", "PEM"),
    ("upstreams:\n  a:\n    base_url: http://h\n    proxy: socks5://p\n", 4,
     "upstreams.a.proxy", "not an http:// URL", "http://"),
    ("upstreams:\n  a:\n    base_url: http://h\n    inject_paths: [audio]\n", 4,
     "upstreams.a.inject_paths[0]", "right form", "begins with /"),
    (f"listen: {{host: 0.0.0.0}}\nupstreams:\n  a:\n    base_url: http://h\n    api_key: {SECRET}\n", 5,
     "upstreams.a.api_key", "lent to anybody", "client_keys"),
    ("upstreams:\n  a:\n    base_url: http://h\n    headers:\n      'x y': b\n", 5,
     "upstreams.a.headers.x y", "name of a header", "X-"),
    ("upstreams:\n  a:\n    base_url: http://h\n    headers:\n      Host: b\n", 5,
     "upstreams.a.headers.Host", "made anew", "remove"),
    ("upstreams:\n  a:\n    base_url: http://h\n    headers:\n      X-Api-Key: b\n", 5,
     "upstreams.a.headers.X-Api-Key", "on every path", "api_key"),
    ("upstreams:\n  a:\n    base_url: http://h\n    api_key_header: connection\n", 4,
     "upstreams.a.api_key_header", "made anew", "auto"),
    ("client_keys:\n  - {name: a, sha256: abc}\n", 2, "client_keys[0].sha256", "right form", "sha256sum"),
    ((f"client_keys:\n  - {{name: a, sha256: '{'0' * 64}'}}\n  - {{name: a, sha256: '{'1' * 64}'}}\n"
      "upstreams:\n  a: {base_url: http://a, api_key: k}\n"), 3,
     "client_keys[1].name", "listed twice", "keep one"),
    ("defaults:\n  retain_ratio: 0.9\n", 2,
     "defaults.retain_ratio", "0.9 is not below threshold_ratio 0.8", "lower it"),
    ("defaults:\n  threshold_ratio: 1.5\n", 2, "defaults.threshold_ratio", "more than 1", "smaller"),
    ("defaults:\n  threshold_tokens: 5000\n  retain_tokens: 6000\n", 3,
     "defaults.retain_tokens", "6000 is not below", "lower"),
    ("defaults:\n  max_overflow_retries: -1\n", 2, "defaults.max_overflow_retries", "less than 0", "larger"),
    ("defaults:\n  reserve_output: half\n", 2, "defaults.reserve_output", "neither auto nor off", "auto, off"),
    ("defaults:\n  auto: maybe\n", 2, "defaults.auto", "neither true nor false", "true or false"),
    ("defaults:\n  context_window: 100\n", 2, "defaults.context_window", "less than 1024", "larger"),
    ("defaults:\n  compact_on_payload_too_large: true\n", 2,
     "defaults.compact_on_payload_too_large", "not in this version", "false"),
    ("models:\n  - model: m\n    summary:\n      max_concurrent: 2\n", 4,
     "models[0].summary.max_concurrent", "for the process", "defaults"),
    ("defaults:\n  summary:\n    upstream: openai\n", 3,
     "summary.model", "required with summary.upstream", "name the model"),
    ("models:\n  - model: m\n    summary:\n      upstream: openai\n", 4,
     "summary.model", "required with summary.upstream", "name the model"),
    ("defaults:\n  summary:\n    model: small\n    upstream: cheap\n", 4,
     "defaults.summary.upstream", "no upstream cheap", "openai"),
    ("defaults:\n  summary:\n    model: ''\n", 3, "defaults.summary.model", "is empty", "a value"),
    ("defaults:\n  summary:\n    timeout: 30\n", 3, "defaults.summary.timeout", "30 has no unit", "10s"),
    ("defaults:\n  prune:\n    threshold_chars: 4096\n", 3, "defaults.prune.threshold_chars", "not below", "raise"),
    ("defaults:\n  pins:\n    patterns: ['[']\n", 3, "defaults.pins.patterns[0]", "regular expression", "quotes"),
    ("models:\n  - {model: m}\n  - {model: m, auto: false}\n", 3,
     "models[1]", "matches the same as models[0]", "one entry"),
    ("models:\n  - {upstream: local, auto: false}\n", 2, "models[0].upstream", "no upstream local", "openai"),
    ("models:\n  - model: m\n    like: n\n    context_window: 8192\n", 3, "models[0].like", "both name", "keep one"),
    ("models:\n  - {model: m, threshold_ratio: 0.15}\n", 2, "models[0].retain_ratio", "0.16 is not below", "lower it"),
    ("models:\n  - {model: 'a*', retain_ratio: 0.5}\n  - {upstream: openai, threshold_ratio: 0.4}\n", 3,
     "models[1].retain_ratio", "0.5 is not below threshold_ratio 0.4", "lower it"),
    ("models:\n  - {model: m, context_window: 8192, threshold_tokens: 9000}\n", 2, "models[0].threshold_tokens",
     "9000 is above context_window 8192", "below the window"),
    ("models:\n  - {modle: m}\n", 2, "models[0].modle", "not a key", "write model"),
    ("models: {model: m}\n", 1, "models", "not a list", "write a list"),
    ("log:\n  level: loud\n", 2, "log.level", "known here", "'debug', 'info', 'warning' or 'error'"),
    ("compactor: 'my thing'\n", 1, "compactor", "right form", "entry point"),
    ("compactor: nobodys\n", 1, "compactor", "no installed package offers a compactor named nobodys", "write builtin"),
    ("secret: env:NO_SUCH_VARIABLE\n", 1, "secret", "NO_SUCH_VARIABLE is not set", "set NO_SUCH_VARIABLE"),
    ("secret: 'env:not a name'\n", 1, "secret", "not the name of a variable", "env:NAME"),
    ("secret: file:/no/such/file\n", 1, "secret", "/no/such/file cannot be read", "readable file"),
    ("timeouts:\n  drain: env:HIDDEN\n", 2, "timeouts.drain", "value of env:HIDDEN", "unit"),
    ("hold: {time: 0s}\n", 1, "hold.time", "more than nothing", "10s"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "cure"), MISTAKES, ids=[m[2] + ": " + m[3] for m in MISTAKES]
)
def test_a_mistake_names_file_line_key_and_cure(
    tmp_path: Path, text: str, line: int, key: str, message: str, cure: str
) -> None:
    """And never shows a secret."""
    file = tmp_path / "carryon.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        load(file, {"HIDDEN": SECRET})
    found = refusal.value
    assert (found.file, found.line, found.key) == (str(file), line, key)
    assert message in found.message
    assert cure in found.cure
    assert str(found).startswith(f"{file}:{line}: {key}: ")
    assert f"cure: {found.cure}" in str(found)
    assert SECRET not in str(found)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """One start is enough to find them."""
    file = tmp_path / "c.yaml"
    file.write_text("listen: {prot: 1}\nlog: {level: loud}\n")
    with pytest.raises(ConfigError) as refusal:
        load(file)
    assert [m.key for m in refusal.value.mistakes] == ["listen.prot", "log.level"]


@pytest.mark.parametrize(
    ("environ", "place", "key"),
    [
        ({"CARRYON_LISTEN_PORT": "9000"}, "CARRYON_LISTEN_PORT", "listen_port"),
        ({"CARRYON_LISTEN__PROT": "9000"}, "CARRYON_LISTEN__PROT", "listen.prot"),
        ({"CARRYON_LISTEN__PORT": "x"}, "CARRYON_LISTEN__PORT", "listen.port"),
        ({"CARRYON_REDIS__TIMEOUT": "5"}, "CARRYON_REDIS__TIMEOUT", "redis.timeout"),
        ({"CARRYON_MODELS__0__MODEL": "m"}, "CARRYON_MODELS__0__MODEL", "models"),
        ({"CARRYON_SECRET": "env:NOTHING"}, "CARRYON_SECRET", "secret"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(environ: dict[str, str], place: str, key: str) -> None:
    """An unknown variable is a mistake, never ignored."""
    with pytest.raises(ConfigError) as refusal:
        load(None, environ)
    assert (refusal.value.file, refusal.value.key, refusal.value.line) == (place, key, None)


def test_a_misspelt_variable_is_told_how_nesting_is_written() -> None:
    """One underscore is the usual mistake."""
    with pytest.raises(ConfigError, match="nesting is written __"):
        load(None, {"CARRYON_LISTEN_PORT": "9000"})


def test_the_command_line_stands_over_variables_and_they_over_the_file(tmp_path: Path) -> None:
    """Each key by itself."""
    file = tmp_path / "c.yaml"
    file.write_text("listen: {host: 127.0.0.2, port: 1, workers: 1}\nlog: {level: error}\n")
    environ = {"CARRYON_LISTEN__PORT": "2", "CARRYON_LOG__LEVEL": "warning"}
    settings = load(file, environ, {"listen.port": 3, "listen.host": None})
    assert (settings.listen.host, settings.listen.port, settings.log.level) == ("127.0.0.2", 3, "warning")


def test_a_variable_may_name_the_file_and_the_command_line_another(tmp_path: Path) -> None:
    """A named file that is missing is a mistake."""
    for name, port in (("a", 1), ("b", 2)):
        (tmp_path / name).write_text(f"listen: {{port: {port}}}\n")
    environ = {"CARRYON_CONFIG": str(tmp_path / "a")}
    assert load(None, environ).listen.port == 1
    assert load(tmp_path / "b", environ).listen.port == 2
    with pytest.raises(ConfigError, match="cannot be read"):
        load(None, {"CARRYON_CONFIG": str(tmp_path / "c")})


def test_a_variable_adds_a_key_to_an_upstream_written_as_a_plain_url(tmp_path: Path) -> None:
    """The URL stays, and the order of the file with it."""
    file = tmp_path / "c.yaml"
    file.write_text("upstreams:\n  my-local: http://h:1/v1\n  b: http://b\n")
    settings = load(file, {"CARRYON_UPSTREAMS__MY_LOCAL__API_KEY": "k"})
    key = settings.upstreams["my-local"].api_key
    assert key is not None
    assert key.get_secret_value() == "k"
    assert settings.default_upstream.base_url == "http://h:1/v1"


def test_any_value_may_come_from_a_variable_or_a_file(tmp_path: Path) -> None:
    """Numbers too; the newline at a file's end is not part of it."""
    (tmp_path / "key").write_text(SECRET + "\n")
    file = tmp_path / "c.yaml"
    file.write_text(
        f"secret: file:{tmp_path}/key\nlisten: {{port: env:MY_PORT}}\nmodels: [{{model: env:M, auto: false}}]\n"
    )
    settings = load(file, {"MY_PORT": "9", "M": "gpt"})
    assert settings.secret is not None
    assert settings.secret.get_secret_value() == SECRET
    assert (settings.listen.port, settings.models[0].model) == (9, "gpt")


def test_a_value_from_a_variable_is_not_shown_in_a_mistake() -> None:
    """It may be a secret in the wrong place; its name is enough."""
    with pytest.raises(ConfigError, match=r"… has no unit \(value of env:PIN\)") as refusal:
        load(None, {"PIN": "31337", "CARRYON_REDIS__TTL": "env:PIN"})
    assert "31337" not in str(refusal.value)


def test_an_upstream_of_the_command_line_is_the_default_one(tmp_path: Path) -> None:
    """Those of the file stay reachable by name."""
    file = tmp_path / "c.yaml"
    file.write_text("upstreams: {a: http://a}\n")
    settings = load(file, {}, {"upstream": "http://127.0.0.1:8080"})
    assert settings.default_upstream.base_url == "http://127.0.0.1:8080/v1"
    assert list(settings.upstreams) == ["default", "a"]
    with pytest.raises(ConfigError, match=r"--upstream: upstreams\.default\.base_url: does not begin"):
        load(None, {}, {"upstream": "localhost:8080"})


def test_a_window_of_the_command_line_holds_for_every_model(tmp_path: Path) -> None:
    """Whatever the file says of some."""
    file = tmp_path / "c.yaml"
    file.write_text("models: [{model: m, context_window: 9999, auto: false}, {model: n, like: o}]\n")
    settings = load(file, {}, {"window": 4096})
    assert settings.defaults.context_window == 4096
    assert [(e.context_window, e.like) for e in settings.models] == [(None, None), (None, None)]
    assert settings.models[0].auto is False


def test_the_shipped_file_says_what_is_said_without_it() -> None:
    """Every default in it is the default."""
    assert load(CONFIG / "carryon.yaml") == Settings() == load()


def test_every_key_stands_in_the_shipped_file() -> None:
    """A new key brings its line and its comment."""
    written = yaml.safe_load((CONFIG / "carryon.yaml").read_text(encoding="utf-8"))

    def missing(shape: Any, mapping: dict[str, Any], path: str) -> list[str]:
        absent = [f"{path}{name}" for name in shape.model_fields if name not in mapping]
        for name, field in shape.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and name in mapping:
                absent += missing(field.annotation, mapping[name], f"{path}{name}.")
        return absent

    assert missing(Settings, written, "") == []
    assert missing(MEMBERS["upstreams"], written["upstreams"]["openai"], "upstreams.openai.") == []


@pytest.mark.parametrize("file", sorted((CONFIG / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_loads(file: Path) -> None:
    """As shipped, with the variables that it names."""
    assert load(file, {"VLLM_API_KEY": "k"}) != Settings()


def test_a_missing_file_is_cured_where_it_was_named(tmp_path: Path) -> None:
    """`carryon check` knows no `--config`; a variable may be forgotten."""
    with pytest.raises(ConfigError) as named:
        load(tmp_path / "nope.yaml")
    assert named.value.cure == "name an existing, readable file"
    with pytest.raises(ConfigError) as inherited:
        load(None, {"CARRYON_CONFIG": str(tmp_path / "nope.yaml")})
    assert inherited.value.cure == "let CARRYON_CONFIG name an existing, readable file"


def test_a_missing_value_hides_no_other_mistake(tmp_path: Path) -> None:
    """What it stands for is judged no further, all else is; contradictions wait until every key is good."""
    file = tmp_path / "c.yaml"
    file.write_text("listen: {port: env:NOT_SET}\nlog: {level: loud}\ndefaults: {retain_ratio: 0.9}\n")
    with pytest.raises(ConfigError) as refusal:
        load(file)
    assert [m.key for m in refusal.value.mistakes] == ["listen.port", "log.level"]


def test_a_value_from_a_variable_is_not_shown_by_a_contradiction_either(tmp_path: Path) -> None:
    """Wherever in the entry it stands."""
    file = tmp_path / "c.yaml"
    file.write_text("models:\n  - {upstream: env:NAME, auto: false}\n")
    with pytest.raises(ConfigError, match=r"no upstream … \(value of env:NAME\)") as refusal:
        load(file, {"NAME": SECRET})
    assert SECRET not in str(refusal.value)


def test_a_key_at_the_wrong_level_is_told_where_it_stands() -> None:
    """It is known, only not here."""
    for variable, cure in (
        ("CARRYON_CONTEXT_WINDOW", "move it: it stands in defaults or in an entry of models"),
        ("CARRYON_MAX_BODY", "move it: it stands in listen"),
        ("CARRYON_DEFAULTS__MAX_CONCURRENT", "move it: it stands in defaults.summary"),
    ):
        with pytest.raises(ConfigError) as refusal:
            load(None, {variable: "1"})
        assert refusal.value.cure == f"{cure}; nesting is written __"


def test_what_the_start_finds_is_given_its_place(tmp_path: Path) -> None:
    """The file with its line, the variable, the option; nothing for a default."""
    file = tmp_path / "c.yaml"
    file.write_text("listen:\n  host: 127.0.0.1\nupstreams:\n  a: {base_url: 'http://a', ca_file: /x}\n")
    environ, given = {"CARRYON_SECRET": "s" * 32}, {"listen.port": 1}
    keys = ("listen.host", "listen.port", "secret", "upstreams.*.ca_file", "compactor")
    found = located(ConfigError(*(Mistake(key=key, message="m", cure="c") for key in keys)), file, environ, given)
    assert [(m.file, m.line) for m in found.mistakes] == [
        (str(file), 2), ("--port", None), ("CARRYON_SECRET", None), (str(file), 3), ("", None),
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [{"upstreams": ["http://a"]}, {"defaults": [1]}, {"models": 5}, {"upstreams": 1}])
def test_the_command_line_over_a_file_of_another_shape_is_the_files_mistake(tmp_path: Path, wrong: Any) -> None:
    """Not an exception of ours."""
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(wrong))
    with pytest.raises(ConfigError, match=r"is not a (list|mapping)"):
        load(file, {}, {"window": 4096, "upstream": "http://b"})
