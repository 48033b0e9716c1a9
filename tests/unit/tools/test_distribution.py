"""The name that pip installs: `penstock` on PyPI is somebody else's, so nothing of ours may tell anybody to install it."""

from __future__ import annotations

import re
import subprocess

import pytest

import penstock
from penstock.version import DISTRIBUTION
from tools.project import FILES, ROOT, metadata, version

_ELSES = re.compile(r"""pip install (?:-\S+ )*["']?penstock(?![-_]streams)[\s"'\[`:;]|\bversion\(["']penstock["']\)""")
"""A command that installs somebody else's package, and code that asks for its version."""


def test_the_project_has_its_name_and_the_version_of_the_package() -> None:
    assert metadata().name == DISTRIBUTION
    assert DISTRIBUTION.replace("-", "_") == FILES
    assert version() == penstock.__version__


@pytest.mark.parametrize(
    ("text", "is_elses"),
    [
        ("$ pip install penstock\n", True),
        ("`pip install penstock`", True),
        ("pip install 'penstock[avro]'", True),
        ('version("pen' + 'stock")', True),
        ("$ pip install penstock-streams\n", False),
        ("pip install 'penstock-streams[avro]'", False),
        ("pip install --no-deps penstock_streams-*.whl", False),
    ],
)
def test_what_is_looked_for(text: str, is_elses: bool) -> None:
    assert bool(_ELSES.search(text)) == is_elses


def test_nobody_is_told_to_install_what_is_somebody_elses() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name and not name.endswith(("test_distribution.py", ".png"))]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        if path.is_file()
        for match in _ELSES.finditer(path.read_bytes().decode(errors="replace"))
    ]
    assert found == []
