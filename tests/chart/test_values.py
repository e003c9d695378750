"""Wrong values: refused before anything reaches a cluster, by a message that names the key or the cure."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.chart.engine import CHART, Helm, RefusedError

pytestmark = [pytest.mark.chart, pytest.mark.timeout(120)]

MINIMAL = CHART / "ci" / "minimal.yaml"

#: Values in YAML, and where the schema says the mistake is (Helm 3 writes a.b, Helm 4 /a/b), with the key.
WRONG = [
    ("image: {repositry: x}", "image", "repositry"),
    ("image: {repository: 'Has Spaces'}", "image.repository", ""),
    ("image: {digest: sha256:short}", "image.digest", ""),
    ("image: {pullPolicy: Sometimes}", "image.pullPolicy", ""),
    ("replicas: 3", "", "replicas"),
    ("replicaCount: '3'", "replicaCount", ""),
    ("replicaCount: -1", "replicaCount", ""),
    ("fullnameOverride: Upper_Case", "fullnameOverride", ""),
    ("config: {listn: {}}", "config", "listn"),
    ("config: {listen: {port: 9000}}", "config.listen", "port"),
    ("config: {listen: {workers: 4}}", "config.listen", "workers"),
    ("config: {secret: 0123456789abcdef0123}", "config", "secret"),
    ("config: {state_dir: /data}", "config", "state_dir"),
    ("config: {admin: {token: 0123456789abcdef0123}}", "config.admin", "token"),
    ("config: {redis: {url: 'redis://x'}}", "config.redis", "url"),
    ("config: {upstreams: {a: {base_url: 'http://a', api_key: sk-123}}}", "config.upstreams.a.api_key", ""),
    ("config: {upstreams: {a: {base_url: 'http://a', proxy: 'http://u:p@proxy:1'}}}", "config.upstreams.a.proxy", ""),
    ("config: {encryption_keys: [0123456789abcdef0123]}", "config.encryption_keys.0", ""),
    ("config: {timeouts: {drain: 120}}", "config.timeouts.drain", ""),
    ("config: {timeouts: {drain: 'env:DRAIN'}}", "config.timeouts.drain", ""),
    ("config: {models: [{treshold_ratio: 0.5}]}", "config.models.0", "treshold_ratio"),
    ("config: {defaults: {threshold_ratio: 3}}", "config.defaults.threshold_ratio", ""),
    ("config: {log: {level: loud}}", "config.log.level", ""),
    ("secret: {value: abc}", "secret", "value"),
    ("upstreamOrder: [a, a]", "upstreamOrder", ""),
    ("secretEnv: {CARRYON_SECRET: {name: a, key: b}}", "secretEnv.CARRYON_SECRET", ""),
    ("secretEnv: {A-B: {name: a, key: b}}", "secretEnv", "A-B"),
    ("secretEnv: {A: {name: a}}", "secretEnv.A", "key"),
    ("redis: {url: 'redis://:password@redis:6379/0'}", "redis.url", ""),
    ("redis: {url: redis.cache.svc}", "redis.url", ""),
    ("valkey: {maxmemory: much}", "valkey.maxmemory", ""),
    ("service: {port: 0}", "service.port", ""),
    ("service: {type: ExternalName}", "service.type", ""),
    ("ingress: {hosts: [carryon.example.com]}", "ingress.hosts.0", ""),
    (
        "ingress: {hosts: [{host: a.example.com, paths: [{path: v1, pathType: Prefix}]}]}",
        "ingress.hosts.0.paths.0.path",
        "",
    ),
    ("resources: {limits: {memory: lots}}", "resources.limits.memory", ""),
    ("autoscaling: {minReplicas: 0}", "autoscaling.minReplicas", ""),
    ("podDisruptionBudget: {minAvailable: 1}", "podDisruptionBudget", "minAvailable"),
    ("serviceMonitor: {interval: 30}", "serviceMonitor.interval", ""),
    ("networkPolicy: {clientNamespaces: agents}", "networkPolicy.clientNamespaces", ""),
    ("networkPolicy: {upstreamPorts: []}", "networkPolicy.upstreamPorts", ""),
    ("graceAfterDrainSeconds: 0", "graceAfterDrainSeconds", ""),
    ("extraEnv: [{name: CARRYON_REDIS__URL, value: x}]", "extraEnv.0.name", ""),
    ("extraVolumes: [{name: state}]", "extraVolumes.0.name", ""),
]


def _refusal(helm: Helm, values: dict[str, Any]) -> str:
    with pytest.raises(RefusedError) as refused:
        helm.render(MINIMAL, values)
    return str(refused.value)


@pytest.mark.parametrize(("values", "at", "key"), WRONG, ids=[values for values, _, _ in WRONG])
def test_the_schema_refuses_a_wrong_value_and_says_where(helm: Helm, values: str, at: str, key: str) -> None:
    """The message names the key: what is unknown by its name, what is wrong by its place."""
    said = _refusal(helm, yaml.safe_load(values))
    assert "meet the specifications of the schema" in said
    assert any(f"{place}" in said for place in (f"- {at or '(root)'}", f"at '/{at.replace('.', '/')}", f"at '{at}'"))
    assert key in said


#: What only a template can see: values, and words of the refusal with its cure.
CONTRADICTIONS = [
    ("replicaCount: 2", ["more than one pod needs a store", "redis.url", "valkey.enabled=true"]),
    ("autoscaling: {enabled: true}", ["more than one pod needs a store", "autoscaling.enabled=false"]),
    ("{redis: {url: 'redis://a'}, valkey: {enabled: true}}", ["each name the store", "keep one"]),
    ("{redis: {url: 'redis://a', existingSecret: a}}", ["each name the store"]),
    (
        "{valkey: {enabled: true}, autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}}",
        ["autoscaling.maxReplicas is below", "raise"],
    ),
    (
        "{valkey: {enabled: true}, autoscaling: {enabled: true, targetCPUUtilizationPercentage: null}}",
        ["nothing to scale on", "autoscaling.metrics"],
    ),
    ("config: {upstreams: {b: 'http://b', a: 'http://a'}}", ["upstreamOrder has to name", "[a, b]"]),
    ("{upstreamOrder: [c], config: {upstreams: {b: 'http://b'}}}", ["upstreamOrder has to name", "[b]"]),
    (
        "{config: {upstreams: {b: {base_url: 'http://b', api_key: 'env:B'}}}, secretEnv: {B: {name: b, key: b}}}",
        ["config.upstreams.b.api_key would be lent to anybody", "client_keys"],
    ),
    (
        "config: {upstreams: {b: {base_url: 'http://b', headers: {X-A: 'env:B_KEY'}}}}",
        ["env:B_KEY", "secretEnv.B_KEY="],
    ),
    ("{secretEnv: {A: {name: a, key: b}}, extraEnv: [{name: A, value: b}]}", ["A is set twice"]),
    ("ingress: {enabled: true}", ["ingress.hosts is empty", "ingress.hosts[0].host="]),
    ("image: {repository: ''}", ["image.repository is required", "docker build"]),
]


@pytest.mark.parametrize(("values", "words"), CONTRADICTIONS, ids=[values for values, _ in CONTRADICTIONS])
def test_values_that_contradict_each_other_are_refused_with_the_cure(helm: Helm, values: str, words: list[str]) -> None:
    """Pods that would never start, or lose what is stored, are not made."""
    said = _refusal(helm, yaml.safe_load(values))
    assert all(word in said for word in words), said


def test_a_service_monitor_is_refused_where_nobody_reads_it(helm: Helm) -> None:
    """Left out in silence, it would be missed when it is needed."""
    with pytest.raises(RefusedError, match=r"does not know ServiceMonitor\. Install the Prometheus Operator"):
        helm.run("template", "demo", CHART, "--values", MINIMAL, "--set", "serviceMonitor.enabled=true")
