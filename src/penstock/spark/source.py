"""Reads the source topics with Spark's Kafka source, by ranges of offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.settings import revealed

GROUP = "kafka.group.id"

POLL_RECORDS = 4_096
"""How many records a consumer reads at a time: with Kafka's default of 500, reading took twice as long."""

UNKNOWN_POLL_RECORDS = 4


def read_range(
    session: SparkSession,
    kafka: Mapping[str, str],
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    batch_records: int | None = None,
) -> DataFrame:
    """Read records by their offsets, once; `batch_records` is how many fit into memory easily, None if unknown."""
    options = polling(kafka, polled(batch_records))
    reader = session.read.format("kafka").options(**revealed(options)).option("assign", _by_topic(ranges, sorted))
    for side, name in enumerate(("startingOffsets", "endingOffsets")):
        offsets = {partition: bounds[side] for partition, bounds in ranges.items()}
        reader = reader.option(name, _by_topic(offsets, _of_partitions))
    return reader.option("includeHeaders", "true").option("failOnDataLoss", "true").load()


def polled(batch_records: int | None) -> int:
    """Return how many records to read at a time: a consumer keeps them in memory, and each partition has a consumer.

    The result is one of a few numbers, because Spark caches consumers for each.
    """
    if batch_records is None:
        return UNKNOWN_POLL_RECORDS
    records = POLL_RECORDS
    while records > max(batch_records, 1):
        records //= 4
    return records


def polling(kafka: Mapping[str, str], records: int) -> dict[str, str]:
    """Return the options for reading so many records at a time.

    Spark caches consumers, with their prefetched records, by group. By default every read has its own group: prefetched records
    would be lost, and would fill the memory for minutes. In one group, the next range uses them.
    """
    group = kafka.get(GROUP)
    own = {} if group is None else {GROUP: f"{group}-{records}"}
    return {**kafka, **own, "kafka.max.poll.records": str(records)}


def _by_topic(partitions: Mapping[tuple[str, int], Any], form: Callable[[dict[int, Any]], Any]) -> str:
    topics: dict[str, dict[int, Any]] = {}
    for (topic, partition), about in partitions.items():
        topics.setdefault(topic, {})[partition] = about
    return json.dumps({topic: form(abouts) for topic, abouts in topics.items()})


def _of_partitions(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
