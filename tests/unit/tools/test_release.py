"""The checks before a release: each finds what is wrong, and names the cure."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools.release import changelog_problems, main, problems, version_problems

NUMBER = "1.2.0"
INFO = f"penstock_streams-{NUMBER}.dist-info"
CHANGELOG = f"# Changelog\n\n## [Unreleased]\n\n## [{NUMBER}] - 2026-01-31\n\n- Something.\n\n## [1.1.0] - 2025-01-01\n"
FILES = {
    "pyproject.toml": f'[project]\nname = "penstock-streams"\nversion = "{NUMBER}"\n',
    "CHANGELOG.md": CHANGELOG,
    "src/penstock/__init__.py": "",
    "src/penstock/cli/scaffold/app.py.template": "",
    ".gitignore": "/dist/\n",
}
WHEEL = {
    "penstock/__init__.py": b"",
    "penstock/cli/scaffold/app.py.template": b"",
    f"{INFO}/METADATA": f"Metadata-Version: 2.4\nName: penstock-streams\nVersion: {NUMBER}\n".encode(),
    f"{INFO}/RECORD": b"",
    f"{INFO}/WHEEL": b"",
    f"{INFO}/entry_points.txt": b"",
    f"{INFO}/licenses/LICENSE": b"",
}
SDIST = [
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO"),
    *("src/penstock/__init__.py", "src/penstock/cli/scaffold/app.py.template"),
]


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout that is ready to be released."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "All")
    git(tmp_path, "tag", f"v{NUMBER}")
    build(tmp_path)
    return tmp_path


def build(root: Path, wheel: dict[str, bytes] | None = None, sdist: list[str] | None = None) -> None:
    dist = root / "dist"
    dist.mkdir(exist_ok=True)
    with ZipFile(dist / f"penstock_streams-{NUMBER}-py3-none-any.whl", "w") as content:
        for name, data in (WHEEL if wheel is None else wheel).items():
            content.writestr(name, data)
    with tarfile.open(dist / f"penstock_streams-{NUMBER}.tar.gz", "w:gz") as packed:
        for name in SDIST if sdist is None else sdist:
            packed.addfile(tarfile.TarInfo(f"penstock_streams-{NUMBER}/{name}"), io.BytesIO())
    (dist / f"penstock_streams-{NUMBER}.cdx.json").write_text(json.dumps({"bomFormat": "CycloneDX"}))


def found(root: Path) -> list[str]:
    return problems(root / "dist", root)


def test_a_complete_release_has_no_problem(root: Path) -> None:
    assert found(root) == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1.2.0.dev0", "one of development"),
        ("1.2.0+own", "one of development"),
        ("1.02", "not in its normal form"),
        ("x", "PEP 440"),
    ],
)
def test_a_version_that_cannot_be_released(number: str, said: str) -> None:
    assert said in " ".join(version_problems(number))


def test_a_version_that_can_be_released() -> None:
    assert [*version_problems("1.2.0"), *version_problems("2.0.0rc1")] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("## [Unreleased]\n\n- A.\n", f"no section [{NUMBER}]"),
        (f"## [{NUMBER}]\n\n- A.\n", "has no date"),
        (f"## [{NUMBER}] - 2026-01-31\n\n## [1.1.0] - 2025-01-01\n\n- A.\n", "lists nothing"),
        (f"## [Unreleased]\n\n- B.\n\n## [{NUMBER}] - 2026-01-31\n\n- A.\n", "[Unreleased] still lists changes"),
    ],
)
def test_a_changelog_that_is_not_complete(text: str, said: str) -> None:
    assert any(said in problem for problem in changelog_problems(NUMBER, text))


def test_a_commit_without_the_tag(root: Path) -> None:
    git(root, "tag", "--delete", f"v{NUMBER}")
    assert [problem.partition(". ")[0] for problem in found(root)] == [f"tag: the commit has no tag v{NUMBER}"]


def test_changes_that_are_not_committed(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(CHANGELOG + "\n")
    [problem] = found(root)
    assert "not committed" in problem


def test_a_missing_and_a_strange_file(root: Path) -> None:
    (root / "dist" / "other.whl").write_text("")
    assert "other.whl, which would be published" in " ".join(found(root))
    (root / "dist" / f"penstock_streams-{NUMBER}.tar.gz").unlink()
    assert f"has no penstock_streams-{NUMBER}.tar.gz. Run: make dist" in " ".join(found(root))


@pytest.mark.parametrize("name", WHEEL)
def test_a_file_that_the_wheel_lacks(root: Path, name: str) -> None:
    build(root, wheel={each: data for each, data in WHEEL.items() if each != name})
    [problem] = found(root)
    assert problem.startswith("wheel: ")
    assert name.rpartition("/")[2] in problem


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("penstock/secret.txt", b"", "is not a file of the package"),
        ("tests/test_a.py", b"", "is not a file of the package"),
        ("penstock/spark/jars/one.jar", b"a jar", "is not a file of the package"),
        (f"{INFO}/METADATA", b"Version: 9\n", "its metadata has version 9"),
    ],
)
def test_what_does_not_belong_into_the_wheel(root: Path, name: str, data: bytes, said: str) -> None:
    build(root, wheel={**WHEEL, name: data})
    [problem] = found(root)
    assert said in problem


@pytest.mark.parametrize("name", SDIST)
def test_a_file_that_the_sdist_lacks(root: Path, name: str) -> None:
    build(root, sdist=[each for each in SDIST if each != name])
    [problem] = found(root)
    assert problem.startswith(f"sdist: {name} is missing")


def test_a_list_of_components_that_is_none(root: Path) -> None:
    (root / "dist" / f"penstock_streams-{NUMBER}.cdx.json").write_text("{}")
    [problem] = found(root)
    assert "CycloneDX" in problem


def test_the_command_prints_all_problems_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(str(tmp_path)) == 1
    assert "Run: make dist" in capsys.readouterr().out
