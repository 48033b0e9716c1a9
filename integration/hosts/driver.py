"""The test driver: a record at a time, in one lane. What it gives is what the other hosts must give."""

from __future__ import annotations

from collections.abc import Sequence

from integration.contents import contents
from integration.scenario import SINK_PARTITIONS, Phase, Result, Scenario, Sent, Setup
from penstock.testing import TopologyTestDriver

WALL_CLOCK_MS = 1_000_000_000


def run(scenario: Scenario, phases: Sequence[Phase], caching: bool) -> Result:
    """The expected result of a scenario."""
    topology = scenario.build(Setup(caching))
    with TopologyTestDriver(topology, wall_clock=WALL_CLOCK_MS, caching=caching, partitions=SINK_PARTITIONS) as driver:
        for phase in phases:
            for topic, key, value, timestamp, headers in phase.records:
                driver.pipe_raw(topic, key, value, timestamp, headers)
            if phase.advance_ms:
                driver.advance_wall_clock(phase.advance_ms)
        outputs = {
            topic: [Sent(row.key, row.value, row.timestamp, row.headers, row.partition) for row in rows]
            for topic, rows in driver._outputs.items()
        }
        specs = [spec for name, spec in topology.stores.items() if name not in topology.global_stores]
        return Result(outputs, {"stores": contents(driver._state, specs)})
