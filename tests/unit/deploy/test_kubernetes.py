"""The manifests: probes that are answered, pods without rights, objects that find each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import MagicMock

import pytest

from penstock.admin.routes import OPEN, routes
from tests.unit.deploy.files import (
    KUBERNETES,
    SPARK,
    Document,
    documents,
    manifests,
    one,
    plain_yaml,
    pods,
    variables,
)

if TYPE_CHECKING:
    from penstock.runtime.application import RunningApplication

PATHS = {route.path for route in routes(cast("RunningApplication", MagicMock()))}
BOTH = pytest.mark.parametrize("directory", [KUBERNETES, SPARK], ids=["plain", "spark"])


def application(directory: Path) -> tuple[Document, Document]:
    """The pod of the application, and its container."""
    pod = one(manifests(directory), "StatefulSet")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return pod, container


def test_every_file_is_yaml() -> None:
    assert len(plain_yaml()) > 10
    for path in plain_yaml():
        for document in documents(path):
            assert isinstance(document, dict), path
            if path.parent in {KUBERNETES, SPARK}:
                assert {"apiVersion", "kind"} <= document.keys(), path


def test_the_kustomization_lists_every_manifest_and_no_example() -> None:
    [found] = documents(KUBERNETES / "kustomization.yaml")
    there = {path.name for path in KUBERNETES.glob("*.yaml")}
    assert set(found["resources"]) == there - {"kustomization.yaml", "secrets.example.yaml"}


@BOTH
def test_probes_ask_for_paths_that_need_no_token(directory: Path) -> None:
    _, container = application(directory)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    own = variables(container)
    for name, path in (("livenessProbe", "/health/live"), ("readinessProbe", "/health/ready")):
        asked = container[name]["httpGet"]
        assert asked["path"] == path
        assert path in PATHS & OPEN
        assert str(ports[asked["port"]]) == own["PENSTOCK_ADMIN_ADDRESS"].rpartition(":")[2]
        assert asked["scheme"] == "HTTPS", "an address that can be reached from outside requires TLS"
    assert "startupProbe" not in container, "an application is live while it restores, however long that takes"


@BOTH
def test_an_address_for_others_has_a_token_and_a_certificate(directory: Path) -> None:
    own = variables(application(directory)[1])
    assert {"PENSTOCK_ADMIN_TOKEN", "PENSTOCK_ADMIN_CERTIFICATE", "PENSTOCK_ADMIN_KEY"} <= own.keys()


@BOTH
def test_pods_have_no_rights_that_they_do_not_need(directory: Path) -> None:
    found = list(pods(manifests(directory)))
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            if container["name"] == "application":
                assert context["readOnlyRootFilesystem"] is True
                assert {"/tmp", "/var/lib/penstock"} <= {mount["mountPath"] for mount in container["volumeMounts"]}


def test_only_the_driver_of_a_cluster_has_a_token_of_kubernetes() -> None:
    for directory, is_driver in ((KUBERNETES, False), (SPARK, True)):
        assert application(directory)[0]["automountServiceAccountToken"] is is_driver
        assert one(manifests(directory), "ServiceAccount")["automountServiceAccountToken"] is False
    [executor] = [pod for pod in pods(manifests(SPARK)) if pod["containers"][0]["name"] == "executor"]
    assert executor["automountServiceAccountToken"] is False


@BOTH
def test_memory_is_limited_and_requested(directory: Path) -> None:
    """Penstock sizes epochs by the container's limit of memory; without one it would take the node for its own."""
    resources = application(directory)[1]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"]
    assert "cpu" in resources["requests"]


@BOTH
def test_every_mount_has_its_volume(directory: Path) -> None:
    found = manifests(directory)
    claims = [claim["metadata"]["name"] for claim in one(found, "StatefulSet")["spec"].get("volumeClaimTemplates", [])]
    for pod in pods(found):
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted == volumes | (set(claims) if container["name"] == "application" else set())


def test_stores_are_below_the_volume_that_lasts() -> None:
    stateful = one(manifests(KUBERNETES), "StatefulSet")
    [claim] = stateful["spec"]["volumeClaimTemplates"]
    _, container = application(KUBERNETES)
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == claim["metadata"]["name"]]
    assert Path(variables(container)["PENSTOCK_STATE_DIR"]).parent == Path(mount["mountPath"])


@BOTH
def test_there_is_one_instance(directory: Path) -> None:
    assert one(manifests(directory), "StatefulSet")["spec"]["replicas"] == 1


@BOTH
def test_selectors_find_the_pod(directory: Path) -> None:
    found = manifests(directory)
    stateful = one(found, "StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"].items()
    selectors = [stateful["spec"]["selector"]["matchLabels"], one(found, "Service")["spec"]["selector"]]
    selectors += [one(found, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    selectors += [document["spec"]["selector"]["matchLabels"] for document in found if document["kind"] == "PodDisruptionBudget"]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels


def test_a_drain_may_evict_the_only_pod() -> None:
    budget = one(manifests(KUBERNETES), "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] >= one(manifests(KUBERNETES), "StatefulSet")["spec"]["replicas"]
    assert "minAvailable" not in budget


def test_prometheus_reads_metrics_with_the_read_token() -> None:
    found = manifests(KUBERNETES)
    monitor, service = one(found, "ServiceMonitor")["spec"], one(found, "Service")
    _, container = application(KUBERNETES)
    own = variables(container)
    [endpoint] = monitor["endpoints"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] in PATHS
    assert endpoint["scheme"] == "https"
    credentials = endpoint["authorization"]["credentials"]
    assert f"{credentials['name']}/{credentials['key']}" == own["PENSTOCK_ADMIN_READ_TOKEN"]
    assert endpoint["tlsConfig"]["serverName"] in own["PENSTOCK_ADMIN_HOSTS"].split(",")
    assert "insecureSkipVerify" not in endpoint["tlsConfig"]


def test_every_secret_has_its_example_without_a_value() -> None:
    examples = {
        document["metadata"]["name"]: document["stringData"] for document in documents(KUBERNETES / "secrets.example.yaml")
    }
    assert {value for example in examples.values() for value in example.values()} == {"REPLACE"}
    for directory in (KUBERNETES, SPARK):
        pod, container = application(directory)
        for value in variables(container).values():
            name, slash, key = value.partition("/")
            if slash and name:
                assert key in examples[name]
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["secretName"] in examples
