"""Every scenario in epochs, in one process: the same as in the test driver, whatever the size of epochs and number of lanes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verification.integration.compare import differences
from verification.integration.cut import Cut
from verification.integration.hosts import driver, in_process
from verification.integration.hosts.in_process import Trouble
from verification.integration.scenario import Scenario
from verification.integration.scenarios import BY_NAME, SCENARIOS

pytestmark = pytest.mark.slow  # part of `make integration`, which has all of it

CUTS = (Cut(11, 2), Cut(31, 5), Cut(1000, 3))
RECORDS = 60


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_epochs_and_lanes_make_no_difference(scenario: Scenario) -> None:
    """Alternately with and without caches; `make integration` has all combinations."""
    number = SCENARIOS.index(scenario)
    cut, caching = CUTS[number % len(CUTS)], number % 2 == 0
    phases = scenario.phases(1, RECORDS)
    expected = driver.run(scenario, phases, caching)
    actual = in_process.run(scenario, phases, caching, cut)
    assert not [str(difference) for difference in differences(scenario, str(cut), caching, expected, actual)]
    assert any(expected.outputs.values())


@pytest.mark.parametrize("name", ["counts of counts", "own event times", "foreign-key joins, a turn at a time"])
def test_epochs_of_one_make_no_difference(name: str) -> None:
    scenario = BY_NAME[name]
    phases = scenario.phases(3, 30)
    expected = driver.run(scenario, phases, caching=True)
    actual = in_process.run(scenario, phases, True, Cut(1, 2))
    assert not differences(scenario, "one by one", True, expected, actual)


@pytest.mark.parametrize("trouble", [Trouble.RETRIES, Trouble.RESTARTS], ids=lambda trouble: trouble.name.lower())
@pytest.mark.parametrize(
    "name",
    [
        "five exchanges",
        "final results",
        "foreign-key joins",
        "wall-clock punctuator",
        "atomic transfers",
        "writes to keys of other lanes",
    ],
)
def test_retries_and_restarts_make_no_difference(name: str, trouble: Trouble) -> None:
    scenario = BY_NAME[name]
    phases = scenario.phases(2, RECORDS)
    expected = driver.run(scenario, phases, caching=False)
    actual = in_process.run(scenario, phases, False, Cut(20, 2), trouble)
    assert not [str(difference) for difference in differences(scenario, trouble.value, False, expected, actual)]


@pytest.mark.parametrize("name", ["atomic transfers", "writes to keys of other lanes"])
def test_the_order_of_writes_from_several_partitions_does_not_depend_on_lanes(name: str) -> None:
    """The test driver has one partition, so runs with different lanes are compared with each other."""
    scenario = replace(BY_NAME[name], input_partitions=3)
    phases = scenario.phases(4, RECORDS)
    expected = in_process.run(scenario, phases, False, Cut(25, 1))
    for lanes in (2, 5):
        actual = in_process.run(scenario, phases, False, Cut(25, lanes))
        assert not [str(difference) for difference in differences(scenario, f"{lanes} lanes", False, expected, actual)]
