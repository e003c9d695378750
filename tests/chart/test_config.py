"""The file that the chart writes and the variables it sets, as Carryon itself reads them."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path

import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from proxy.settings import Settings, load
from proxy.store.binary import find_server
from tests.chart.engine import CHART, CI, Helm, Object, one, pods
from tests.e2e.carryon import Carryon
from tests.terminal import run

pytestmark = [pytest.mark.chart, pytest.mark.timeout(120)]

MINIMAL, VALKEY = CHART / "ci" / "minimal.yaml", CHART / "ci" / "valkey.yaml"
#: What stands in Secrets that the tests' values refer to.
ELSEWHERE = {"redis": "redis://:secret@redis.example.com:6379/0"}


def _given(objects: list[Object], folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the file and the variables of a pod; what comes from a Secret is a value of its kind."""
    made = {thing["metadata"]["name"]: thing["data"] for thing in objects if thing["kind"] == "Secret"}
    authority = folder / "ca.pem"
    authority.write_text("authorities")
    file = folder / "carryon.yaml"
    text: str = one(objects, "ConfigMap")["data"]["carryon.yaml"]
    file.write_text(text.replace("/etc/ca/ca.pem", str(authority)))
    variables = {}
    for each in one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]:
        source = each.get("valueFrom", {}).get("secretKeyRef")
        if source is None:
            variables[each["name"]] = each["value"]
        elif source["name"] in made:
            variables[each["name"]] = base64.b64decode(made[source["name"]][source["key"]]).decode()
        else:
            variables[each["name"]] = ELSEWHERE["redis"] if each["name"].endswith("URL") else "0123456789abcdef" * 3
    return file, variables


def _loaded(objects: list[Object], folder: Path) -> Settings:
    file, variables = _given(objects, folder)
    assert variables["CARRYON_CONFIG"] == "/etc/carryon/carryon.yaml"
    return load(file, variables)


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_carryon_takes_what_the_chart_gives_it(helm: Helm, file: Path, tmp_path: Path) -> None:
    """File and variables together; and they say what the values say."""
    objects = helm.render(file)
    settings, values = _loaded(objects, tmp_path), yaml.safe_load(file.read_text())
    assert (settings.listen.host, settings.listen.port, settings.listen.workers) == ("0.0.0.0", 8787, 1)
    assert (settings.admin.host, settings.admin.port) == ("0.0.0.0", 8788)
    assert settings.secret
    assert (settings.redis.url is not None) == bool(values.keys() & {"redis", "valkey"})
    assert (settings.admin.token is not None) == ("adminToken" in values)
    assert settings.listen.max_inflight_bytes == 256 << 20
    mounted = {
        mount["mountPath"] for _, _, spec in pods(objects) for mount in spec["containers"][0].get("volumeMounts", ())
    }
    assert str(settings.state_dir) in mounted


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_the_command_check_agrees(helm: Helm, file: Path, tmp_path: Path) -> None:
    """`carryon check` on the rendered file, as somebody would ask before an upgrade."""
    written, variables = _given(helm.render(file), tmp_path)
    done = run("check", written, environ=variables)
    assert done.code == 0, done.said


def test_upstreams_keep_the_order_that_is_named(helm: Helm, tmp_path: Path) -> None:
    """Helm sorts mappings; the first upstream is the default all the same."""
    upstreams = {name: f"http://{name}.example.com/v1" for name in ("alpha", "beta", "gamma")}
    order = ["gamma", "alpha", "beta"]
    settings = _loaded(helm.render(MINIMAL, {"upstreamOrder": order, "config": {"upstreams": upstreams}}), tmp_path)
    assert list(settings.upstreams) == order
    assert settings.default_upstream.name == "gamma"


@pytest.mark.parametrize(
    "text", ["off", "yes", "null", "~", "012", "0x1F", "1e3", "12:30", "2026-12-01", "a: b", "#x", "ä ☃", "*", "1_000"]
)
def test_text_stays_text(helm: Helm, tmp_path: Path, text: str) -> None:
    """What another reader of YAML would take for a number, a date or a yes."""
    upstreams = {"a": {"base_url": "http://a.example.com/v1", "serves": [text]}}
    settings = _loaded(helm.render(MINIMAL, {"config": {"upstreams": upstreams}}), tmp_path)
    assert settings.upstreams["a"].serves == (text,)


@pytest.mark.parametrize("number", [1024, 272_000, 100_000_000])
def test_large_numbers_stay_whole(helm: Helm, tmp_path: Path, number: int) -> None:
    """Helm reads numbers as floating point; none is written as 1e+08."""
    settings = _loaded(helm.render(MINIMAL, {"config": {"defaults": {"context_window": number}}}), tmp_path)
    assert settings.defaults.context_window == number


def test_the_valkey_of_the_chart_runs_and_takes_carryons_url(helm: Helm, tmp_path: Path, free_port: int) -> None:
    """A real Valkey with the rendered arguments and password file keeps an append-only file; strangers stay out."""
    objects = helm.render(VALKEY)
    secret = one(objects, "Secret", "valkey")["data"]
    (tmp_path / "auth.conf").write_bytes(base64.b64decode(secret["auth.conf"]))
    container = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["valkey-server", "/etc/valkey/auth.conf"]
    words = [str(tmp_path) if word == "/data" else word for word in container["args"]]
    command = [find_server(), tmp_path / "auth.conf", *words, "--port", str(free_port), "--bind", "127.0.0.1"]
    url = base64.b64decode(secret["url"]).decode().replace("demo-carryon-valkey:6379", f"127.0.0.1:{free_port}")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with _client(url, tries=200) as client, _client(f"redis://127.0.0.1:{free_port}") as stranger:
            assert client.ping()
            settings = client.config_get("append*") | client.config_get("maxmemory*")
            with pytest.raises(redis.AuthenticationError):
                stranger.ping()
    finally:
        server.terminate()
        server.wait(10)
    wanted = {
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory": str(256 << 20),
        "maxmemory-policy": "volatile-lru",
    }
    assert wanted.items() <= settings.items()


def _client(url: str, tries: int = 0) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True, retry=Retry(ConstantBackoff(0.05), tries))


async def test_the_test_of_the_release_passes_on_a_carryon_that_runs(
    helm: Helm, tmp_path: Path, free_port: int
) -> None:
    """`helm test` runs this very script in a pod; before a Carryon that is not there it fails."""
    carryon = Carryon("http://127.0.0.1:9", tmp_path / "state", CARRYON_ADMIN__PORT=str(free_port))
    url = await carryon.start()
    try:
        (script,) = [
            spec["containers"][0]["command"] for name, _, spec in pods(helm.render(MINIMAL)) if name.endswith("-test")
        ]
        assert script[:2] == ["python", "-c"]
        here = script[2].replace('"demo-carryon-admin", 8788', f'"127.0.0.1", {free_port}')
        here = here.replace('"demo-carryon", 8787', f'"127.0.0.1", {url.rsplit(":")[2].partition("/")[0]}')
        assert await _exit_code(here) == 0
    finally:
        await carryon.stop()
    assert await _exit_code(here) != 0


async def _exit_code(script: str) -> int:
    quiet = asyncio.subprocess.DEVNULL
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=quiet, stderr=quiet)
    return await done.wait()
