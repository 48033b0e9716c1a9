"""A built wheel contains the connector's jars; without them, none is built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINNED = (line.split() for line in (ROOT / "tools/connector/jars.sha256").read_text().splitlines())
SUMS = {name: digest for digest, name in PINNED}

pytestmark = pytest.mark.jvm


def build(project: Path, target: str, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def jars_in(wheel: Path) -> dict[str, str]:
    with ZipFile(wheel) as content:
        names = [name for name in content.namelist() if name.startswith("penstock/spark/jars/") and name.endswith(".jar")]
        return {Path(name).name: hashlib.sha256(content.read(name)).hexdigest() for name in names}


def test_the_wheel_bundles_the_pinned_jars_and_finds_them(tmp_path: Path) -> None:
    done = build(ROOT, "wheel", tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert jars_in(wheel) == SUMS

    with ZipFile(wheel) as content:
        assert "penstock/py.typed" in content.namelist()
        content.extractall(tmp_path / "installed")
    script = "from penstock.spark.jars import connector_jars; print(*connector_jars(), sep='\\n')"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, env={"PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True, check=True)
    assert {Path(line).name for line in found.stdout.splitlines()} == set(SUMS)
    assert all(Path(line).is_relative_to(tmp_path / "installed") for line in found.stdout.splitlines())


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
    assert jars_in(next(tmp_path.glob("*.whl"))) == SUMS


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
def test_the_wheel_lists_its_components(tmp_path: Path) -> None:
    assert build(ROOT, "wheel", tmp_path).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as content:
        [name] = [name for name in content.namelist() if ".dist-info/sboms/" in name]
        listing = json.loads(content.read(name))
    assert name.endswith(".cdx.json")
    assert (listing["bomFormat"], listing["specVersion"]) == ("CycloneDX", "1.6")
    assert listing["metadata"]["component"]["purl"].startswith("pkg:pypi/penstock@")
    found = {f"{part['name']}-{part['version']}.jar": part["hashes"][0]["content"] for part in listing["components"]}
    assert found == jars_in(wheel) == SUMS
    assert all(part["purl"].startswith(f"pkg:maven/{part['group']}/") for part in listing["components"])
    [edges] = listing["dependencies"]
    assert set(edges["dependsOn"]) == {part["bom-ref"] for part in listing["components"]}


@pytest.mark.security(32)
@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_no_wheel_is_built_without_the_jars(tmp_path: Path, harm: str) -> None:
    project = tmp_path / "project"
    for file in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "tools/connector/jars.sha256",
        "tools/connector/bring",
    ):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, project / file)
    shutil.copytree(ROOT / "src", project / "src")
    shutil.copytree(ROOT / ".parts/connector", project / ".parts/connector")
    jar = project / ".parts/connector" / next(iter(SUMS))
    if harm == "missing":
        jar.unlink()
    else:
        jar.write_bytes(b"something else")
    done = build(project, "wheel", tmp_path)
    assert done.returncode != 0
    assert "Run `make setup`" in done.stderr
    assert jar.name in done.stderr
    assert not list(tmp_path.glob("*.whl"))
