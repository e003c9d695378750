"""Secrets: made once, kept, never written where others read. Helm installs and upgrades against an API in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.cluster import Cluster, cluster
from tests.chart.engine import CHART, CI, Helm, Object, RefusedError, one

pytestmark = [pytest.mark.chart, pytest.mark.timeout(120)]

MINIMAL, EXISTING = CHART / "ci" / "minimal.yaml", CHART / "ci" / "existing-secrets.yaml"
#: A release with every secret that the chart can make.
ALL = ("--values", MINIMAL, "--set", "adminToken.enabled=true,valkey.enabled=true")
MADE = ("demo-carryon", "demo-carryon-admin", "demo-carryon-valkey")
#: The API in memory publishes no schema to check against.
UNCHECKED = "--disable-openapi-validation"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Cluster]:
    """An empty namespace."""
    with cluster(tmp_path) as found:
        yield found


def _secrets(kept: Cluster) -> dict[str, object]:
    found = {name: kept.found("Secret", name) for name in MADE}
    return {name: secret["data"] for name, secret in found.items() if secret}


def test_a_secret_outlives_upgrades_and_the_release(helm: Helm, kept: Cluster) -> None:
    """With another secret nothing that is stored would be found: install, upgrade, uninstall, install again."""

    def run(*words: str | Path) -> str:
        return helm.run(*words, "--namespace", "team", kubeconfig=kept.kubeconfig)

    run("install", "demo", CHART, *ALL, UNCHECKED)
    first = _secrets(kept)
    assert first.keys() == set(MADE)
    run("upgrade", "demo", CHART, *ALL, UNCHECKED, "--set", "config.log.level=debug")
    assert "level: debug" in (kept.found("ConfigMap", "demo-carryon") or {})["data"]["carryon.yaml"]
    assert _secrets(kept) == first
    run("uninstall", "demo")
    assert kept.found("Deployment", "demo-carryon") is None
    assert _secrets(kept) == first
    run("install", "demo", CHART, *ALL, UNCHECKED)
    assert _secrets(kept) == first


def test_a_rendering_that_cannot_look_is_refused_by_the_cluster(helm: Helm, kept: Cluster) -> None:
    """`helm template` makes others each time; those in use are immutable, so that none can be put over them."""
    run = helm.run("install", "demo", CHART, *ALL, UNCHECKED, "--namespace", "team", kubeconfig=kept.kubeconfig)
    assert "STATUS: deployed" in run
    for name in MADE:
        path = f"/api/v1/namespaces/team/secrets/{name}"
        rendered = next(
            thing for thing in _rendered(helm) if thing["metadata"]["name"] == name and thing["kind"] == "Secret"
        )
        assert rendered["immutable"] is True
        assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert kept.answer("PUT", path, json.dumps(rendered).encode())[0] == 422


def _rendered(helm: Helm) -> list[Object]:
    return helm.render(MINIMAL, {"adminToken": {"enabled": True}, "valkey": {"enabled": True}})


def test_secrets_are_long_and_differ(helm: Helm) -> None:
    """Two releases never share one; 16 characters are the least that Carryon takes."""
    values = [
        base64.b64decode(value).decode()
        for _ in range(2)
        for thing in helm.render(MINIMAL, {"adminToken": {"enabled": True}})
        if thing["kind"] == "Secret"
        for value in thing["data"].values()
    ]
    assert len(set(values)) == 4
    assert all(len(value) >= 32 and value.isalnum() for value in values)


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_no_secret_is_written_outside_a_secret(helm: Helm, file: Path) -> None:
    """Not in the ConfigMap, not in arguments or variables, not in notes: what is secret is referred to."""
    objects = helm.render(file)
    secrets = [thing for thing in objects if thing["kind"] == "Secret"]
    values = [base64.b64decode(value).decode() for secret in secrets for value in secret["data"].values()]
    others = json.dumps([thing for thing in objects if thing["kind"] != "Secret"])
    for value in values:
        assert value not in others
        assert base64.b64encode(value.encode()).decode() not in others
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    for variable in container["env"]:
        secret = variable["name"] in {"CARRYON_SECRET", "CARRYON_ADMIN__TOKEN"} or "KEY" in variable["name"]
        assert not secret or variable.keys() == {"name", "valueFrom"}


def test_secrets_that_exist_are_referred_to_and_none_is_made(helm: Helm) -> None:
    """Each by its name and key."""
    objects = helm.render(EXISTING)
    assert [thing for thing in objects if thing["kind"] == "Secret"] == []
    env = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    named = {each["name"]: tuple(each["valueFrom"]["secretKeyRef"].values()) for each in env if "valueFrom" in each}
    assert named == {
        "CARRYON_SECRET": ("carryon-secret", "secret"),
        "CARRYON_ADMIN__TOKEN": ("carryon-admin", "token"),
        "CARRYON_REDIS__URL": ("carryon-redis", "REDIS_URL"),
        "LOCAL_KEY": ("vllm", "token"),
        "OPENAI_API_KEY": ("openai", "api-key"),
    }


def test_a_cluster_without_the_operator_is_recognised(helm: Helm, kept: Cluster) -> None:
    """What the cluster says of its kinds decides, not what Helm assumes."""
    words = (
        "install",
        "demo",
        CHART,
        "--values",
        MINIMAL,
        "--set",
        "serviceMonitor.enabled=true",
        "--namespace",
        "team",
    )
    with pytest.raises(RefusedError, match="does not know ServiceMonitor"):
        helm.run(*words, UNCHECKED, kubeconfig=kept.kubeconfig)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (MINIMAL, "OPENAI_BASE_URL=http://demo-carryon.team.svc:8787/v1"),
        (CHART / "ci" / "ha.yaml", "OPENAI_BASE_URL=https://carryon.example.com/v1"),
    ],
    ids=["inside", "ingress"],
)
def test_the_notes_end_with_what_to_do(helm: Helm, kept: Cluster, file: Path, line: str) -> None:
    """The next command, and the line to paste."""
    words = ("install", "demo", CHART, "--values", file, "--set", "serviceMonitor.enabled=false", "--namespace", "team")
    said = helm.run(*words, UNCHECKED, kubeconfig=kept.kubeconfig)
    assert "kubectl --namespace team rollout status deployment/demo-carryon" in said
    assert line in said
    assert ("no Redis is named" in said) == (file == MINIMAL)
    assert ("enable-underscores-in-headers" in said) == (file != MINIMAL)
