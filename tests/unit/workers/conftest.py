"""Pools of worker processes for the tests: two that all tests share, of one and of two workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.workers.pool import WorkerPool
from tests.unit.epochs.application import program_of
from tests.unit.workers.programs import nothing, stateless


@pytest.fixture(scope="session")
def pools() -> Iterator[list[WorkerPool]]:
    """A pool of one worker and one of two, by their positions."""
    made = [WorkerPool(program_of(stateless()), nothing, size, lambda line: None) for size in (1, 2)]
    for pool in made:
        pool.start()
    yield made
    for pool in made:
        pool.close()
