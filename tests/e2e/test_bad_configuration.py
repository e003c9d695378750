"""Bad configuration, by the command as it is called: each mistake has its place, its key and its cure, and ends with 2.

The table goes through `carryon check` and `carryon serve` in this process; one of each kind through the
installed command, where nothing may be left behind. `tests/settings` holds the edges of single rules.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import proxy.commands.serve
from proxy.cli import main
from proxy.errors import ConfigError
from proxy.settings import Settings, load
from proxy.settings.rules import MEMBERS
from tests.e2e.carryon import command
from tests.store.servers import Server
from tests.terminal import PATIENCE, environment

#: Stands wherever a secret may stand; no message may hold it.
SECRET = "hunter2hunter2hunter2"
_FILE = "FILE"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One mistake: what is written, and what must be said of it. `place` FILE is the file itself."""

    text: str | bytes
    line: int | None = None
    key: str = ""
    says: str
    cure: str
    environ: Mapping[str, str] = field(default_factory=dict)
    place: str = _FILE


def _in(text: str | bytes, line: int | None, key: str, says: str, cure: str) -> Case:
    return Case(text=text, line=line, key=key, says=says, cure=cure)


def _by(variable: str, value: str, key: str, says: str, cure: str) -> Case:
    return Case(text="{}\n", environ={variable: value}, place=variable, key=key, says=says, cure=cure)


def _up(line: str) -> str:
    return f"upstreams:\n  a:\n    base_url: http://h\n    {line}\n"


def _client(digit: str) -> str:
    return f"  - {{name: a, sha256: '{digit * 64}'}}\n"


def _redis(url: str) -> str:
    return f"secret: {SECRET}\nredis:\n  url: '{url}'\n"


_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 12)
)
_NO_KEY, _NO_URL = "is not a key of the configuration", "https://api.example.com/v1"
_MODEL = "models:\n  - model: m\n    "

