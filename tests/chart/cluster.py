"""As much of a Kubernetes API as Helm asks for: objects by their path, kept in memory. No controller, no validation.

With it Helm's own `lookup`, install, upgrade and uninstall run; whether a cluster takes the objects is not shown here.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

#: Kinds by group and version; each is namespaced.
KINDS = {
    "api/v1": {
        "ConfigMap": "configmaps", "Pod": "pods", "Secret": "secrets", "Service": "services",
        "ServiceAccount": "serviceaccounts",
    },
    "apis/apps/v1": {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"},
    "apis/networking.k8s.io/v1": {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"},
    "apis/policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "apis/autoscaling/v2": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
}  # fmt: skip


class Cluster:
    """What is kept, by path, and who asks for it how."""

    def __init__(self, url: str, kubeconfig: Path) -> None:
        self.url, self.kubeconfig = url, kubeconfig
        self.objects: dict[str, dict[str, Any]] = {}

    def found(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object of namespace `team`."""
        group = next(group for group, kinds in KINDS.items() if kind in kinds)
        return self.objects.get(f"/{group}/namespaces/team/{KINDS[group][kind]}/{name}")

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        parts = urlsplit(target)
        path = parts.path
        if method == "GET":
            found = _discovered(path) or self.objects.get(path) or self._listed(path, parse_qs(parts.query))
            return (200, found) if found else _absent(path)
        if method == "DELETE":
            return (200, self.objects.pop(path)) if path in self.objects else _absent(path)
        thing = _read(body)
        if method == "POST":
            return self._put(f"{path}/{thing['metadata']['name']}", thing, 201)
        return self._put(path, _merged(self.objects.get(path, {}), thing) if method == "PATCH" else thing, 200)

    def _put(self, path: str, thing: dict[str, Any], status: int) -> tuple[int, dict[str, Any]]:
        if self.objects.get(path, {}).get("immutable") and self.objects[path]["data"] != thing["data"]:
            return 422, {"kind": "Status", "status": "Failure", "code": 422, "message": "field is immutable"}
        thing["metadata"].setdefault("namespace", "team")
        thing["metadata"].setdefault("uid", path)
        self.objects[path] = thing
        return status, thing

    def _listed(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | None:
        group, _, rest = path.removeprefix("/").partition("/namespaces/team/")
        kind = next((kind for kind, name in KINDS.get(group, {}).items() if name == rest), None)
        wanted = dict(pair.split("=") for pair in query.get("labelSelector", [""])[0].split(",") if pair)
        items = [
            thing
            for where, thing in self.objects.items()
            if where.startswith(f"{path}/") and wanted.items() <= thing["metadata"].get("labels", {}).items()
        ]
        return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items} if kind else None


def _read(body: bytes) -> dict[str, Any]:
    """Return what was sent: JSON or YAML; Helm's own records are Secrets in the binary form."""
    if not body.startswith(b"k8s\0"):
        return dict(yaml.safe_load(body))
    secret = _fields(_fields(body[4:])[2][0])
    metadata = _fields(secret[1][0])
    labels = {key: value.decode() for key, value in _entries(metadata.get(11, []))}
    data = {key: base64.b64encode(value).decode() for key, value in _entries(secret.get(2, []))}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": metadata[1][0].decode(), "labels": labels},
        "type": secret[3][0].decode(),
        "data": data,
    }


def _entries(found: list[bytes]) -> list[tuple[str, bytes]]:
    return [(pair[1][0].decode(), pair[2][0]) for pair in map(_fields, found)]


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Return a message's fields that hold bytes, by number (Protocol Buffers' wire format)."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        length, at = _number(message, at)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(message[at : at + length])
            at += length
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    whole = old | {key: _merged(old.get(key), value) for key, value in new.items()}
    return {key: value for key, value in whole.items() if value is not None}


def _absent(path: str) -> tuple[int, dict[str, Any]]:
    return 404, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
        "message": path,
    }


def _discovered(path: str) -> dict[str, Any] | None:
    """Return what a client asks to learn which kinds there are."""
    if path == "/version":
        return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [group.removeprefix("apis/") for group in KINDS if group.startswith("apis/")]
        versions = [{"groupVersion": group, "version": group.partition("/")[2]} for group in groups]
        listed = [
            {"name": each["groupVersion"].partition("/")[0], "versions": [each], "preferredVersion": each}
            for each in versions
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    kinds = KINDS.get(path.removeprefix("/"))
    if kinds is None:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "update"]
    resources = [{"name": name, "kind": kind, "namespaced": True, "verbs": verbs} for kind, name in kinds.items()]
    version = path.removeprefix("/apis/").removeprefix("/api/")
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Serve an empty one on loopback, with namespace `team`."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                status, thing = kept.answer(self.command, self.path, body)
                data = json.dumps(thing).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the names are the library's

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "team"}}],
                "clusters": [{"name": "test", "cluster": {"server": url}}],
                "users": [{"name": "test", "user": {}}],
            }
        )
    )
    kubeconfig.chmod(0o600)
    kept = Cluster(url, kubeconfig)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
