"""One example: what the test driver writes for its sample data, what the application writes, and how the two differ."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.samples import pipe, produce
from penstock.testing import TopologyTestDriver
from verification.chaos.application import Application
from verification.examples.cases import Case, Outputs, Written, last_values
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

RUN_S = 120
SETTLED_S = 30


@dataclass(frozen=True)
class Result:
    """How a trial ended. `outputs` are the numbers of records that the application has written, by topic."""

    outputs: Mapping[str, int]
    differences: Sequence[str]
    seconds: float


def expected(case: Case) -> Outputs:
    """What the test driver writes."""
    handlers = case.app.error_handlers
    with TopologyTestDriver(
        case.app.topology,
        deserialization_errors=handlers.deserialization,
        processing_errors=handlers.processing,
        production_errors=handlers.production,
        fakes=case.fakes,
    ) as driver:
        pipe(driver, case.records())
        return {
            topic: [
                Written(record.key, record.value, record.timestamp)
                for record in driver.output(topic, key=bytes, value=bytes).records()
            ]
            for topic in case.compared()
        }


def run(case: Case, broker: Broker, directory: Path) -> Result:
    """Run the application until it has read the sample data, and compare; its topics are gone afterwards."""
    begun = time.monotonic()
    servers, known = broker.bootstrap_servers, expected(case)
    created = sorted(case.inputs() | case.outputs())
    for topic in created:
        topics.create(servers, topic)
    with case.surroundings() as around:
        _process(case, servers, directory / case.name, around.environment)
        found = {topic: _read(servers, topic) for topic in case.compared()}
        unlike = [*differences(case, known, found), *around.check(known)]
    for topic in created:
        topics.delete(servers, topic)
    return Result({topic: len(records) for topic, records in found.items()}, unlike, round(time.monotonic() - begun, 1))


def _process(case: Case, servers: str, directory: Path, more: Mapping[str, str]) -> None:
    """Run it twice, as a user would: for all records but the last, then for the last.

    What waits for a watermark is released when the next epoch begins, which the last record causes.
    """
    program, settings = case.directory / f"{case.module}.py", case.directory / "penstock.toml"
    command = (sys.executable, "-m", "penstock.cli", "run", f"{program}:app", "--config", str(settings), "--until", "latest")
    environment = {
        "PENSTOCK_BOOTSTRAP_SERVERS": servers,
        "PENSTOCK_ENGINE": "local",
        "PENSTOCK_STATE_DIR": str(directory / "state"),
        "PENSTOCK_ADMIN_ADDRESS": "off",
        **more,
    }
    application, records = Application(directory, environment, command), case.records()
    try:
        for part in (records[:-1], records[-1:]):
            produce(servers, part)
            application.run(RUN_S)
    finally:
        application.close()


def _read(servers: str, topic: str) -> list[Written]:
    """All records of a topic, once the last transaction has arrived there."""

    def is_settled() -> bool:
        return topics.end_offsets(servers, topic) == topics.end_offsets(servers, topic, committed=False)

    wait_until(f"transactions in {topic} are settled", is_settled, SETTLED_S)
    return [Written(record.key, record.value, record.timestamp) for record in topics.read(servers, topic)]


def differences(case: Case, known: Outputs, found: Outputs) -> list[str]:
    """What differs, by topic and key; and outputs that show nothing because nothing was written."""
    unlike = []
    for topic in case.compared():
        if bool(known[topic]) == (topic in case.empty):
            unlike.append(f"{topic}: the test driver wrote {len(known[topic])} records; correct `empty` of the case")
        theirs, ours = (_by_key(records, topic in case.tables) for records in (known[topic], found[topic]))
        unlike += [
            f"{topic}, key {key!r}: the test driver wrote {theirs.get(key)}, the application {ours.get(key)}"
            for key in sorted(theirs.keys() | ours.keys(), key=repr)
            if theirs.get(key) != ours.get(key)
        ]
    return unlike


def _by_key(records: Sequence[Written], is_table: bool) -> Mapping[Any, Any]:
    """The last value of each key of a table; all values of each key of a stream, in order, with their times."""
    if is_table:
        return last_values(records)
    sequences: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, value, timestamp in records:
        sequences[key].append((value, timestamp))
    return sequences
