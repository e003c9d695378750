"""Where values come from, and that each keeps its origin."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.settings.layers import environment, key_name, overrides, yaml_file


def _file(folder: Path, text: str) -> Path:
    path = folder / "carryon.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_of_a_file_has_its_line(tmp_path: Path) -> None:
    """In lists and flow style too."""
    layer = yaml_file(
        _file(tmp_path, "# first\nlisten:\n  port: 1\nmodels:\n  - {model: a}\n  - model: b\n    auto: no\n")
    )
    assert layer.tree == {"listen": {"port": 1}, "models": [{"model": "a"}, {"model": "b", "auto": False}]}
    lines = {key_name(path): origin.line for path, origin in layer.origins.items()}
    assert lines["listen.port"] == 3
    assert lines["models[0].model"] == 5
    assert lines["models[1].auto"] == 7


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    """All defaults hold."""
    assert yaml_file(_file(tmp_path, "# nothing\n")).tree == {}


def test_anchors_and_merge_keys_work_and_what_is_written_beside_them_wins(tmp_path: Path) -> None:
    """People repeat policies with them."""
    text = "defaults: &d {auto: false, dry_run: true}\nmodels:\n  - {<<: *d, model: m, auto: true}\n"
    assert yaml_file(_file(tmp_path, text)).tree["models"] == [{"auto": True, "dry_run": True, "model": "m"}]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("listen:\n  port: 1\n  port: 2\n", 3, "written twice; it stands first at line 2"),
        ("listen: {}\nlog: {}\nlisten: {}\n", 3, "written twice"),
        ("- a\n", 1, "not a mapping"),
        ("listen: [1, 2\nlog: {}\n", 2, "not YAML"),
        ("listen:\n\tport: 1\n", 2, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML"),
        ("a: *nothing\n", 1, "not YAML"),
        ("a: !!python/object:os.system {}\n", 1, "has a YAML tag"),
        ("a: &a [*a]\n", 1, "holds itself"),
        ("? [a]\n: 1\n", 1, "not text"),
    ],
)
def test_a_file_that_is_not_sound_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int | None, message: str
) -> None:
    """With a cure as well."""
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as refusal:
        yaml_file(path)
    mistake = refusal.value
    assert (mistake.file, mistake.line) == (str(path), line)
    assert message in mistake.message
    assert mistake.cure


def test_a_missing_file_and_one_that_is_not_text_are_refused(tmp_path: Path) -> None:
    """A named file that is not there is never ignored."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        yaml_file(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ConfigError, match="UTF-8"):
        yaml_file(tmp_path / "binary.yaml")


def test_variables_nest_by_two_underscores_and_know_their_names() -> None:
    """Lists and mappings are written in flow style; nothing is null."""
    layer = environment(
        {
            "CARRYON_LISTEN__PORT": "9000",
            "CARRYON_MODELS": "[{model: m, auto: false}]",
            "CARRYON_REDIS__URL": "",
            "HOME": "/",
        }
    )
    assert layer.tree == {"listen": {"port": "9000"}, "models": [{"model": "m", "auto": False}], "redis": {"url": None}}
    assert layer.origins["listen", "port"].place == "CARRYON_LISTEN__PORT"


def test_a_variable_finds_an_upstream_whose_name_it_cannot_spell() -> None:
    """Dashes, dots and capitals become underscores and small letters."""
    layer = environment({"CARRYON_UPSTREAMS__MY_LOCAL_1__API_KEY": "k"}, ("My-local.1",))
    assert layer.tree == {"upstreams": {"My-local.1": {"api_key": "k"}}}


@pytest.mark.parametrize(
    "environ",
    [
        {"CARRYON_SERVICE_HOST": "10.0.0.1", "CARRYON_SERVICE_PORT_HTTP": "80", "CARRYON_PORT": "tcp://10.0.0.1:80"},
        {"CARRYON_PORT_8787_TCP": "x", "CARRYON_PORT_8787_TCP_ADDR": "x"},
        {"CARRYON_REDIS_SERVICE_HOST": "x", "CARRYON_REDIS_SERVICE_PORT": "1", "CARRYON_REDIS_PORT": "x",
         "CARRYON_REDIS_PORT_6379_TCP_PROTO": "tcp"},
        {"CARRYON_CONFIG": "/etc/carryon.yaml"},
    ],
)  # fmt: skip
def test_variables_that_kubernetes_makes_are_ignored(environ: dict[str, str]) -> None:
    """Also those for a Service whose name begins with `carryon-`."""
    assert environment(environ).tree == {}


