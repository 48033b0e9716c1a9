"""Writing the records of a workload to topics."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer

from benchmarks.workloads.workload import Expected, Workload
from verification.harness import topics
from verification.harness.patience import TIMEOUT_S
from verification.harness.processes import HarnessError, wait_until

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Loaded:
    """Topics with the records of a workload, the measured one first, and the results when each record counts once."""

    workload: Workload
    sources: tuple[str, ...]
    records: int
    """Those of the measured source."""
    expected: Expected


def create(bootstrap_servers: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a topic and wait until its leaders are ready."""
    topics.create(bootstrap_servers, topic, partitions)

    def answers() -> bool:
        with contextlib.suppress(KafkaException):
            return len(topics.end_offsets(bootstrap_servers, topic)) == partitions
        return False

    wait_until(f"{topic} answers", answers)


def load(
    bootstrap_servers: str, workload: Workload, records: int | None = None, *, name: str = "in", partitions: int = PARTITIONS
) -> Loaded:
    """Create the sources, called `name` and their own name, and write the records into them."""
    sources = create_sources(bootstrap_servers, workload, name, partitions)
    return write(bootstrap_servers, workload, records, sources)


def create_sources(bootstrap_servers: str, workload: Workload, name: str, partitions: int = PARTITIONS) -> dict[str, str]:
    """Create the sources; return their topics."""
    sources = {source: f"{name}-{source}" for source in workload.sources}
    for topic in sources.values():
        create(bootstrap_servers, topic, partitions)
    return sources


def write(
    bootstrap_servers: str,
    workload: Workload,
    records: int | None,
    sources: Mapping[str, str],
    only: Collection[str] | None = None,
) -> Loaded:
    """Write the records into all sources, or into some only."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            **topics.ONE_BY_ONE,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    written = dict.fromkeys(sources if only is None else only, 0)
    inputs, expected = workload.inputs(workload.records if records is None else records)
    for source, key, value, timestamp_ms in inputs:
        if source not in written:
            continue
        while True:
            try:
                producer.produce(sources[source], value, key, timestamp=timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
        written[source] += 1
    unsent = producer.flush(TIMEOUT_S)
    for source, count in written.items():
        if unsent or sum(topics.end_offsets(bootstrap_servers, sources[source]).values()) != count:
            raise HarnessError(f"{sources[source]} does not contain the {count} records that were written to it")
    return Loaded(workload, tuple(sources.values()), written.get(workload.sources[0], 0), expected)
