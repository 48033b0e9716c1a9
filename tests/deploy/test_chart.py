"""The chart, rendered by Helm, and all manifests, decoded as Kubernetes' own types."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.admin.routes import OPEN
from tests.unit.deploy.files import CHART, KUBERNETES, ROOT, SPARK, Document, documents, manifests, one, variables

TOOLS = ROOT / ".parts" / "deploy"
pytestmark = pytest.mark.skipif(not (TOOLS / "helm").exists(), reason="no helm: tools/deploy/bring .parts/deploy")

EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
ORDERS, PRIVATE = CHART / "ci" / "orders-values.yaml", CHART / "ci" / "private-values.yaml"


KUBERNETES_VERSION = "1.33.0"
"""Built from its module, Helm believes in an old one."""


def helm(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [str(TOOLS / "helm"), command, "--kube-version", KUBERNETES_VERSION, *arguments]
    return subprocess.run(whole, capture_output=True, text=True, check=False)


def rendered(values: Path, *settings: str) -> str:
    """What the chart makes of values, as YAML."""
    done = helm("template", "orders", str(CHART), "--namespace", "streams", "--values", str(values), *settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


def decode(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOOLS / "decode")], input=text, capture_output=True, text=True, check=False)


def without_marks_of_helm(value: Any) -> Any:
    """Without what only the chart adds: its labels, the checksum of the settings, when to pull the image."""
    if isinstance(value, list):
        return [without_marks_of_helm(each) for each in value]
    if not isinstance(value, dict):
        return value
    mine = {"app.kubernetes.io/managed-by", "helm.sh/chart", "annotations", "imagePullPolicy"}
    return {name: without_marks_of_helm(each) for name, each in value.items() if name not in mine}


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_helm_finds_nothing_wrong(values: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(values))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_makes_the_manifests() -> None:
    made = {document["kind"]: without_marks_of_helm(document) for document in objects(rendered(ORDERS))}
    plain = {document["kind"]: document for document in manifests(KUBERNETES)}
    assert made.keys() == plain.keys()
    for kind, document in plain.items():
        assert made[kind] == document, kind


def test_without_secrets_the_admin_server_stays_in_the_pod() -> None:
    found = objects(rendered(PRIVATE))
    assert "ServiceMonitor" not in {document["kind"] for document in found}
    assert one(found, "NetworkPolicy")["spec"]["ingress"] == []
    [container] = one(found, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert variables(container)["PENSTOCK_ADMIN_ADDRESS"] == "127.0.0.1:7070"
    assert not [name for name in variables(container) if "TOKEN" in name]
    for probe in ("livenessProbe", "readinessProbe"):
        *command, path = container[probe]["exec"]["command"]
        assert command == ["python", "/opt/penstock/healthcheck.py"]
        assert path in OPEN


def test_other_settings_restart_the_pod() -> None:
    def annotations(*settings: str) -> Document:
        found: Document = one(objects(rendered(PRIVATE, *settings)), "StatefulSet")["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations() != annotations("--set", "config=lanes = 3")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["serviceMonitor.enabled=true"], "admin.secret and admin.tlsSecret"),
        (["admin.secret=orders-admin"], "set both secret and tlsSecret, or none"),
        (["image.repository="], "image.repository"),
        (["image.digest="], "image.tag"),
        (["replicas=2"], "replicas"),
    ],
    ids=["monitor", "half", "image", "tag", "replicas"],
)
def test_mistakes_are_refused_by_name(settings: list[str], why: str) -> None:
    options = [part for setting in settings for part in ("--set", setting)]
    done = helm("template", "orders", str(CHART), "--values", str(PRIVATE), *options)
    assert done.returncode != 0
    assert why in done.stderr


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_kubernetes_would_read_what_the_chart_makes(values: Path) -> None:
    text = rendered(values)
    done = decode(text)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects(text)) >= 6


@pytest.mark.parametrize("directory", [KUBERNETES, SPARK], ids=["plain", "spark"])
def test_kubernetes_would_read_the_manifests(directory: Path) -> None:
    paths = [path for path in sorted(directory.glob("*.yaml")) if path.name != "kustomization.yaml"]
    for path in paths:
        done = decode(path.read_text(encoding="utf-8"))
        assert done.returncode == 0, f"{path.name}: {done.stderr}"
        assert len(done.stdout.splitlines()) == len(documents(path))


def test_kubernetes_would_read_the_template_of_executors() -> None:
    done = decode(one(manifests(SPARK), "ConfigMap")["data"]["executor.yaml"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("replicas: 1", "replica: 1"),
        ("replicas: 1", 'replicas: "one"'),
        ("apps/v1", "apps/v7"),
        ("replicas: 1", "replicas: 1\n  replicas: 2"),
    ],
    ids=["field", "type", "version", "duplicate"],
)
def test_mistakes_in_manifests_would_be_found(right: str, wrong: str) -> None:
    text = (KUBERNETES / "statefulset.yaml").read_text(encoding="utf-8")
    assert text.count(right) == 1
    assert decode(text.replace(right, wrong)).returncode != 0
