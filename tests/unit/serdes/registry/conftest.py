"""A registry in memory, and one behind HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from tests.unit.serdes.registry.stub import Stub


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def registry(source: MemorySource) -> Registry:
    return Registry(source)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as running:
        yield running