CASES: dict[str, Case] = {
    # --- what is no YAML, or YAML of another shape ---
    "a tab for indentation": _in("listen:\n\tport: 1\n", 2, "", "is not YAML at column 1", "indent with spaces"),
    "bad indentation": _in("listen:\n   port: 1\n  host: x\n", 3, "", "is not YAML at column 3", "same indentation"),
    "a quote that stays open": _in(f"log: {{}}\nsecret: '{SECRET}\n", 3, "", "it begins at line 2", "close the quote"),
    "a bracket that stays open": _in("listen: [\n", 2, "", "is not YAML", "cure"),
    "a colon in a value": _in(f"secret: a: {SECRET}\n", 1, "", "is not YAML at column 10", "holds a colon in quotes"),
    "a secret that looks like an alias": _in(f"secret: *{SECRET}\n", 1, "", "alias", "begins with * in quotes"),
    "a secret that looks like a tag": _in(f"secret: !{SECRET}\n", 1, "secret", "has a YAML tag", "in quotes"),
    "a tag of Python": _in("secret: !!python/object/apply:os.system [true]\n", 1, "secret", "has a YAML tag",
        "remove it"),
    "a tag of another program": _in("secret: !vault x\n", 1, "secret", "has a YAML tag", "env:NAME or file:/path"),
    "a tag that lies": _in(f"defaults: {{threshold_ratio: !!float {SECRET}}}\n", 1, "defaults.threshold_ratio",
                           "not what its tag says", "remove the tag"),
    "two documents": _in("log: {}\n---\nlog: {}\n", 2, "", "another document", "remove the line ---"),
    "a list": _in("# list\n- listen\n", 2, "", "is not a mapping", "write keys and values"),
    "a word": _in("8787\n", 1, "", "is not a mapping", "write keys and values"),
    "a key that is a list": _in("? [a]\n: 1\n", 1, "", "a key is not text", "write plain keys"),
    "a value that holds itself": _in("models: &a [*a]\n", 1, "models[0]", "holds itself", "remove the alias"),
    "a bomb of aliases": _in(_BOMB, 1, "a", "holds more than 20,000 values", "fewer aliases"),
    "deep nesting": _in(f"listen: {'{a: ' * 60}1{'}' * 60}\n", 1, "listen.a.a", "nested too deeply", "remove"),
    "very deep nesting": _in(f"listen: {'[' * 1000}\n", None, "", "nested too deeply", "remove the nesting"),
    "a huge file": _in("# " + "x" * 1_100_000, None, "", "larger than 1 MiB", "readable file"),
    "Latin-1": _in("secret: gehörtmirundniemandem\n".encode("latin-1"), None, "", "is not UTF-8",
        "save the file as UTF-8"),
    "UTF-16": _in("listen: {}\n".encode("utf-16"), None, "", "is not UTF-8", "save the file as UTF-8"),
    "a byte of zero": _in(b"log: {}\nlisten: \0\n", 2, "", "special character", "plain text"),
    # --- keys ---
    "a key twice": _in("listen:\n  port: 1\n  port: 2\n", 3, "listen.port", "first at line 2", "keep one"),
    "a section twice": _in("log: {}\nlisten: {}\nlog: {}\n", 3, "log", "first at line 1", "keep one"),
    "an unknown section": _in("listn: {}\n", 1, "listn", _NO_KEY, "write listen"),
    "an unknown key": _in("listen:\n  prot: 1\n", 2, "listen.prot", _NO_KEY, "write port"),
    "an unknown key of a key": _in("defaults:\n  summary:\n    metod: off\n", 3, "defaults.summary.metod", _NO_KEY,
        "method"),
    "an unknown key of an upstream": _in(_up("api_kye: x"), 4, "upstreams.a.api_kye", _NO_KEY, "write api_key"),
    "an unknown key of a model": _in("models:\n  - {modle: m}\n", 2, "models[0].modle", _NO_KEY, "write model"),
    "an unknown key of a client": _in("client_keys:\n  - {nmae: m}\n", 2, "client_keys[0].name", "required",
        "write it"),
    "a key at another level": _in("context_window: 8192\n", 1, "context_window", _NO_KEY,
        "stands in defaults or in an entry"),
    "after a byte order mark": _in("\ufefflisten: {prot: 1}\n", 1, "listen.prot", _NO_KEY, "write port"),
    "with Windows' line ends": _in("log: {}\r\nlisten:\r\n  prot: 1\r\n", 3, "listen.prot", _NO_KEY, "write port"),
    "a key that colours the terminal": _in('"\\e[31mred": 1\n', 1, "'\\x1b[31mred'", _NO_KEY, "remove it"),
    "a section with nothing in it": _in("listen:\n", 1, "listen", "holds nothing", "write its keys below it"),
    "a word for a section": _in("listen: 8787\n", 1, "listen", "is not a mapping", "write a mapping"),
    "a mapping for a list": _in("models: {model: m}\n", 1, "models", "is not a list", "write a list"),
    "a token that can be guessed": _in("admin: {token: abc}\n", 1, "admin.token", "shorter than 16", "openssl"),
    "a key named twice": _in(f"encryption_keys: [{SECRET}, {SECRET}]\n", 1, "encryption_keys", "a key twice", "once"),
    "workers, later": _in("listen: {workers: 4}\n", 1, "listen.workers", "not in this version", "more replicas"),
    # --- values ---
    "a time without a unit": _in("redis: {timeout: 30}\n", 1, "redis.timeout", "30 has no unit", "150ms"),
    "a time in words": _in("hold: {time: 30 sec}\n", 1, "hold.time", "sec is not a unit", "10s"),
    "a negative time": _in("hold: {time: -1s}\n", 1, "hold.time", "not an amount", "10s"),
    "a time that never ends": _in("timeouts: {drain: .inf}\n", 1, "timeouts.drain", "not an amount", "10s"),
    "a time of centuries": _in("redis: {ttl: 99999999d}\n", 1, "redis.ttl", "more than can be meant", "7d"),
    "no time at all": _in("timeouts: {connect: 0s}\n", 1, "timeouts.connect", "more than nothing", "10s"),
    "a size in a plural": _in("hold: {bytes: 64MBs}\n", 1, "hold.bytes", "MBs is not a unit", "64MiB"),
    "a size without a unit": _in("listen: {max_body: 64}\n", 1, "listen.max_body", "64 has no unit", "64MiB"),
    "yes for a number": _in("listen: {port: yes}\n", 1, "listen.port", "yes or no where a number", "write a number"),
    "one for yes": _in("defaults: {auto: 1}\n", 1, "defaults.auto", "a number where yes or no", "true or false"),
    "a port in another base": _in("listen: {port: 0x1F}\n", 1, "listen.port", "not a whole number", "whole number"),
    "a port of seconds": _in("listen: {port: 80:80}\n", 1, "listen.port", "not a whole number", "whole number"),
    "a port out of range": _in("listen: {port: 70000}\n", 1, "listen.port", "is more than 65535", "65535 or less"),
    "a number of a thousand digits": _in(f"listen: {{port: {'9' * 5000}}}\n", 1, "listen.port", "not a whole", "whole"),
    "no number": _in("defaults: {threshold_ratio: .nan}\n", 1, "defaults.threshold_ratio", "finite", "number"),
    "a number without an end": _in("defaults: {threshold_ratio: 1.0e+309}\n", 1, "defaults.threshold_ratio", "finite",
        "number"),
    "a ratio in percent": _in("defaults: {threshold_ratio: 80}\n", 1, "defaults.threshold_ratio", "more than 1",
        "1.0 or less"),
    "a window of nothing": _in(f"{_MODEL}context_window: 0\n", 3, "models[0].context_window", "less than 1024",
        "larger"),
    "a window in thousands": _in(f"{_MODEL}context_window: 128k\n", 3, "models[0].context_window", "whole",
        "whole number"),
    "a list for a reserve": _in("defaults: {reserve_output: [1]}\n", 1, "defaults.reserve_output", "neither",
        "auto, off"),
    "a word that is not known": _in("log: {level: loud}\n", 1, "log.level", "words known here", "'debug', 'info'"),
    "a number for a secret": _in("secret: 12345678901234567890\n", 1, "secret", "is not text", "in quotes"),
    "a secret that is too short": _in("secret: hunter2\n", 1, "secret", "shorter than 16", "openssl rand -hex 32"),
    "an address with its port": _in("listen: {host: '127.0.0.1:80'}\n", 1, "listen.host", "neither an address",
        "127.0.0.1"),
    "a directory in nobody's home": _in("state_dir: ~nobody-of-that-name/x\n", 1, "state_dir", "home of nobody",
        "whole"),
    # --- what comes from elsewhere ---
    "a variable that is not set": _in("secret: env:NOT_SET_ANYWHERE\n", 1, "secret", "NOT_SET_ANYWHERE is not set",
        "set NOT"),
    "a reference to nothing": _in("secret: 'env:'\n", 1, "secret", "not the name of a variable", "env:NAME"),
    "a file of a value that is missing": _in("secret: file:/missing\n", 1, "secret", "/missing cannot be read",
        "readable"),
    "a directory for a value": _in("secret: file:/\n", 1, "secret", "cannot be read: Is a directory", "readable file"),
    "an empty file for a value": _in(_up("api_key: file:/dev/null"), 4, "upstreams.a.api_key", "is empty",
        "write the value"),
    "a value that never ends": _in("secret: file:/dev/zero\n", 1, "secret", "a device", "readable file"),
    "half a character": _in('secret: "\\ud800aaaaaaaaaaaaaaaaaaaaa"\n', 1, "secret", "lone surrogate", "in UTF-8"),
    "half a character in a header": _in(_up('headers: {X-A: "\\udc00"}'), 4, "upstreams.a.headers.X-A",
        "lone surrogate", "in UTF-8"),
    "half a character in a list": _in('models:\n  - {model: m, prune: {exempt_tools: ["\\udfff"]}}\n', 2,
        "models[0].prune.exempt_tools[0]", "lone surrogate", "in UTF-8"),
    # --- upstreams ---
    "an upstream without a scheme": _in("upstreams: {a: 'localhost:8080'}\n", 1, "upstreams.a.base_url", "http://",
        _NO_URL),
    "an upstream by FTP": _in("upstreams: {a: 'ftp://h'}\n", 1, "upstreams.a.base_url", "does not begin", _NO_URL),
    "an upstream with a query": _in(f"upstreams: {{a: 'http://h?k={SECRET}'}}\n", 1, "upstreams.a.base_url", "query",
        _NO_URL),
    "an upstream with a credential": _in(f"upstreams: {{a: 'http://u:{SECRET}@h'}}\n", 1, "upstreams.a.base_url",
                                         "holds a credential", "api_key"),
    "an upstream's port": _in("upstreams: {a: 'http://h:99999'}\n", 1, "upstreams.a.base_url", "names a port", _NO_URL),
    "no upstream": _in("upstreams: {}\n", 1, "upstreams", "is empty", "name at least one"),
    "an unknown upstream": _in("models:\n  - {upstream: local}\n", 2, "models[0].upstream", "no upstream local",
        "openai"),
    "an empty key": _in(_up("api_key: ''"), 4, "upstreams.a.api_key", "is empty", "env:NAME"),
    "a key for everybody": _in(f"listen: {{host: 0.0.0.0}}\n{_up(f'api_key: {SECRET}')}", 5, "upstreams.a.api_key",
                               "lent to anybody", "list client_keys"),
    "a header with a line break": _in(_up(f'headers: {{X-A: "{SECRET}\\n"}}'), 4, "upstreams.a.headers.X-A",
        "line break",
                                      "one line"),
    "a pattern that does not compile": _in(_up("overflow_patterns: ['(']"), 4, "upstreams.a.overflow_patterns[0]",
                                           "not a regular expression", "single quotes"),
    "a pattern that takes forever": _in(_up("overflow_patterns: ['(a+)+$']"), 4, "upstreams.a.overflow_patterns[0]",
                                        "forever", "(a+)+ is a+"),
    "a pattern that matches all": _in(_up("overflow_patterns: ['.*']"), 4, "upstreams.a.overflow_patterns[0]",
                                      "every text", "must be there"),
    "a proxy with a broken address": _in(_up(f"proxy: 'http://u:{SECRET}@[::1'"), 4, "upstreams.a.proxy", "not a URL",
        "http://"),
    "a key's digest that is none": _in(f"client_keys:\n  - {{name: a, sha256: {SECRET}}}\n", 2, "client_keys[0].sha256",
                                       "right form", "sha256sum"),
    "client keys that guard nothing": _in(f"client_keys:\n{_client('0')}", 1, "client_keys", "guard nothing",
        "api_key"),
    "a header for no key": _in("upstreams:\n  a:\n    base_url: http://a\n    api_key_header: x-key\n", 4,
        "upstreams.a.api_key_header", "needs api_key", "add one"),
    "a client's name twice": _in(f"client_keys:\n{_client('0')}{_client('1')}"
                                 "upstreams:\n  a: {base_url: http://a, api_key: k}\n",
                                 3, "client_keys[1].name", "listed twice", "keep one"),
    # --- the store ---
    "a store without a secret": _in("redis:\n  url: redis://h\n", 2, "secret", "required with redis.url",
        "openssl rand"),
    "a store by HTTP": _in(_redis("http://h"), 3, "redis.url", "does not begin with redis://", "redis://host:6379/0"),
    "a store's port": _in(_redis(f"redis://:{SECRET}@h:99999/0"), 3, "redis.url", "names a port",
        "redis://host:6379/0"),
    "a store without a host": _in(_redis("redis:///0"), 3, "redis.url", "names no host", "redis://host:6379/0"),
    "a store's database": _in(_redis(f"redis://h/{SECRET}"), 3, "redis.url", "a database that is no number", "6379/0"),
    "a store's option": _in(_redis("redis://h?socket_timeout=1"), 3, "redis.url", "an option that is not known",
        "remove it"),
    "a socket by half its path": _in(_redis("unix://run/redis.sock"), 3, "redis.url", "whole path", "three slashes"),
    # --- what contradicts ---
    "a tail above the threshold": _in("defaults: {retain_ratio: 0.8}\n", 1, "defaults.retain_ratio", "not below",
        "lower it"),
    "a tail in tokens above the threshold": _in("defaults: {threshold_tokens: 5000, retain_tokens: 6000}\n", 1,
                                                "defaults.retain_tokens", "6000 is not below", "lower it"),
    "a threshold said in two ways": _in("defaults: {threshold_ratio: 0.5, threshold_tokens: 900}\n", 1,
                                        "defaults.threshold_tokens", "threshold_ratio both say it", "keep one"),
    "a window said in two ways": _in(f"{_MODEL}like: n\n    context_window: 8192\n", 3, "models[0].like", "both name",
        "keep one"),
    "a threshold above the window": _in(f"{_MODEL}context_window: 2048\n    threshold_tokens: 3000\n", 4,
                                        "models[0].threshold_tokens", "above context_window 2048", "below the window"),
    "a policy twice": _in("models:\n  - {upstream: openai, model: m}\n  - {upstream: openai, model: m}\n", 3,
        "models[1]",
                          "matches the same as models[0]", "one entry"),
    "one port for two doors": _in("listen: {port: 9, host: 0.0.0.0}\nadmin: {port: 9}\n", 2, "admin.port",
        "also listen.port",
                                  "port of its own"),
    "a gateway's header that is a credential": _in("tenant: {by: header, header: Authorization}\n", 1, "tenant.header",
                                                   "meaning of its own", "X-Team-Id"),
    # --- variables ---
    "an unknown variable": _by("CARRYON_LISTEN__PROT", "1", "listen.prot", _NO_KEY, "write port"),
    "a variable with one underscore": _by("CARRYON_LISTEN_PORT", "1", "listen_port", _NO_KEY, "nesting is written __"),
    "a variable of the wrong kind": _by("CARRYON_LISTEN__PORT", SECRET, "listen.port", "not a whole number", "whole"),
    "a variable without a unit": _by("CARRYON_TIMEOUTS__DRAIN", "30", "timeouts.drain", "30 has no unit", "10s"),
    "a variable that nests too far": _by("CARRYON_LISTEN__PORT__X", "1", "listen.port", "not a whole number", "whole"),
    "a variable that is no list": _by("CARRYON_MODELS", f"[{SECRET}", "models", "is not a list or mapping", "as JSON"),
    "a variable that is a bomb": _by("CARRYON_MODELS", "[" * 1000, "models", "nested too deeply", "remove"),
    "a variable with a key twice": _by("CARRYON_MODELS", "[{model: m, model: n}]", "models[0].model", "twice",
        "keep one"),
    "a variable with a tag": _by("CARRYON_SECRET", "[!!python/name:os.system x]", "secret[0]", "has a YAML tag",
        "remove it"),
    "a key by two variables": Case(text="{}\n", environ={"CARRYON_LOG": "{level: info}", "CARRYON_LOG__LEVEL": "info"},
                                   place="CARRYON_LOG__LEVEL", key="log.level", says="as a whole and in part",
                                   cure="keep one"),
    "an upstream's variable that may mean two": Case(
        text="upstreams: {my-a: 'http://h', my_a: 'http://h'}\n", environ={"CARRYON_UPSTREAMS__MY_A__API_KEY": SECRET},
        place="CARRYON_UPSTREAMS__MY_A__API_KEY", says="may mean any of", cure="names that differ"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have settings of their own, and a configuration that is good would be served."""
    for name in [name for name in os.environ if name.startswith("CARRYON_")]:
        monkeypatch.delenv(name)

    def started(*_: object) -> None:
        raise AssertionError("a bad configuration was served")

    monkeypatch.setattr(proxy.commands.serve, "serve", started)


def _block(said: str, place: str, case: Case) -> None:
    """One readable block: where, what, cure; nothing of a secret and nothing that a terminal would obey."""
    where = f"{place}:{case.line}" if case.line else place
    first, *rest = said.removesuffix("\n").split("\n")
    assert first.startswith(f"carryon: {where}: {case.key}"), said
    assert case.says in first
    assert rest[0].startswith("  cure: ")
    assert case.cure in rest[0] + "cure"
    assert all(line.isprintable() for line in (first, *rest)), said
    assert [line.startswith("  cure: ") for line in rest] == [number % 2 == 0 for number in range(len(rest))], said
    assert SECRET not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", [["check"], ["serve", "--config"]], ids=["check", "serve"])
@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_told_with_place_key_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, name: str, words: list[str]
) -> None:
    """By both commands that read a file, with exit code 2 and nothing on standard output."""
    case, file = CASES[name], tmp_path / "carryon.yaml"
    file.write_bytes(case.text.encode() if isinstance(case.text, str) else case.text)
    for variable, value in case.environ.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "argv", ["carryon", *words, str(file)])
    with pytest.raises(SystemExit) as end:
        main()
    out, said = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    _block(said, str(file) if case.place == _FILE else case.place, case)


def test_the_table_is_as_large_as_it_says() -> None:
    """At least sixty kinds; the number is printed."""
    print(f"\nbad configurations tried: {len(CASES)}, each by `carryon check` and `carryon serve`")
    assert len(CASES) >= 60


def test_what_is_wrong_in_one_file_is_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that is missing hides no other mistake; hundreds are counted, not printed."""
    file = tmp_path / "carryon.yaml"
    file.write_text("secret: env:NOT_SET\nlisten: {port: yes}\nlog: {level: loud}\n" + "hold: {time: 1}\n")
    monkeypatch.setattr(sys, "argv", ["carryon", "check", str(file)])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert [line for line in said.splitlines() if "cure" not in line] == [
        f"carryon: {file}:1: secret: the environment variable NOT_SET is not set",
        f"{file}:2: listen.port: is yes or no where a number is wanted",
        f"{file}:4: hold.time: 1 has no unit",
        f"{file}:3: log.level: is not one of the words known here",
    ]
    file.write_text("models:\n" + "  - {zzz: 1}\n" * 300)
    with pytest.raises(SystemExit):
        main()
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[-1]) == (41, "and 280 more; mend these first")


# --- the installed command ------------------------------------------------------------------------------


def _called(*words: str | Path, environ: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and words of the installed command; it prints nothing on standard output when it refuses."""
    done = subprocess.run(
        [*command(), *map(str, words)],
        capture_output=True,
        cwd="/",
        env=environment(environ),
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A state directory, and an admin port of its own; no server may work in it at the end."""
    yield {"CARRYON_STATE_DIR": str(tmp_path / "state"), "CARRYON_ADMIN__PORT": "0"}
    marks = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _holds(path, os.fsencode(tmp_path / "state"))]
    assert marks == []


def _holds(path: Path, mark: bytes) -> bool:
    try:
        return mark in path.read_bytes()
    except OSError:
        return False


INSTALLED = (
    "a tab for indentation", "a bomb of aliases", "a secret that looks like an alias", "an unknown key", "a key twice",
    "a time without a unit", "one for yes", "a variable that is not set", "an upstream with a credential",
    "a store's port", "a tail above the threshold", "a policy twice",
)  # fmt: skip


@pytest.mark.parametrize("name", INSTALLED)
def test_the_installed_command_says_the_same_and_leaves_nothing_behind(
    tmp_path: Path, state: dict[str, str], free_port: int, name: str
) -> None:
    """No listener, no server of the store, no traceback."""
    case, file = CASES[name], tmp_path / "carryon.yaml"
    file.write_text(str(case.text), encoding="utf-8")
    code, said = _called("serve", "--config", file, "--port", str(free_port), environ={**state, **case.environ})
    assert code == 2
    _block(said, str(file), case)
    with socket.socket() as door:
        assert door.connect_ex(("127.0.0.1", free_port)) != 0
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("named", "says"),
    [("nothing.yaml", "No such file or directory"), ("", "Is a directory"), ("carryon.yaml/x", "Not a directory")],
    ids=["missing", "directory", "below a file"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, state: dict[str, str], named: str, says: str) -> None:
    """By all three ways to name one; a named file is never replaced by the defaults."""
    (tmp_path / "carryon.yaml").touch()
    file = str(tmp_path / named)
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["check", file], {}), (["serve", "--config", file], {}), (["serve"], {"CARRYON_CONFIG": file}),
    ]  # fmt: skip
    for words, environ in ways:
        code, said = _called(*words, environ={**state, **environ})
        assert (code, said.split("\n")[0]) == (2, f"carryon: {Path(file)}: cannot be read: {says}")
        assert ("CARRYON_CONFIG" in said) == bool(environ)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, state: dict[str, str]) -> None:
    """Permissions are told as such."""
    file = tmp_path / "carryon.yaml"
    file.touch(mode=0o000)
    assert _called("check", file, environ=state)[1].startswith(f"carryon: {file}: cannot be read: Permission denied\n")


