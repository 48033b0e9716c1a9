"""What the examples of deployments set exists, is accepted, and contains no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import _NAMES, Config
from penstock.setting_values import VARIABLE_PREFIX
from penstock.settings import is_secret
from tests.unit.deploy.files import (
    CHART,
    DEPLOY,
    KUBERNETES,
    SPARK,
    documents,
    manifests,
    one,
    pods,
    references,
    settings,
    settings_files,
    variables,
)

FILES = settings_files()


def test_every_kind_of_deployment_has_settings() -> None:
    assert {name.split("/")[1] for name in FILES} == {"kubernetes", "helm", "spark"}
    assert len(FILES) == 5


@pytest.mark.parametrize("name", FILES)
def test_penstock_accepts_the_settings(name: str, tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(FILES[name])
    config = Config.load(path, dict.fromkeys(references(FILES[name]), "s3cr3t-from-the-environment"))
    assert config.lanes is not None, "a container sees all cores of its node: lanes must be set"
    assert not config.is_spread or config.shards is not None, "a cluster has more lanes than most topics have partitions"


@pytest.mark.parametrize("name", FILES)
def test_no_settings_contain_a_secret(name: str) -> None:
    secrets = {
        setting: value for setting, value in settings(FILES[name]).items() if is_secret(setting.rpartition("/")[2], str(value))
    }
    assert all(value.startswith(("env:", "file:")) for value in secrets.values()), secrets.keys()


@pytest.mark.parametrize("directory", [KUBERNETES, SPARK], ids=["plain", "spark"])
def test_pods_have_what_their_settings_refer_to(directory: Path) -> None:
    found = manifests(directory)
    text = one(found, "ConfigMap")["data"]["penstock.toml"]
    given = settings(text)
    for pod in pods(found):
        [container] = pod["containers"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert str(Path(given["kafka/ssl.ca.location"]).parent) in mounts
        if container["name"] == "application":
            own = variables(container)
            assert references(text) <= own.keys()
            used = [value for name, value in own.items() if name in {"PENSTOCK_ADMIN_CERTIFICATE", "PENSTOCK_ADMIN_KEY"}]
            assert len(used) == 2
            assert {str(Path(value).parent) for value in used} <= mounts
            assert str(Path(container["args"][-1]).parent) in mounts


def test_the_values_of_the_chart_provide_what_their_settings_refer_to() -> None:
    for path in (CHART / "values.yaml", *CHART.glob("ci/*.yaml")):
        [values] = documents(path)
        text = values.get("config", "")
        assert references(text) <= values.get("secrets", {}).keys(), path.name
        directories = set(re.findall(r'"/etc/penstock/([\w-]+)/', text))
        assert directories <= values.get("files", {}).keys(), path.name


def test_every_variable_is_a_setting() -> None:
    known = {f"{VARIABLE_PREFIX}{name.upper()}" for name in _NAMES}
    seen = set()
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            found = set(re.findall(rf"\b{VARIABLE_PREFIX}[A-Z_]+\b", path.read_text(encoding="utf-8")))
            assert found <= known, path
            seen |= found
    assert {"PENSTOCK_ADMIN_ADDRESS", "PENSTOCK_ADMIN_TOKEN", "PENSTOCK_STATE_DIR"} <= seen


def test_settings_on_a_cluster_fit_together() -> None:
    found = manifests(SPARK)
    given = settings(one(found, "ConfigMap")["data"]["penstock.toml"])
    driver, service = one(found, "StatefulSet"), one(found, "Service")
    pod = driver["spec"]["template"]["spec"]
    name, namespace = driver["metadata"]["name"], given["spark/spark.kubernetes.namespace"]
    cores = int(given["spark/spark.executor.instances"]) * int(given["spark/spark.executor.cores"])
    assert cores - int(given["spark/spark.executor.cores"]) < given["lanes"] < cores  # at least one is left for other jobs
    assert given["spark/spark.kubernetes.driver.pod.name"] == f"{name}-0"
    assert driver["spec"]["serviceName"] == service["metadata"]["name"]
    assert given["spark/spark.driver.host"] == f"{name}-0.{service['metadata']['name']}.{namespace}.svc"
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert {given["spark/spark.driver.port"], given["spark/spark.blockManager.port"]} <= ports
    assert given["spark/spark.kubernetes.container.image"] == pod["containers"][0]["image"]
    [subject] = one(found, "RoleBinding")["subjects"]
    assert subject["name"] == pod["serviceAccountName"] == one(found, "ServiceAccount")["metadata"]["name"]
    volume = "spark/spark.kubernetes.executor.volumes.persistentVolumeClaim.state"
    assert Path(given["spark/spark.executorEnv.PENSTOCK_STATE_DIR"]).parent == Path(given[f"{volume}.mount.path"])
