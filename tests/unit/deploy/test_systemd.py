"""The units of systemd: which ends are final, who gets signals, and what a service may not do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.errors import ConfigError, FencedError, IncompatibleTopologyError, TopologyError
from tests.unit.deploy.files import DEPLOY, STANDALONE, references

UNIT = DEPLOY / "systemd" / "penstock@.service"
UNITS = [UNIT, *sorted(STANDALONE.glob("*.service"))]
HARDENED = {
    "CapabilityBoundingSet": "",
    "LockPersonality": "yes",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "strict",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
}


def service(path: Path) -> dict[str, list[str]]:
    """The settings of the section [Service], which may repeat."""
    section = path.read_text(encoding="utf-8").partition("[Service]\n")[2].partition("\n[")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_services_are_hardened(path: Path) -> None:
    own = service(path)
    assert {name: own.get(name) for name in HARDENED} == {name: [value] for name, value in HARDENED.items()}
    assert own["User"] == ["penstock"]
    assert own["StateDirectoryMode"] == ["0700"]
    assert "@system-service" in own["SystemCallFilter"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_java_and_the_memory_of_the_machine_are_not_shut_out(path: Path) -> None:
    assert not {"MemoryDenyWriteExecute", "ProcSubset"} & service(path).keys()


def test_ends_that_a_restart_cannot_cure_are_final() -> None:
    own = service(UNIT)
    final = {error.exit_code for error in (ConfigError, TopologyError, IncompatibleTopologyError, FencedError)}
    assert {int(code) for code in own["RestartPreventExitStatus"][0].split()} == final
    assert own["Restart"] == ["on-failure"]


def test_a_stop_reaches_the_driver_only_and_a_killed_worker_stops_nothing() -> None:
    own = service(UNIT)
    assert own["KillMode"] == ["mixed"]
    assert own["OOMPolicy"] == ["continue"]


def test_stores_are_in_a_directory_of_the_unit() -> None:
    own = service(UNIT)
    [directory] = own["StateDirectory"]
    assert f"PENSTOCK_STATE_DIR=/var/lib/{directory}" in own["Environment"]
    assert "DynamicUser" not in own, "it would make the directory a symbolic link, which is refused"


def test_no_secret_is_on_a_command_line() -> None:
    for path in UNITS:
        [command] = service(path)["ExecStart"]
        assert not re.search(r"secret|passw|token", command, re.IGNORECASE)
    example = (STANDALONE / "spark.conf.example").read_text(encoding="utf-8")
    assert re.search(r"^spark\.authenticate\s+true$", example, re.MULTILINE)
    assert re.search(r"^spark\.authenticate\.secret\s+REPLACE$", example, re.MULTILINE)
    assert "SPARK_SECRET" in references((STANDALONE / "penstock.toml").read_text(encoding="utf-8"))


def test_workers_tell_executors_where_the_stores_of_the_host_are() -> None:
    own = service(STANDALONE / "spark-worker.service")
    [variable] = own["Environment"]
    assert variable.startswith(f"PENSTOCK_STATE_DIR=/var/lib/{own['StateDirectory'][0]}/")