def test_what_the_start_finds_has_its_place_too(
    tmp_path: Path, state: dict[str, str], free_port: int, valkey: Server
) -> None:
    """A port that is taken, a directory that cannot be made, a compactor nobody brought, another secret."""
    file = tmp_path / "carryon.yaml"
    beside = {name: value for name, value in state.items() if name != "CARRYON_STATE_DIR"}
    valkey.client().set("carryon:1:secret", "of another", ex=60)
    found = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for text, environ in (
            (f"listen:\n  port: {port}\n", state),
            (f"listen: {{port: {free_port}}}\nstate_dir: {file}/state\n", beside),
            (f"listen: {{port: {free_port}}}\ncompactor: nobodys\n", state),
            (f"listen: {{port: {free_port}}}\nsecret: {SECRET}\nredis:\n  url: {valkey.url}\n", state),
        ):
            file.write_text(text)
            code, said = _called("serve", "--config", file, environ=environ)
            assert (code, "\n  cure: " in said, SECRET in said, "Traceback" in said) == (2, True, False, False), said
            found.append(said.removeprefix(f"carryon: {file}").split("\n")[0])
    valkey.client().delete("carryon:1:secret")
    assert found == [
        f":2: listen.port: cannot listen on 127.0.0.1:{port}: address already in use",
        f":2: state_dir: cannot make {file}/state/store: Not a directory",
        ":2: compactor: no installed package offers a compactor named nobodys",
        ":2: secret: this Redis holds conversations of another `secret`",
    ]


