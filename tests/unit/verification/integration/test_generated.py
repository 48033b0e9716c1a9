"""Generated topologies as scenarios: their expected result is that of epochs in one process, and a wrong result is found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from penstock.topology import SourceNode
from verification.integration.compare import differences
from verification.integration.cut import Cut
from verification.integration.generated import EPOCH_RECORDS, Generated, generated
from verification.integration.hosts import in_process
from verification.integration.scenario import Result, Setup

pytestmark = pytest.mark.slow  # part of `make integration`, which has all of it

SEED = 7
CASES = 40


@cache
def some() -> tuple[Generated, ...]:
    return tuple(one for index in range(CASES) if (one := generated(SEED, index)) is not None)


def as_sent(result: Result) -> Result:
    """What a producer would make of it: it cannot send a timestamp of 0."""
    outputs = {topic: [row._replace(timestamp=max(1, row.timestamp)) for row in rows] for topic, rows in result.outputs.items()}
    return replace(result, outputs=outputs)


def test_most_cases_are_not_left_out() -> None:
    assert len(some()) > CASES / 2


@pytest.mark.parametrize("lanes", [1, 3])
def test_epochs_in_one_process_give_the_expected_result(lanes: int) -> None:
    for one in some():
        actual = as_sent(in_process.run(one.scenario, one.phases, one.caching, Cut(EPOCH_RECORDS, lanes)))
        assert differences(one.scenario, "", one.caching, one.expected, actual) == []


def test_a_record_that_is_sent_twice_is_found() -> None:
    one = next(one for one in some() if one.expected.outputs)
    actual = in_process.run(one.scenario, one.phases, one.caching, Cut(EPOCH_RECORDS, 1))
    topic, rows = next(iter(actual.outputs.items()))
    twice = replace(actual, outputs={**actual.outputs, topic: [*rows, rows[-1]]})
    assert differences(one.scenario, "", one.caching, one.expected, twice)


def test_an_entry_that_a_store_lost_is_found() -> None:
    one = next(one for one in some() if any(one.expected.stores["stores"].values()))
    actual = in_process.run(one.scenario, one.phases, one.caching, Cut(EPOCH_RECORDS, 1))
    stores = {kind: {name: entries[1:] for name, entries in found.items()} for kind, found in actual.stores.items()}
    assert differences(one.scenario, "", one.caching, one.expected, replace(actual, stores=stores))


def test_all_topics_of_a_run_have_its_prefix() -> None:
    for one in some():
        topology = one.scenario.build(Setup(one.caching, "run-7-"))
        sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        assert all(topic.startswith("run-7-") for node in sources for topic in node.topics)