def test_a_mistyped_port_is_not_taken_for_a_variable_of_kubernetes() -> None:
    """`CARRYON_LISTEN_PORT` lacks an underscore."""
    assert environment({"CARRYON_LISTEN_PORT": "80"}).tree == {"listen_port": "80"}


def test_a_variable_that_is_no_list_is_refused_without_its_value() -> None:
    """It might be a secret."""
    with pytest.raises(ConfigError, match="CARRYON_MODELS: models: is not a list or mapping") as refusal:
        environment({"CARRYON_MODELS": "[hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_a_key_set_as_a_whole_and_in_part_is_refused() -> None:
    """Nobody knows which of the two was meant."""
    with pytest.raises(ConfigError, match="as a whole and in part"):
        environment({"CARRYON_LISTEN": "x", "CARRYON_LISTEN__PORT": "1"})


def test_the_command_line_names_keys_with_dots_and_leaves_out_what_was_not_given() -> None:
    """None means that an option was not given."""
    assert overrides({"listen.port": 1, "listen.host": None, "log.level": "debug"}).tree == {
        "listen": {"port": 1},
        "log": {"level": "debug"},
    }


def test_a_file_larger_than_any_configuration_is_refused_unread(tmp_path: Path) -> None:
    """It is not read to its end."""
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        yaml_file(_file(tmp_path, "#" * (1 << 21)))


def test_what_may_have_no_end_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe by name that nobody writes to, a device, a socket."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero"), Path("/dev/ptmx")):
            with pytest.raises(ConfigError, match=r"(pipe, a device or a socket|No such device).*\n.*readable file"):
                yaml_file(path)


def test_what_the_shell_has_opened_is_read_to_its_end() -> None:
    """As in `carryon check <(decrypt carryon.yaml)`; and nothing is an empty file."""
    reading, writing = os.pipe()
    threading.Timer(0.05, lambda: (os.write(writing, b"log: {level: debug}"), os.close(writing))).start()
    assert yaml_file(Path(f"/dev/fd/{reading}")).tree == {"log": {"level": "debug"}}
    os.close(reading)
    assert yaml_file(Path(os.devnull)).tree == {}


def test_a_key_by_two_variables_is_refused() -> None:
    """Nobody knows which of the two was meant, in any order."""
    for environ in (
        {"CARRYON_LOG": "{level: info}", "CARRYON_LOG__LEVEL": "debug"},
        {"CARRYON_LOG": "", "CARRYON_LOG__LEVEL": "debug"},
        {"CARRYON_LOG__LEVEL": "info", "CARRYON_log__level": "debug"},
    ):
        with pytest.raises(ConfigError, match=r"in part|twice"):
            environment(environ)


def test_a_variable_that_may_mean_two_upstreams_is_refused() -> None:
    """A key would go to one of them by chance."""
    names = ("my-a", "my_a", "b")
    with pytest.raises(ConfigError, match="may mean any of the upstreams my-a, my_a"):
        environment({"CARRYON_UPSTREAMS__MY_A__API_KEY": "k"}, names)
    assert environment({"CARRYON_UPSTREAMS__B__API_KEY": "k"}, names).tree == {"upstreams": {"b": {"api_key": "k"}}}


@pytest.mark.parametrize("text", ["[" * 3000, "[!!python/name:os.system x]", "{a: 1, a: 2}", "[!!bool 5]"])
def test_the_yaml_of_a_variable_is_read_as_carefully_as_a_file(text: str) -> None:
    """Depth, tags and doubled keys are refused under the variable's name."""
    with pytest.raises(ConfigError) as refusal:
        environment({"CARRYON_MODELS": text})
    assert (refusal.value.file, refusal.value.line) == ("CARRYON_MODELS", None)
    assert refusal.value.key.startswith("models")
