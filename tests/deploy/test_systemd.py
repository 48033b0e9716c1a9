"""The units, as systemd itself reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.deploy.test_systemd import UNITS

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")

MOST_EXPOSED = 20
"""Tenths of systemd's measure, of which 100 is the worst: 15 and below is hardly possible for what needs the network."""


def installed(path: Path, directory: Path) -> Path:
    """A copy of a unit, of a template for the instance `orders`."""
    return Path(shutil.copy(path, directory / path.name.replace("@.", "@orders.")))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_knows_every_setting(path: Path, tmp_path: Path) -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(installed(path, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "/opt/penstock/bin/" not in line]  # which is not installed here
    assert complaints == []


def test_an_unknown_setting_would_be_found(tmp_path: Path) -> None:
    unit = installed(UNITS[0], tmp_path)
    unit.write_text(unit.read_text(encoding="utf-8").replace("NoNewPrivileges", "NoNewPrivilege"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert "NoNewPrivilege" in done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_services_are_hardly_exposed(path: Path, tmp_path: Path) -> None:
    options = ["--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED}"]
    command = ["systemd-analyze", "security", *options, str(installed(path, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
