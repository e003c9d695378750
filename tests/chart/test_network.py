"""Who reaches what: Services, policies, the Ingress, and what Prometheus reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings import load
from tests.chart.engine import CHART, CI, Helm, Object, one, pods

pytestmark = [pytest.mark.chart, pytest.mark.timeout(120)]

HA, VALKEY = CHART / "ci" / "ha.yaml", CHART / "ci" / "valkey.yaml"


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_services_reach_carryon_and_nothing_else(helm: Helm, file: Path) -> None:
    """Neither the Valkey of the release nor its test; and the port for clients opens no other."""
    objects = helm.render(file)
    labels = {name: metadata["labels"] for name, metadata, _ in pods(objects)}
    services = {thing["metadata"]["name"]: thing["spec"] for thing in objects if thing["kind"] == "Service"}
    for name, service in services.items():
        reached = [pod for pod, known in labels.items() if service["selector"].items() <= known.items()]
        assert reached == ["demo-carryon-valkey" if name.endswith("-valkey") else "demo-carryon"], name
        assert service.get("clusterIP") != "None"
    assert [port["targetPort"] for port in services["demo-carryon"]["ports"]] == ["http"]
    assert [port["targetPort"] for port in services["demo-carryon-admin"]["ports"]] == ["admin"]
    assert services["demo-carryon-admin"]["type"] == "ClusterIP"


def test_the_admin_port_is_open_to_prometheus_and_the_test_alone(helm: Helm) -> None:
    """Clients reach theirs from the release's namespace and from those that are named."""
    ingress = one(helm.render(HA), "NetworkPolicy")["spec"]["ingress"]
    peers = {rule["ports"][0]["port"]: rule["from"] for rule in ingress}
    assert _namespaces(peers["http"]) == ["agents", "ingress-nginx"]
    assert {"podSelector": {}} in peers["http"]
    assert _namespaces(peers["admin"]) == ["monitoring"]
    others = [peer for peer in peers["admin"] if "podSelector" in peer]
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in others] == ["test"]


def _namespaces(peers: list[Object]) -> list[str]:
    return [
        next(iter(peer["namespaceSelector"]["matchLabels"].values())) for peer in peers if "namespaceSelector" in peer
    ]


def test_pods_reach_names_upstreams_and_the_store(helm: Helm) -> None:
    """Nothing else; and the Valkey of the release is reached by Carryon alone."""
    ports = [
        [port["port"] for port in rule["ports"]] for rule in one(helm.render(HA), "NetworkPolicy")["spec"]["egress"]
    ]
    assert ports == [[53, 53], [443], [6379], [8000]]
    objects = helm.render(VALKEY)
    own, store = one(objects, "NetworkPolicy", "carryon")["spec"], one(objects, "NetworkPolicy", "valkey")["spec"]
    assert own["egress"][-1]["to"] == [{"podSelector": store["podSelector"]}]
    assert store["ingress"][0]["from"] == [{"podSelector": own["podSelector"]}]
    assert store["egress"] == []


def test_a_service_monitor_selects_the_admin_service(helm: Helm) -> None:
    """By the labels that only this Service has."""
    objects = helm.render(HA)
    monitor = one(objects, "ServiceMonitor")
    selected = [
        thing["metadata"]["name"]
        for thing in objects
        if thing["kind"] == "Service"
        and monitor["spec"]["selector"]["matchLabels"].items() <= thing["metadata"]["labels"].items()
    ]
    assert selected == ["demo-carryon-admin"]
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_an_ingress_lets_long_streams_through(helm: Helm) -> None:
    """Nothing is buffered, a body may have 64 MiB, and silence lasts as long as Carryon itself would wait."""
    ingress = one(helm.render(HA), "Ingress")
    annotations = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}
    assert (
        annotations["proxy-buffering"]
        == annotations["proxy-request-buffering"]
        == annotations["proxy-next-upstream"]
        == "off"
    )
    assert int(annotations["proxy-body-size"].removesuffix("m")) << 20 >= load(environ={}).listen.max_body
    assert int(annotations["proxy-read-timeout"]) >= load(environ={}).timeouts.first_byte
    assert "server-snippet" not in annotations
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "carryon.example.com"
    assert rule["http"]["paths"][0]["backend"] == {"service": {"name": "demo-carryon", "port": {"name": "http"}}}


def test_annotations_of_an_ingress_can_be_ones_own(helm: Helm) -> None:
    """Yours stand over the chart's; the snippet comes only where it is asked for."""
    mine = {"annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}, "nginx": {"underscoresSnippet": True}}
    annotations = one(helm.render(HA, {"ingress": mine}), "Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == "8m"
    assert annotations["nginx.ingress.kubernetes.io/server-snippet"] == "underscores_in_headers on;"
    plain = one(helm.render(HA, {"ingress": {"nginx": {"enabled": False}}}), "Ingress")
    assert "annotations" not in plain["metadata"]
