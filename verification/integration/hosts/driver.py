"""The test driver: one record at a time. The other hosts must give the same results.

Shards are tasks with one driver each, unless the topology has watermarks or shared stores: then one driver serves all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock import Topology
from penstock.lanes.outbox import Row
from penstock.state import LaneState
from penstock.testing import TopologyTestDriver
from penstock.topology import SourceNode
from verification.harness.tasks import Tasks
from verification.integration.contents import contents_of_all
from verification.integration.inputs import SHARDS, partition_of
from verification.integration.scenario import SINK_PARTITIONS, Phase, Result, Scenario, Sent, Setup, chosen

WALL_CLOCK_MS = 1_000_000_000


def run(scenario: Scenario, phases: Sequence[Phase], caching: bool) -> Result:
    """The expected result of a scenario."""
    topology = scenario.build(Setup(caching))
    options: dict[str, Any] = {"wall_clock": WALL_CLOCK_MS, "caching": caching, "partitions": SINK_PARTITIONS}
    if _is_one_for_all(topology):
        with TopologyTestDriver(topology, **options) as driver:
            for phase in phases:
                for record in phase.records:
                    driver.pipe_raw(*record)
                if phase.advance_ms:
                    driver.advance_wall_clock(phase.advance_ms)
            return _result(topology, driver._outputs, [driver._state])
    with Tasks(topology, SHARDS, **options) as tasks:
        for phase, partitions in zip(phases, scenario.partitions(phases), strict=True):
            for record in phase.records:
                tasks.pipe_raw(*record, partition=partition_of(record.key, partitions[record.topic]))
            if phase.advance_ms:
                tasks.advance_wall_clock(phase.advance_ms)
        return _result(topology, tasks.outputs(), tasks.states())


def _result(topology: Topology, rows: Mapping[str, Iterable[Row]], states: Iterable[LaneState]) -> Result:
    outputs = {
        topic: [Sent(row.key, row.value, row.timestamp, row.headers, chosen(row.key, row.partition)) for row in sent]
        for topic, sent in rows.items()
    }
    specs = [spec for name, spec in topology.stores.items() if name not in topology.global_stores]
    return Result(outputs, {"stores": contents_of_all(states, specs)})


def _is_one_for_all(topology: Topology) -> bool:
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    return any(source.watermark is not None for source in sources) or any(spec.sharing for spec in topology.stores.values())
