"""The suite itself: inputs are functions of a seed, and the scenarios cover every kind of store and join."""

from __future__ import annotations

import zlib

import pytest

from penstock.operators.foreign_keys import ResponseJoin
from penstock.operators.joins import StreamStreamJoin
from penstock.operators.stream_tables import StreamGlobalTableJoin, StreamTableJoin
from penstock.operators.table_joins import TableJoinSide
from penstock.state import StoreKind
from penstock.topology import ProcessorNode, SourceNode, Topology
from penstock.topology.plan import plan
from verification.integration.inputs import EVERYWHERE, SHARDS
from verification.integration.scenario import Scenario, Setup
from verification.integration.scenarios import BY_NAME, SCENARIOS


def topologies() -> list[Topology]:
    return [scenario.build(Setup(caching=True)) for scenario in SCENARIOS]


def test_there_are_enough_scenarios_with_unique_names() -> None:
    assert len(SCENARIOS) >= 20
    assert len(BY_NAME) == len({scenario.slug for scenario in SCENARIOS}) == len(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_an_input_is_a_function_of_its_seed(scenario: Scenario) -> None:
    assert scenario.phases(3, 60) == scenario.phases(3, 60) != scenario.phases(4, 60)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_caching_is_off_where_it_is_switched_off(scenario: Scenario) -> None:
    topology = scenario.build(Setup(caching=False))
    assert not [name for name, spec in topology.stores.items() if spec.cached and name not in topology.global_stores]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_the_input_topics_are_the_source_topics(scenario: Scenario) -> None:
    sources = [node for node in scenario.build(Setup(caching=True)).nodes.values() if isinstance(node, SourceNode)]
    read = {topic for node in sources if not node.internal for topic in node.topics}
    fed = {record.topic for phase in scenario.phases(1, 60) for record in phase.records}
    written = {output.topic for output in scenario.outputs}
    assert all(any(node.reads(topic) for node in sources) for topic in fed)
    assert read - fed <= written


def test_every_kind_of_store_and_join_occurs() -> None:
    kinds = {spec.kind for topology in topologies() for spec in topology.stores.values()}
    assert kinds == set(StoreKind)
    joins: set[tuple[type, object]] = set()
    for topology in topologies():
        for node in topology.nodes.values():
            operator = node.operator if isinstance(node, ProcessorNode) else None
            if isinstance(operator, (StreamStreamJoin, TableJoinSide)):
                joins.add((type(operator), operator.kind))
            elif isinstance(operator, (StreamTableJoin, StreamGlobalTableJoin, ResponseJoin)):
                joins.add((type(operator), operator.left))
    sides: set[tuple[type, object]] = {(TableJoinSide, kind) for kind in ("inner", "left", "right", "outer")}
    streams: set[tuple[type, object]] = {(StreamStreamJoin, kind) for kind in ("inner", "left", "outer")}
    others: set[tuple[type, object]] = {
        (kind, left) for kind in (StreamTableJoin, StreamGlobalTableJoin, ResponseJoin) for left in (False, True)
    }
    assert joins == sides | streams | others


def test_some_have_two_exchanges_or_more() -> None:
    assert max(plan(topology).exchanges for topology in topologies()) >= 5
    assert sum(plan(topology).exchanges >= 2 for topology in topologies()) >= 5


def test_some_keys_reach_every_shard() -> None:
    assert sorted(zlib.crc32(key.encode()) % SHARDS for key in EVERYWHERE) == list(range(SHARDS))
