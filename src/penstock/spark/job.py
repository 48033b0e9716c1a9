"""One Spark job per epoch, with a single action: source rows go through the stages, with shuffles in between, to rows out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.epochs.assignment import Assignment
from penstock.epochs.bounds import BATCH_BYTES
from penstock.epochs.entry import needs_entry
from penstock.epochs.home import Home
from penstock.epochs.hops import INPUT
from penstock.epochs.packing import packed
from penstock.epochs.program import Epoch, Program, has_lanes
from penstock.epochs.wire import OUT, WIRE, Kind, arrived, in_order_of_causes
from penstock.errors import EpochTooLargeError, FencedError, LaneMovedError
from penstock.records import Partition
from penstock.serdes import String
from penstock.spark.by_client import Part, ReadRecords, frame_of
from penstock.spark.failures import UnreadableTimestampError, translated, unreadable_timestamp
from penstock.spark.hosts import Hosts
from penstock.spark.session import ANY_BYTES
from penstock.spark.source import read_range
from penstock.spark.tasks import (
    Hop,
    changes_of_section,
    discarded,
    empty_epoch,
    from_sources,
    lane_rolled_back,
    on_lane,
    whole_epoch,
)
from penstock.spark.watching import watched

if TYPE_CHECKING:
    from penstock.spark.writing import WriteStage  # loads another Kafka client

_log = logging.getLogger(__name__)

_UNKNOWN_BATCH_RECORDS = 1_000
_SPREAD = 31
"""Rows of partition 0 of several topics go to several tasks."""
_RECORD = pa.schema([INPUT.field(name) for name in ("key", "value", "timestamp", "headers")])
_OUT = from_arrow_schema(OUT)
_WIRE = from_arrow_schema(WIRE)


Play = Callable[[Hop], Hop]
"""Which hop runs in place of one: itself, unless an epoch is rehearsed."""


def _itself(hop: Hop) -> Hop:
    return hop


class EpochJobs:
    """Runs the epochs of a program on a session. `prepare` is called once in every Python worker, `read` in tasks.

    `kafka` are the options of Spark's reader; if it cannot log in, they are None, and our own client reads all records.
    A job that takes longer than `patience_s` is cancelled. On a cluster, `hosts` are where lanes run.
    """

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        source_of: Mapping[str, int],
        kafka: Mapping[str, str] | None,
        prepare: Callable[[], None],
        read: ReadRecords,
        patience_s: float,
        hosts: Hosts | None = None,
    ) -> None:
        self._session = session
        self._program = program
        self._source_of = source_of
        self._kafka = kafka
        self._read = read
        self._patience_s = patience_s
        self._hosts = hosts
        self.write_stage: WriteStage | None = None
        """The stage in which executors write the rows of epochs; None if the driver writes them."""
        self.broadcast: Any = session.sparkContext.broadcast((program.incarnation, packed(program, program), prepare))

    def read_too(self, source_of: Mapping[str, int]) -> None:
        """Add topics that are read from now on, each with its source."""
        self._source_of = {**self._source_of, **source_of}

    def run(
        self, epoch: Epoch, is_small: bool, ranges: Mapping[Partition, tuple[int, int]], batch_records: int | None
    ) -> pa.Table:
        """Process the records in these ranges of offsets; return the epoch's rows.

        `batch_records` is how many records or rows go into one Arrow batch, None if their size is unknown. Our own client reads
        records that Spark's reader cannot.
        """
        epoch = self._placed(epoch)
        self._set_batches(self._session, batch_records)
        if self._kafka is None:
            return self._run_by_client(epoch, is_small, ranges)
        frame = read_range(self._session, self._kafka, ranges, batch_records)
        try:
            return self._run(self._records(frame, epoch.origins), epoch, is_small)
        except UnreadableTimestampError as error:
            _log.info("retrying epoch %d without Spark's reader: %s", epoch.number, error)
            return self._run_by_client(epoch, is_small, ranges)

    def _run_by_client(self, epoch: Epoch, is_small: bool, ranges: Mapping[Partition, tuple[int, int]]) -> pa.Table:
        """As `run`, with our own client."""
        codes = {origin: code for code, origin in enumerate(epoch.origins)}
        parts = [
            Part(self._source_of[topic], codes[topic, number], (topic, number), *bounds)
            for (topic, number), bounds in ranges.items()
        ]
        return self._run(self._on_shards(frame_of(self._session, self._read, parts)), epoch, is_small)

    def _run(self, records: DataFrame, epoch: Epoch, is_small: bool) -> pa.Table:
        if is_small and self._hosts is None:
            return self._collected(records.coalesce(1).mapInArrow(whole_epoch(self.broadcast, epoch), _OUT))
        return self._done(self._staged(records, epoch), epoch)

    def _done(self, frame: DataFrame, epoch: Epoch) -> pa.Table:
        """Run the stages of an epoch; return the rows that executors have not written."""
        if self.write_stage is None or self._hosts is None:
            return in_order_of_causes(self._collected(frame))
        rows = self._hosts.on_lanes(frame, _writing_lane(self._program))
        rows = rows.mapInArrow(self.write_stage.begin(self.broadcast), _OUT)
        try:
            table = self._collected(rows)
        except FencedError as error:
            raise self.write_stage.explained(error) from error
        self.write_stage.done(table)
        return in_order_of_causes(table)

    def tick(self, epoch: Epoch) -> pa.Table:
        """Run an epoch without records, for what is due; return its rows."""
        if self._hosts is not None:
            epoch = self._placed(epoch)
            return self._done(self._staged_on_lanes(self._session.createDataFrame([], _WIRE), epoch), epoch)
        one_task = self._session.range(0, 1, 1, 1)
        return self._collected(one_task.mapInArrow(empty_epoch(self.broadcast, epoch), _OUT))

    def rehearse(self, ranges: Mapping[Partition, tuple[int, int]], executors_write: bool) -> None:
        """On a cluster: run a job like that of an epoch, which reads these ranges and discards them; it touches no lane.

        The first epoch is then spared what Spark has done for it on all executors: loaded classes, compiled code, connected.
        """
        if self._kafka is None or self._hosts is None:
            return
        nothing = discarded(self.broadcast)
        records = self._records(read_range(self._session, self._kafka, ranges), list(ranges))
        frame = self._staged(records, Epoch(0, -1, 0), play=lambda hop: nothing)
        if executors_write:
            frame = self._hosts.on_lanes(frame, _writing_lane(self._program)).mapInArrow(nothing, _OUT)
        self._collected(frame)

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back to the last barrier; tasks of earlier attempts can no longer open them."""
        program = self._program
        if not any(program.needs_lanes(stage) for stage in range(len(program.plan.stages))):
            return
        if self._hosts is not None:
            one_row_each = self._hosts.each_lane()
        else:
            if epoch.attempt:
                Home(program.directory, program.application_id).fence(program.incarnation, epoch.attempt)
            one_row_each = self._session.range(0, program.lanes, 1, program.lanes)
        self._collected(one_row_each.mapInArrow(lane_rolled_back(self.broadcast, epoch), _OUT))

    def read(self, partition: Partition, offset: int) -> pa.Table:
        """Read one record from its topic."""
        self._set_batches(self._session, 1)
        if self._kafka is None:
            frame = frame_of(self._session, self._read, [Part(0, 0, partition, offset, offset + 1)])
            found = self._collected(frame.select(*_RECORD.names))
        else:
            frame = read_range(self._session, self._kafka, {partition: (offset, offset + 1)})
            found = self._collected(
                frame.select("key", "value", functions.unix_millis("timestamp").alias("timestamp"), "headers")
            )
        return arrived(found.to_batches(), _RECORD)

    @staticmethod
    def _set_batches(session: SparkSession, batch_records: int | None) -> None:
        """Limit Arrow batches by records, or also by bytes, which costs more time than everything else if records are small."""
        limits = (_UNKNOWN_BATCH_RECORDS, BATCH_BYTES) if batch_records is None else (batch_records, ANY_BYTES)
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", limits[0])
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", limits[1])

    def _staged(self, records: DataFrame, epoch: Epoch, play: Play = _itself) -> DataFrame:
        program, broadcast = self._program, self.broadcast
        last = len(program.plan.stages) - 1
        is_first_free = not program.needs_lanes(0)
        if is_first_free or needs_entry(program):
            is_done = is_first_free and last == 0
            hop = play(from_sources(broadcast, epoch))
            frame = records.mapInArrow(self._last(hop, epoch), _OUT) if is_done else records.mapInArrow(hop, _WIRE)
            first = 1 if is_first_free else 0
            from_topics = False
        else:
            frame = records
            first, from_topics = 0, True
        return self._staged_on_lanes(frame, epoch, first, from_topics, play)

    def _staged_on_lanes(
        self, frame: DataFrame, epoch: Epoch, first: int = 0, from_topics: bool = False, play: Play = _itself
    ) -> DataFrame:
        """Return the stages from `first` on; `from_topics` says that its rows come from topics, with their shards."""
        last = len(self._program.plan.stages) - 1
        for stage in range(first, last + 1):
            hop = play(on_lane(self.broadcast, epoch, stage, is_first=from_topics and stage == 0))
            sent, is_divided = self._on_lanes(frame), Assignment(self._program, epoch, stage).is_divided
            if is_divided:
                sent = self._on_lanes(sent.mapInArrow(hop, _WIRE))
                hop = play(changes_of_section(self.broadcast, epoch, stage))
            frame = sent.mapInArrow(self._last(hop, epoch), _OUT) if stage == last else sent.mapInArrow(hop, _WIRE)
        return frame

    def _last(self, hop: Hop, epoch: Epoch) -> Hop:
        """Return the last hop before rows are collected or written."""
        return hop if self.write_stage is None else self.write_stage.before(self.broadcast, hop, epoch)

    def _on_lanes(self, frame: DataFrame) -> DataFrame:
        if self._hosts is not None:
            return self._hosts.on_lanes(frame, _lane(self._program))
        return frame.repartitionById(self._program.lanes, _lane(self._program))

    def _placed(self, epoch: Epoch) -> Epoch:
        """Return the epoch with the addresses of lanes; raises if executors were added or lost, so that lanes have to move."""
        if self._hosts is None:
            return epoch
        if self._hosts.have_changed():
            if has_lanes(self._program):
                raise LaneMovedError("The executors of the cluster have changed.")
            self._hosts.place()
        return replace(epoch, servers=self._hosts.servers, global_topics=self._hosts.global_topics())

    def _records(self, frame: DataFrame, origins: Sequence[Partition]) -> DataFrame:
        """Return Kafka's columns as those of `INPUT`, with the codes of sources and partitions."""
        first: dict[str, int] = {}
        for code, (topic, _) in enumerate(origins):
            first.setdefault(topic, code)
        coded = frame.select(
            _coded(self._source_of).cast("smallint").alias("name"),
            (_coded(first) + functions.col("partition")).cast("int").alias("origin"),
            functions.col("offset"),
            functions.unix_millis("timestamp").alias("timestamp"),
            functions.col("key"),
            functions.col("value"),
            functions.col("headers"),
            functions.col("partition"),
        )
        return self._on_shards(coded)

    def _on_shards(self, records: DataFrame) -> DataFrame:
        """Return the records with their shards in place of their partitions."""
        return records.withColumn("shard", self._shard()).drop("partition")

    def _shard(self) -> Column:
        """Return the column of a record's shard, as in `penstock.epochs.routes`, if no serde has to decode keys for that.

        Like Java, String decodes malformed bytes as replacement characters.
        """
        shards, text = self._program.shards, "cast(key as string)"
        of_texts = [code for code, serde in self._program.key_of_source.items() if isinstance(serde, String)]
        key = "key"
        if of_texts:
            is_malformed = f"name in ({', '.join(map(str, of_texts))}) and not is_valid_utf8({text})"
            key = f"case when {is_malformed} then encode(decode(key, 'UTF-8'), 'UTF-8') else key end"
        by_key = functions.expr(f"cast(pmod(crc32({key}), {shards}) as int)")
        return functions.coalesce(by_key, functions.expr(f"cast(partition % {shards} as int)"))

    def _collected(self, frame: DataFrame) -> pa.Table:
        """Run the only action of the epoch; raises `EpochTooLargeError` if its size may be why it failed or took too long."""
        with watched(self._session, self._hosts, self._patience_s) as watch:
            try:
                return frame.toArrow()
            except Exception as error:
                if watch.is_late:
                    raise EpochTooLargeError(f"The epoch's Spark job took more than {self._patience_s:g} s.") from error
                if watch.is_loss(error):
                    raise LaneMovedError("An executor was lost while it ran lanes.") from error
                unreadable = unreadable_timestamp(error)
                if unreadable is not None:
                    raise unreadable from None
                raise translated(error) from error


def _lane(program: Program) -> Column:
    """Return the column of a row's lane: `lane_of(shard)` as a Spark expression."""
    return functions.expr(f"cast(shard * {program.lanes} div {program.shards} as int)")


def _writing_lane(program: Program) -> Column:
    """Return the column of the lane whose task writes a row: for a changelog, the one that has its shard."""
    lanes, shards = program.lanes, program.shards
    cases = {Kind.CHANGELOG: f"partition * {lanes} div {shards}", Kind.SINK: f"pmod(name * {_SPREAD} + partition, {lanes})"}
    each = " ".join(f"when {int(kind)} then {lane}" for kind, lane in cases.items())
    return functions.expr(f"cast(coalesce(case kind {each} end, 0) as int)")


def _coded(codes: Mapping[str, int]) -> Column:
    """Return the column of a topic's code."""
    (first, code), *others = codes.items()
    if not others:
        return functions.lit(code)
    cases = functions.when(functions.col("topic") == first, code)
    for topic, other in others:
        cases = cases.when(functions.col("topic") == topic, other)
    return cases
