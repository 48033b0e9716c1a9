"""A broker shared by the tests of a run; a test that kills or pauses its broker starts its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verification.harness.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
