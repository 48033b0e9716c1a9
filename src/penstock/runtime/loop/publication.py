"""The commit of an epoch: its rows are checked, and published together with the offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock import machine
from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.wire import Kind, out_rows
from penstock.history.committed import FACTS_PARTITION, TOPOLOGY
from penstock.history.progress import Progress
from penstock.kafka.commit import CommitMetadata, Committer, SourceOffset
from penstock.records import NO_TIMESTAMP, Partition
from penstock.topology.plan import TopologyFacts, encode_facts

Check = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Checks rows before they are published; returns those that may be."""


class Published(NamedTuple):
    """The published rows of an epoch; `left_out` counts rows that were too large for their topics."""

    batches: Sequence[pa.RecordBatch]
    left_out: int


class Publication:
    """Publishes the epochs of a program through a committer. `topic_ids` are the ids of the topics that are read, by name."""

    def __init__(self, program: Program, committer: Committer, check: Check, topic_ids: Mapping[str, str]) -> None:
        self._program = program
        self._committer = committer
        self._check = check
        self._topic_ids = topic_ids

    def continue_from(self, begins: Mapping[Partition, int], topic_ids: Mapping[str, str]) -> None:
        """Continue from these offsets, whatever was committed before; `topic_ids` are those of new topics."""
        self._committer.continue_from(begins)
        self._topic_ids = {**self._topic_ids, **topic_ids}

    def publish(self, progress: Progress, tables: Sequence[pa.Table], first: Sequence[pa.RecordBatch]) -> Published:
        """Commit `progress` with its rows, after the rows `first`; then all of it is visible."""
        rows = [batch for each in tables for batch in rows_for_kafka(each)]
        checked = list(map(self._check, rows))
        left_out = sum(batch.num_rows for batch in rows) - sum(batch.num_rows for batch in checked)
        batches = [*first, *checked]
        self._committer.commit(progress.epoch, batches, self._source_offsets(progress))
        return Published(batches, left_out)

    def _source_offsets(self, progress: Progress) -> list[SourceOffset]:
        program = self._program
        offsets = []
        counts = Counter(topic for topic, _ in progress.origins)
        for topic, partition in progress.origins:
            metadata = CommitMetadata(
                epoch=progress.epoch,
                incarnation=program.incarnation,
                fingerprint=program.plan.fingerprint,
                lanes=program.lanes,
                shards=program.shards,
                high_time=progress.high_times.get((topic, partition), NO_TIMESTAMP),
                topic_id=self._topic_ids.get(topic),
                watermark=progress.watermarks.get((topic, partition), NO_TIMESTAMP),
                application_watermark=progress.watermark,
                partitions=counts[topic],
            )
            offsets.append(SourceOffset(topic, partition, progress.offsets[topic, partition], metadata.encode()))
        return offsets


def facts_row(program: Program, known: TopologyFacts) -> pa.Table:
    """Return the row of the topology's facts, which is committed with the first epoch of every start."""
    code = program.topic_codes[lanes_topic(program.application_id)]
    return out_rows(Kind.CHANGELOG, code, FACTS_PARTITION, machine.now_ms(), TOPOLOGY, encode_facts(known))


def rows_for_kafka(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rows to publish, as slices of the table: nothing is copied, because an epoch may be large."""
    for batch in table.to_batches():
        is_kept = batch.column("kind").to_numpy(zero_copy_only=False) < Kind.CONTROL
        edges = np.flatnonzero(np.diff(is_kept, prepend=False, append=False))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield batch.slice(start, end - start)
