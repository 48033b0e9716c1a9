"""Every example in a docstring of the product, run unchanged."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import penstock

MODULES = sorted(module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_pass(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) > 10
