"""Slots that all tests share: one and two forked ones, and two in tasks of a Spark that has no Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.forked.slots import ForkedSlots
from penstock.spark.slots import SparkSlots
from tests.unit.engines.comparing import Engines
from tests.unit.engines.programs import nothing, stateless
from tests.unit.epochs.application import program_of
from tests.unit.spark.without_java import Context, Spark


@pytest.fixture(scope="session")
def forked() -> Iterator[list[ForkedSlots]]:
    """A single forked slot, and two, by their positions."""
    made = [ForkedSlots(program_of(stateless()), nothing, size, lambda line: None) for size in (1, 2)]
    for slots in made:
        slots.start()
    yield made
    for slots in made:
        slots.close()


@pytest.fixture(scope="session")
def tasks() -> Iterator[SparkSlots]:
    """Two slots in tasks of the lane job, which may be killed by as many tests as there are."""
    spark: Any = Spark(Context(most_failures=10_000))
    slots = SparkSlots(program_of(stateless()), nothing, spark)
    slots.start()
    yield slots
    slots.close()


@pytest.fixture
def engines(tmp_path: Path, forked: list[ForkedSlots], tasks: SparkSlots) -> Iterator[Engines]:
    """The engines that a test compares; they end with it."""
    made = Engines(tmp_path, {"one slot": forked[0], "forked": forked[1], "tasks": tasks})
    yield made
    made.close()
