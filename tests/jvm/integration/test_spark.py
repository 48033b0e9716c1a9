"""The suite's Spark host itself: a few scenarios on a real broker and real Spark give what the test driver gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verification.integration.compare import differences
from verification.integration.cut import Cut
from verification.integration.hosts import driver
from verification.integration.hosts.application import ApplicationHost
from verification.integration.scenarios import BY_NAME

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def spark() -> Iterator[ApplicationHost]:
    with ApplicationHost("spark") as running:
        yield running


@pytest.mark.parametrize(
    ("name", "cut", "caching"),
    [
        ("chosen partitions and topics", Cut(20, 2), False),
        ("counts of counts", Cut(200, 3), False),
        ("global tables", Cut(200, 2), True),
        ("wall-clock punctuator", Cut(50, 2), False),
        ("final results", Cut(60, 2), True),
    ],
)
def test_spark_gives_what_the_test_driver_gives(spark: ApplicationHost, name: str, cut: Cut, caching: bool) -> None:
    scenario = BY_NAME[name]
    phases = scenario.phases(1, 150)
    expected = driver.run(scenario, phases, caching)
    actual = spark.run(scenario, phases, caching, cut)
    assert not [str(difference) for difference in differences(scenario, str(cut), caching, expected, actual)]
    assert actual.epochs >= len(phases) - 1
