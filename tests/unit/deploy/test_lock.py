"""The locks of the images are the parts of `requirements.lock` that an application needs, with Spark and without."""

from __future__ import annotations

import re

from packaging.requirements import Requirement

from tests.unit.deploy.files import DEPLOY, ROOT, toml
from tools.components import runtime_dependencies

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
LOCAL = pins((DEPLOY / "requirements-local.lock").read_text(encoding="utf-8"))
OF_SPARK = {"pandas", "py4j", "pyspark"}
ON_OTHER_SYSTEMS = {"tzdata"}
"""Something else needs it on Windows."""
ON_OTHER_PYTHONS = {"six"}
"""pandas needs it there."""


def test_every_package_has_the_version_and_the_hashes_of_the_whole_lock() -> None:
    assert {name: pin for name, pin in NEEDED.items() if ALL.get(name) != pin} == {}


def declared() -> list[str]:
    project = toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]


def test_it_has_everything_that_the_package_requires() -> None:
    assert {Requirement(text).name.lower() for text in declared()} <= NEEDED.keys()


def test_without_spark_it_has_everything_else_and_nothing_that_only_spark_needs() -> None:
    assert {name: pin for name, pin in LOCAL.items() if NEEDED.get(name) != pin} == {}
    requirements = [Requirement(text) for text in declared()]
    by_use = {
        is_of_spark: set().union(
            *(
                runtime_dependencies(each.name, frozenset(each.extras)).keys()
                for each in requirements
                if (each.name in OF_SPARK) == is_of_spark and (each.marker is None or each.marker.evaluate())
            )
        )
        for is_of_spark in (True, False)
    }
    assert by_use[False] <= LOCAL.keys()
    assert (by_use[True] - by_use[False]) & LOCAL.keys() <= ON_OTHER_SYSTEMS
    assert by_use[True] - LOCAL.keys() >= OF_SPARK
    assert NEEDED.keys() - LOCAL.keys() <= by_use[True] | ON_OTHER_PYTHONS


def test_it_has_no_tool_of_the_developers() -> None:
    assert NEEDED.keys().isdisjoint({"hypothesis", "mypy", "pytest", "ruff", "setuptools", "uv"})
    assert {"hypothesis", "mypy", "pytest", "ruff", "setuptools", "uv"} <= ALL.keys()
