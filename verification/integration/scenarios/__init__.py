"""All scenarios, by subject."""

from verification.integration.scenario import Scenario
from verification.integration.scenarios import (
    aggregations,
    asynchronous,
    joins,
    processors,
    routing,
    shared,
    tables,
    topic_growth,
    watermarks,
    windows,
)

SCENARIOS: tuple[Scenario, ...] = (
    *aggregations.SCENARIOS,
    *windows.SCENARIOS,
    *watermarks.SCENARIOS,
    *joins.SCENARIOS,
    *tables.SCENARIOS,
    *processors.SCENARIOS,
    *routing.SCENARIOS,
    *topic_growth.SCENARIOS,
    *asynchronous.SCENARIOS,
    *shared.SCENARIOS,
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
