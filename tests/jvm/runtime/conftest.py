"""One Spark for the tests of a module that start their applications in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verification.operations.plan_cases import session


@pytest.fixture(scope="module")
def spark() -> Iterator[None]:
    with session():
        yield
