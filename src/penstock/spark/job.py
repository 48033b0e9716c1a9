"""One Spark job per epoch: source rows, through the stages with a shuffle between them, to rows out. One action, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.epochs.entering import needs_entering
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import OUT, WIRE
from penstock.spark.stream import read_range
from penstock.spark.tasks import empty_epoch, from_sources, on_lane, whole_epoch

_OUT = from_arrow_schema(OUT)
_WIRE = from_arrow_schema(WIRE)


class EpochJobs:
    """Runs epochs of a program on a session. `prepare` is called once in every Python worker."""

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        source_of: Mapping[str, int],
        kafka: Mapping[str, str],
        prepare: Callable[[], None],
    ) -> None:
        self._session = session
        self._program = program
        self._source_of = source_of
        self._kafka = kafka
        self.broadcast: Any = session.sparkContext.broadcast((program.incarnation, cloudpickle.dumps(program), prepare))

    def run(
        self,
        frame: DataFrame | None,
        epoch: Epoch,
        is_small: bool,
        limits: Mapping[tuple[str, int], int],
        missed: Mapping[tuple[str, int], tuple[int, int]],
    ) -> pa.Table:
        """The rows that the records of a micro-batch lead to; records from `limits` on are left for later.

        `missed` are ranges of offsets that earlier batches have had: they are read once more, and come along.
        """
        frames = [] if frame is None else [self._records(frame, epoch.origins, limits)]
        if missed:
            frames.append(self._records(read_range(self._session, self._kafka, missed), epoch.origins, {}))
        records = reduce(DataFrame.union, frames)
        if is_small:
            return self._collected(records.coalesce(1).mapInArrow(whole_epoch(self.broadcast, epoch), _OUT))
        return self._collected(self._staged(records, epoch))

    def tick(self, epoch: Epoch) -> pa.Table:
        """An epoch without records, for what waits for the clock."""
        one_task = self._session.range(0, 1, 1, 1)
        return self._collected(one_task.mapInArrow(empty_epoch(self.broadcast, epoch), _OUT))

    def _staged(self, records: DataFrame, epoch: Epoch) -> DataFrame:
        program, broadcast = self._program, self.broadcast
        last = len(program.plan.stages) - 1
        is_first_free = not program.needs_lanes(0)
        if is_first_free or needs_entering(program):
            is_done = is_first_free and last == 0
            frame = records.mapInArrow(from_sources(broadcast, epoch), _OUT if is_done else _WIRE)
            first = 1 if is_first_free else 0
            from_topics = False
        else:
            frame = records.withColumn("lane", self._lane())
            first, from_topics = 0, True
        for stage in range(first, last + 1):
            lanes = frame.repartitionById(program.lanes, F.col("lane"))
            hop = on_lane(broadcast, epoch, stage, is_first=from_topics and stage == 0)
            frame = lanes.mapInArrow(hop, _OUT if stage == last else _WIRE)
        return frame

    def _records(self, frame: DataFrame, origins: Sequence[tuple[str, int]], limits: Mapping[tuple[str, int], int]) -> DataFrame:
        """Kafka's columns as `INPUT` wants them: sources and topic partitions by their codes."""
        for (topic, partition), limit in limits.items():
            frame = frame.where(~((F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") >= limit)))
        first: dict[str, int] = {}
        for code, (topic, _) in enumerate(origins):
            first.setdefault(topic, code)
        return frame.select(
            _coded(self._source_of).cast("smallint").alias("name"),
            (_coded(first) + F.col("partition")).cast("int").alias("origin"),
            F.col("offset"),
            F.unix_millis("timestamp").alias("timestamp"),
            F.col("key"),
            F.col("value"),
            F.col("headers"),
        )

    def _lane(self) -> Column:
        """The lane of a row: `lane_of(shard_of(key))`, in Spark's words."""
        shards, lanes = self._program.shards, self._program.lanes
        lane = F.expr(f"cast((pmod(crc32(key), {shards}) * {lanes}) div {shards} as int)")
        return F.coalesce(lane, F.col("origin") % lanes)

    def _collected(self, frame: DataFrame) -> pa.Table:
        """The one action of the epoch."""
        return frame.toArrow()


def _coded(codes: Mapping[str, int]) -> Column:
    """A topic's code."""
    (first, code), *others = codes.items()
    if not others:
        return F.lit(code)
    cases = F.when(F.col("topic") == first, code)
    for topic, other in others:
        cases = cases.when(F.col("topic") == topic, other)
    return cases
