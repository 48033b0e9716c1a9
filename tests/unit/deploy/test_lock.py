"""The lock of the images is the part of `requirements.lock` that an application needs."""

from __future__ import annotations

import re

from tests.unit.deploy.files import DEPLOY, ROOT, toml

Pins = dict[str, tuple[str, frozenset[str]]]


def pins(text: str) -> Pins:
    """The packages of a lock, each with its version and its hashes."""
    entries = text.replace("\\\n", " ").splitlines()
    return {
        entry.split("==")[0]: (re.split(r"[\s;]", entry.split("==")[1])[0], frozenset(re.findall(r"sha256:[0-9a-f]{64}", entry)))
        for entry in entries
    }


ALL = pins((ROOT / "requirements.lock").read_text(encoding="utf-8"))
NEEDED = pins((DEPLOY / "requirements.lock").read_text(encoding="utf-8"))


def test_every_package_has_the_version_and_the_hashes_of_the_whole_lock() -> None:
    assert {name: pin for name, pin in NEEDED.items() if ALL.get(name) != pin} == {}


def test_it_has_everything_that_the_package_requires() -> None:
    project = toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    assert {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in declared} <= NEEDED.keys()


def test_it_has_no_tool_of_the_developers() -> None:
    assert NEEDED.keys().isdisjoint({"hypothesis", "mypy", "pytest", "ruff", "setuptools", "uv"})
    assert {"hypothesis", "mypy", "pytest", "ruff", "setuptools", "uv"} <= ALL.keys()
