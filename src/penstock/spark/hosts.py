"""Lanes on the hosts of a cluster: which executors there are, and frames whose tasks run where their lanes are.

Spark runs a task where its input is. A frame without rows of its own, whose partitions have locations (the anchor), is combined
with the rows of an epoch, partition by partition, so that the task of a lane has its location.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions

from penstock.epochs.placement import placed
from penstock.epochs.program import GlobalTopics
from penstock.errors import ConfigError, StateError
from penstock.lane_servers.protocol import Located
from penstock.spark.failures import is_executor_lost

EXECUTORS_TIMEOUT_S = 120.0
_SETTLED_S = 2.0
"""Executors register one after the other: when none has come for this long, lanes are placed."""

_LOOK_EVERY_S = 0.5
_SEED = 42
"""Of Spark's hash function."""
_WORD = 2**32 - 1

LABEL = "label"
"""The column by which rows are partitioned: a number for each lane, whose hash is the lane's partition."""


class Hosts:
    """The executors of a session by host, and the placement of lanes on them."""

    def __init__(self, session: SparkSession, lanes: int) -> None:
        self._session = session
        self._lanes = lanes
        self._labels = labels(lanes)
        self._executors: frozenset[str] = frozenset()
        self._looked_at = 0.0
        self._is_outdated = False
        self._anchor: DataFrame | None = None
        self.placement: tuple[str, ...] = ()
        """The host of each lane."""
        self.servers: Mapping[int, tuple[str, int]] = {}
        """The address of each lane's server."""
        self.global_topics: Callable[[], GlobalTopics | None] = lambda: None
        """Returns what each host reads into its global tables."""

    def place(self) -> None:
        """Place all lanes on the executors that there are now; waits for the first of them."""
        cores = self._settled_cores()
        self.placement = placed(self._lanes, cores, self.placement)
        self._anchor = None
        rows = self.on_lanes(self._session.range(self._lanes), functions.col("id").cast("int"))
        if rows._jdf.queryExecution().toRdd().getNumPartitions() != self._lanes:
            raise StateError("This version of Spark does not keep lanes in partitions of their own. Use one that is supported.")

    def have_changed(self) -> bool:
        """Whether executors were added or lost since lanes were placed; looked at twice a second at most."""
        if time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
            self._is_outdated = self._ids() != self._executors
        return self._is_outdated

    def are_lost(self) -> bool:
        """Whether a lane's host has no executor any more."""
        return not {host for _, host, _ in self._active()}.issuperset(self.placement)

    def have_failed(self, error: BaseException) -> bool:
        """Whether a job failed because an executor was lost."""
        return is_executor_lost(error) or self.are_lost()

    def peers(self) -> dict[int, tuple[str, int]]:
        """Return the address of each lane's last server, if the lane has moved since and that host is still there."""
        there = {host for _, host, _ in self._active()}
        moved = {lane: address for lane, address in self.servers.items() if address[0] != self.placement[lane]}
        return {lane: address for lane, address in moved.items() if address[0] in there}

    def located(self, epoch: int) -> Located:
        """Return where the lanes are. `epoch` was the last committed one before this call: so the store at an address has that
        epoch as it was committed, or does not know it any more.
        """
        servers = self.servers
        return Located(epoch, [servers[lane] for lane in range(self._lanes)])

    def on_lanes(self, frame: DataFrame, lane: Column) -> DataFrame:
        """Return the rows in one partition per lane, each on its lane's host, with one more row per lane that has no shard."""
        labels = functions.array(*map(functions.lit, self._labels))
        rows = frame.withColumn(LABEL, functions.element_at(labels, lane + 1)).repartition(self._lanes, LABEL)
        nothing = [functions.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
        return rows.union(self._anchored().select(*nothing, LABEL))

    def each_lane(self) -> DataFrame:
        """Return a frame with one row per lane, its number in the first column, on the lane's host."""
        return self._anchored().select("lane")

    def _settled_cores(self) -> dict[str, int]:
        end = time.monotonic() + EXECUTORS_TIMEOUT_S
        known, since = self._active(), time.monotonic()
        while not known or (not self.placement and time.monotonic() - since < _SETTLED_S):
            if time.monotonic() > end:
                cure = "Check that the cluster has free cores and memory, and that its workers reach this driver."
                raise ConfigError(f"The cluster has started no executor within {EXECUTORS_TIMEOUT_S:g} s. {cure}")
            time.sleep(0.1)
            now = self._active()
            if now != known:
                known, since = now, time.monotonic()
        self._executors = frozenset(executor for executor, _, _ in known)
        self._is_outdated = False
        cores: dict[str, int] = {}
        for _, host, count in known:
            cores[host] = cores.get(host, 0) + count
        return dict(sorted(cores.items()))

    def _ids(self) -> frozenset[str]:
        return frozenset(executor for executor, _, _ in self._active())

    def _active(self) -> list[tuple[str, str, int]]:
        """Return the id, the host and the cores of each executor."""
        self._looked_at = time.monotonic()
        summaries = self._session.sparkContext._jsc.sc().statusStore().executorList(True)
        found = [summaries.apply(number) for number in range(summaries.size())]
        each = [(one.id(), one.hostPort().rpartition(":")[0], one.totalCores()) for one in found]
        return sorted(one for one in each if one[0] != "driver")

    def _anchored(self) -> DataFrame:
        if self._anchor is None:
            self._anchor = _anchor(self._session, self._labels, self.placement)
        return self._anchor


def labels(lanes: int) -> list[int]:
    """Return a number for each lane, which Spark's hash function puts into the partition with the lane's number."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < lanes:
        found.setdefault(_hash(number) % lanes, number)
        number += 1
    return [found[lane] for lane in range(lanes)]


def _hash(number: int) -> int:
    """Return Spark's `hash` of an int: Murmur3 (x86, 32 bits), as a signed number."""
    mixed = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    found = _rotated((_SEED ^ mixed) & _WORD, 13) * 5 + 0xE6546B64 & _WORD
    found ^= 4  # the length in bytes
    found = (found ^ found >> 16) * 0x85EBCA6B & _WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & _WORD
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


def _rotated(number: int, bits: int) -> int:
    word = number & _WORD
    return (word << bits | word >> 32 - bits) & _WORD


def _anchor(session: SparkSession, labels: Sequence[int], hosts: Sequence[str]) -> DataFrame:
    """Return a frame with one row per lane, hash partitioned by its label, whose partitions prefer the hosts given.

    Spark has no public call for that: `LogicalRDD` declares the partitioning of an RDD, and `makeRDD` its locations.
    """
    context: Any = session.sparkContext
    jvm = context._jvm
    to_scala = jvm.scala.jdk.javaapi.CollectionConverters

    def seq(items: Sequence[Any]) -> Any:
        java = jvm.java.util.ArrayList()
        for item in items:
            java.add(item)
        return to_scala.asScala(java).toSeq()

    output = session.createDataFrame([], f"lane int, {LABEL} int")._jdf.queryExecution().analyzed().output()
    rows = []
    for lane, (label, host) in enumerate(zip(labels, hosts, strict=True)):
        values = context._gateway.new_array(jvm.java.lang.Object, 2)
        values[0], values[1] = lane, label
        rows.append(jvm.scala.Tuple2(jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values), seq([host])))
    of_rows = jvm.scala.reflect.ClassTag.apply(
        jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")  # not the class of our values
    )
    rdd = context._jsc.sc().makeRDD(seq(rows), of_rows)
    physical = jvm.org.apache.spark.sql.catalyst.plans.physical
    if len(labels) == 1:  # as Spark plans a repartition into one
        partitioning = getattr(getattr(physical, "SinglePartition$"), "MODULE$")
    else:
        partitioning = physical.HashPartitioning(seq([output.apply(1)]), len(labels))
    none = jvm.scala.Option.empty()
    plan = jvm.org.apache.spark.sql.execution.LogicalRDD(
        output, rdd, partitioning, seq([]), False, none, session._jsparkSession, none, none
    )
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
