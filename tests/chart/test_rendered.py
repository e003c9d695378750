"""What Helm makes of the values: valid on three versions of Kubernetes, and as this page promises."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from proxy.admin.probes import PROBES
from tests.chart.engine import CHART, CI, OPERATOR, Helm, Object, RefusedError, one, pods

pytestmark = [pytest.mark.chart, pytest.mark.timeout(180)]

MINIMAL, HA = CHART / "ci" / "minimal.yaml", CHART / "ci" / "ha.yaml"
VERSIONS = ("1.30.0", "1.33.0", "1.36.0")
each_file = pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)

#: The operator's kind is in no schema of Kubernetes: what this chart uses of it, written by hand.
SERVICE_MONITOR = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": OPERATOR},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["selector", "endpoints"],
            "properties": {
                "selector": {"type": "object", "required": ["matchLabels"]},
                "namespaceSelector": {"type": "object", "properties": {"matchNames": {"type": "array"}}},
                "endpoints": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            name: {"type": "string"} for name in ("port", "path", "interval", "scrapeTimeout")
                        },
                    },
                },
            },
        },
    },
}


def _valid(thing: Object, version: str) -> None:
    import kubernetes_validate  # type: ignore[import-untyped]

    if thing["kind"] == "ServiceMonitor":
        jsonschema.validate(thing, SERVICE_MONITOR)
    else:
        kubernetes_validate.validate(thing, version, strict=True)


@each_file
def test_a_values_file_passes_helms_own_check(helm: Helm, file: Path) -> None:
    """`helm lint --strict`: warnings count."""
    assert "0 chart(s) failed" in helm.run("lint", CHART, "--strict", "--values", file)


@each_file
def test_every_manifest_is_valid_on_three_versions_of_kubernetes(helm: Helm, file: Path) -> None:
    """By the schemas of Kubernetes, which know every field; the operator's kind by a small one of ours."""
    for version in VERSIONS:
        objects = helm.render(file, kubernetes=version)
        for thing in objects:
            _valid(thing, version)
        kinds = sorted(thing["kind"] for thing in objects)
        print(f"\n{file.stem}: {len(kinds)} manifests valid on Kubernetes {version[:4]}: {', '.join(kinds)}", end="")


def test_a_wrong_manifest_would_be_found(helm: Helm) -> None:
    """The check above is none that everything passes."""
    import kubernetes_validate

    wrong = one(helm.render(MINIMAL), "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        _valid(wrong, VERSIONS[0])


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    """It would drop the pause before SIGTERM."""
    with pytest.raises(RefusedError, match=r"requires kubeVersion: >=1.30.0-0"):
        helm.render(MINIMAL, kubernetes="1.29.5")


@each_file
def test_all_pods_are_confined(helm: Helm, file: Path) -> None:
    """Nobody's root, nothing writable but volumes, no token of the cluster, no variables of Services."""
    found = list(pods(helm.render(file)))
    assert len(found) >= 2
    for name, _, spec in found:
        assert spec["enableServiceLinks"] is False, name
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name
            assert container["resources"]["requests"], name


@each_file
def test_probes_show_no_token_and_ask_what_the_admin_listener_answers(helm: Helm, file: Path) -> None:
    """A probe's path is one of the listener's own table."""
    container = _container(helm.render(file))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8787, "admin": 8788}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked.keys() == {"path", "port"}
        assert asked["port"] == "admin"
        assert asked["path"] in PROBES


def _container(objects: list[Object]) -> Any:
    return one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("drain", "seconds"),
    [(None, 120), ("120s", 120), ("2m", 120), ("1500ms", 2), ("1.5 h", 5400), ("1d", 86400)],
)
def test_a_pods_grace_period_is_above_the_drain(helm: Helm, drain: str | None, seconds: int) -> None:
    """The pause before SIGTERM, the drain, and room to close: a request that is under way ends by itself."""
    values = {"config": {"timeouts": {"drain": drain}}} if drain else {}
    spec = one(helm.render(MINIMAL, values), "Deployment")["spec"]["template"]["spec"]
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert spec["terminationGracePeriodSeconds"] == 5 + seconds + 15