# --- anything anywhere ----------------------------------------------------------------------------------


def _keys(shape: type[BaseModel], at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place where something may be written."""
    for name, known in shape.model_fields.items():
        inner = MEMBERS.get(name) if not at else known.annotation
        yield (*at, name)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _keys(inner, (*at, name, "a" if name == "upstreams" else 0) if name in MEMBERS else (*at, name))
        elif isinstance(known.annotation, type) and issubclass(known.annotation, BaseModel):
            yield from _keys(known.annotation, (*at, name))


KEYS = sorted(_keys(Settings), key=str)
ODD: list[Any] = [
    None, True, False, 0, -1, 10**30, 1.5, float("nan"), float("inf"), "", " ", "\0", "\n", "~x", "env:", "file:",
    "file:\0",
    "env:NOPE", "file:~x", "http://[", "redis://[", "unix:", "(", "(a+)+", "²", "٣s", "9" * 5000, "0x1", "1e309",
    "\ud800",
    "[" * 50, {}, [], {"": 1}, [None], [[]], {"a": {}}, [{}], ["("], {"base_url": None}, "a\x1b[31m", "*", "!x", "%",
    "off",
]  # fmt: skip
_VALUES = st.sampled_from(ODD) | st.text(max_size=20) | st.integers() | st.floats() | st.booleans()
_ANYTHING = st.recursive(
    _VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def _tree(at: tuple[str | int, ...], value: object) -> dict[str, Any]:
    for part in reversed(at):
        value = [value] if part == 0 else {part: value}
    assert isinstance(value, dict)
    return value


def _judged(text: str, given_: Mapping[str, Any], folder: Path) -> str:
    """How loading ended: `good`, or `refused` in a block that can be read."""
    file = folder / "any.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    refused: ConfigError | None = None
    try:
        load(file, {}, given_)
    except ConfigError as error:
        refused = error
    if refused is None:
        return "good"
    assert all(mistake.cure and mistake.message and mistake.file for mistake in refused.mistakes), refused
    assert all(line.isprintable() for line in str(refused).split("\n"))
    return "refused"


def test_odd_values_at_every_key_are_taken_or_refused(tmp_path: Path) -> None:
    """Never another exception, with and without the command line over it; a third of the values at each key."""
    ends: list[str] = []
    for number, at in enumerate(KEYS):
        for value in ODD[number % 3 :: 3]:
            text = yaml.safe_dump(_tree(at, value), allow_unicode=True)
            ends.append(_judged(text, {"window": 4096, "upstream": "http://h"} if len(ends) % 2 else {}, tmp_path))
    good, refused = ends.count("good"), ends.count("refused")
    print(f"\nodd values at {len(KEYS)} keys: {len(ends)} tried, {good} good, {refused} refused")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.sampled_from(KEYS), value=_ANYTHING)
def test_anything_at_any_key_is_taken_or_refused(tmp_path: Path, at: tuple[str | int, ...], value: object) -> None:
    """The same of values nobody thought of."""
    try:
        text = yaml.safe_dump(_tree(at, value), allow_unicode=True)
    except yaml.YAMLError:
        return
    _judged(text, {}, tmp_path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"%@`,?#\n\t 01.<=~\\\ufeff\x85\u2028", max_size=60))
def test_any_text_is_a_configuration_or_refused(tmp_path: Path, text: str) -> None:
    """Signs that mean something to YAML, in any order."""
    _judged(text, {}, tmp_path)
