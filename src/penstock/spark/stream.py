"""The stream of epochs: Structured Streaming calls back once per micro-batch, with the offsets at which it really ends.

Its checkpoint is temporary: new at every start, and Kafka always has the last word.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.config import revealed

GROUP = "kafka.group.id"

POLL_RECORDS = 4_096
"""How many records the stream reads at a time: with Kafka's default of 500, reading took twice as long."""

UNKNOWN_POLL_RECORDS = 4

Offsets = dict[tuple[str, int], int]
OnBatch = Callable[[DataFrame, Offsets], None]


class EpochStream:
    """Micro-batches from topic partitions, starting at given offsets."""

    def __init__(
        self,
        session: SparkSession,
        kafka: Mapping[str, str],
        start: Mapping[tuple[str, int], int],
        on_batch: OnBatch,
        interval_ms: int,
        max_records: int,
    ) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="penstock-"))
        self._on_batch = on_batch
        self._failure: BaseException | None = None
        reader = session.readStream.format("kafka")
        frame = (
            reader.options(**revealed(polling(kafka, POLL_RECORDS)))
            .option("assign", _by_topic(start, sorted))
            .option("startingOffsets", _by_topic(start, _of_partitions))
            .option("maxOffsetsPerTrigger", max_records)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .load()
        )
        self._writer = (
            frame.writeStream.foreachBatch(self._epoch)
            .option("checkpointLocation", str(self._scratch))
            .trigger(processingTime=f"{interval_ms} milliseconds")
        )
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Start; a thread of Spark calls `on_batch`."""
        self._query = self._writer.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has come. Raises the error that ended the stream."""
        assert self._query is not None
        try:
            ended = self._query.awaitTermination(timeout_s)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            raise self._failure or error from None
        if ended and self._failure is not None:
            raise self._failure
        return bool(ended)

    def stop(self) -> None:
        """Stop; a batch that is running is interrupted."""
        if self._query is not None:
            self._query.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._on_batch = _ignore  # the JVM keeps a reference to this stream, which would keep the application alive

    def _epoch(self, frame: DataFrame, batch: int) -> None:
        try:
            self._on_batch(frame, self._ends(batch))
        except BaseException as error:
            self._failure = error
            raise

    def _ends(self, batch: int) -> Offsets:
        """Read where the batch ends from Spark's offset log: transaction markers have offsets too, so records do not show it."""
        lines = (self._scratch / "offsets" / str(batch)).read_text().splitlines()
        found: dict[str, dict[str, int]] = json.loads(lines[-1])
        return {(topic, int(partition)): offset for topic, ends in found.items() for partition, offset in ends.items()}


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


def is_light(batch_records: int | None) -> bool:
    """Whether records are small enough to read as many at a time as the stream does."""
    return batch_records is not None and batch_records >= POLL_RECORDS


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


def _ignore(frame: DataFrame, ends: Offsets) -> None:
    """Do nothing: the stream was stopped."""


def _by_topic(partitions: Mapping[tuple[str, int], Any], form: Callable[[dict[int, Any]], Any]) -> str:
    topics: dict[str, dict[int, Any]] = {}
    for (topic, partition), about in partitions.items():
        topics.setdefault(topic, {})[partition] = about
    return json.dumps({topic: form(abouts) for topic, abouts in topics.items()})


def _of_partitions(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