def test_a_new_version_starts_before_an_old_pod_ends(helm: Helm) -> None:
    """There is no moment without a pod."""
    deployment = one(helm.render(MINIMAL), "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_another_configuration_makes_other_pods_and_nothing_else_does(helm: Helm, tmp_path: Path) -> None:
    """A running process would not see the new file. A new version of the chart alone starts nothing."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    (chart / "Chart.yaml").write_text((CHART / "Chart.yaml").read_text().replace("version: 0.1.0", "version: 9.0.0"))
    words = ("template", "demo", chart, "--values", MINIMAL)
    newer = one(list(yaml.safe_load_all(helm.run(*words))), "Deployment")
    before = one(helm.render(MINIMAL), "Deployment")
    more = one(helm.render(MINIMAL, {"config": {"log": {"level": "debug"}}}), "Deployment")
    assert newer["metadata"]["labels"] != before["metadata"]["labels"]
    assert newer["spec"]["template"] == before["spec"]["template"]
    annotations = [thing["spec"]["template"]["metadata"]["annotations"] for thing in (before, more)]
    assert annotations[0] != annotations[1]


def test_selectors_hold_what_never_changes(helm: Helm) -> None:
    """A Deployment's selector cannot be changed: no version stands in it, and no value can."""
    wanted = {"app.kubernetes.io/name": "carryon", "app.kubernetes.io/instance": "demo"}
    meddling = {
        "podLabels": {"app.kubernetes.io/name": "mine", "team": "a"},
        "podAnnotations": {"checksum/config": "mine", "a": "b"},
    }
    deployment = one(helm.render(MINIMAL, meddling), "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector == wanted | {"app.kubernetes.io/component": "proxy"}
    metadata = deployment["spec"]["template"]["metadata"]
    assert metadata["labels"] == selector | {"team": "a"}
    assert metadata["annotations"]["a"] == "b"
    assert len(metadata["annotations"]["checksum/config"]) == 64


@each_file
def test_every_object_carries_the_usual_labels(helm: Helm, file: Path) -> None:
    """Tools group by them."""
    for thing in helm.render(file):
        labels = thing["metadata"]["labels"]
        usual = {
            f"app.kubernetes.io/{word}"
            for word in ("name", "instance", "version", "component", "part-of", "managed-by")
        }
        assert usual | {"helm.sh/chart"} <= labels.keys(), thing["kind"]
        assert all(len(value) <= 63 for value in labels.values())


@each_file
def test_names_fit_with_the_longest_name_of_a_release(helm: Helm, file: Path) -> None:
    """63 characters for a Service, 52 for a StatefulSet; two long names that end differently stay two."""
    names = []
    for last in "ab":
        objects = helm.render(file, name="r" * 52 + last)
        names.append({thing["metadata"]["name"] for thing in objects})
        assert max(map(len, names[-1])) <= 52
        assert not any(name.endswith("-") for name in names[-1])
    assert names[0].isdisjoint(names[1])


def test_a_release_named_carryon_is_called_so(helm: Helm) -> None:
    """The usual rule: the chart's name is not said twice."""
    assert one(helm.render(MINIMAL, name="carryon"), "Deployment")["metadata"]["name"] == "carryon"


def test_a_scaled_deployment_leaves_its_number_to_the_scaler(helm: Helm) -> None:
    """An upgrade would else set it back."""
    objects = helm.render(HA)
    assert "replicas" not in one(objects, "Deployment")["spec"]
    scaler = one(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "demo-carryon"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 12)
    assert [metric["resource"]["name"] for metric in scaler["metrics"]] == ["cpu", "memory"]
    assert scaler["behavior"]["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]


def test_pods_are_spread_by_their_own_labels(helm: Helm) -> None:
    """Whoever writes a constraint need not know the labels."""
    spec = one(helm.render(HA), "Deployment")["spec"]
    (constraint,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"] == spec["selector"]
    assert constraint["topologyKey"] == "topology.kubernetes.io/zone"


@each_file
def test_both_helms_make_the_same(helms: dict[str, Helm], file: Path) -> None:
    """But for secrets, which each makes anew."""
    seen = [[thing for thing in helm.render(file) if thing["kind"] != "Secret"] for helm in helms.values()]
    first = sorted(seen[0], key=str)
    assert all(sorted(objects, key=str) == first for objects in seen)
