"""A built wheel has the package and nothing else, and is the same whenever it is built."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools.components import components

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src"

pytestmark = pytest.mark.jvm


def build(project: Path, target: str, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def content_of(wheel: Path) -> dict[str, str]:
    """The files of the package with their checksums; not what is said about it."""
    with ZipFile(wheel) as content:
        names = [name for name in content.namelist() if ".dist-info/" not in name]
        return {name: hashlib.sha256(content.read(name)).hexdigest() for name in names}


def files() -> dict[str, str]:
    """The files of the package in the checkout with their checksums."""
    found = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(PACKAGE)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.security(32)
def test_the_wheel_has_the_package_and_bundles_nothing_of_others(tmp_path: Path) -> None:
    done = build(ROOT, "wheel", tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    found = content_of(wheel)
    assert found == files()
    assert "penstock/py.typed" in found
    assert not {Path(name).suffix for name in found} & {".jar", ".so", ".whl", ".zip", ".exe"}


@pytest.mark.security(31)
def test_a_wheel_can_be_built_from_the_sdist_alone(tmp_path: Path) -> None:
    done = build(ROOT, "sdist", tmp_path)
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as content:
        content.extractall(tmp_path / "source", filter="data")
    (project,) = (tmp_path / "source").iterdir()
    done = build(project, "wheel", tmp_path)
    assert done.returncode == 0, done.stderr
    assert content_of(next(tmp_path.glob("*.whl"))) == files()


@pytest.mark.security(31)
def test_two_builds_are_byte_identical(tmp_path: Path) -> None:
    """From the checkout or from the sdist, with other file times: always the same wheel."""
    assert build(ROOT, "wheel", tmp_path / "first").returncode == 0
    assert build(ROOT, "sdist", tmp_path).returncode == 0
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as content:
        content.extractall(tmp_path / "source", filter="data")
    (project,) = (tmp_path / "source").iterdir()
    for path in project.rglob("*"):
        os.utime(path, (1, 1))
    assert build(project, "wheel", tmp_path / "second").returncode == 0
    first, second = (next((tmp_path / name).glob("*.whl")) for name in ("first", "second"))
    assert first.name == second.name
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


@pytest.mark.security(31)
@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_two_builds_of_a_commit_are_byte_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """As `make dist` builds them: with the time of the commit."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    contents = []
    for name in ("first", "second"):
        assert build(ROOT, target, tmp_path / name).returncode == 0
        [built] = (tmp_path / name).iterdir()
        contents.append((built.name, hashlib.sha256(built.read_bytes()).hexdigest()))
    assert contents[0] == contents[1]


@pytest.mark.security(33)
def test_what_the_wheel_needs_is_listed_with_its_checksums(tmp_path: Path) -> None:
    """Beside the wheel: it bundles nothing."""
    assert build(ROOT, "wheel", tmp_path).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as content:
        [name] = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        lines = content.read(name).decode().splitlines()
    assert not [name for name in content.namelist() if "/sboms/" in name]
    listing = components()
    assert (listing["bomFormat"], listing["specVersion"]) == ("CycloneDX", "1.6")
    own = listing["metadata"]["component"]
    assert own["purl"] == f"pkg:pypi/penstock-streams@{wheel.name.split('-')[1]}"
    parts = {part["bom-ref"]: part for part in listing["components"]}
    assert all(part["externalReferences"] for part in parts.values())
    assert all(file["hashes"] for part in parts.values() for file in part["externalReferences"])
    [needed] = [edge["dependsOn"] for edge in listing["dependencies"] if edge["ref"] == own["bom-ref"]]
    assert "Requires-Dist: pyspark<4.4,>=4.2" in lines
    [locked] = re.findall(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert parts[f"pkg:pypi/pyspark@{locked}"]["version"] == locked
    assert f"pkg:pypi/pyspark@{locked}" in needed
