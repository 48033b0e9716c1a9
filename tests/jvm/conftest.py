"""A broker that the tests of a run share; a test that hurts its broker starts one of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verification.harness.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
