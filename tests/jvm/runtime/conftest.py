"""One Spark for the tests of a module that start their applications in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.spark.context import SparkSession, open_context


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = SparkSession(open_context("tests", 2, {}))
    yield session
    session.stop()
