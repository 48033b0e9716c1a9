"""The jobs of epochs on worker processes: the driver hands them records that it has read, and exchanges rows between stages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import needs_entry
from penstock.epochs.home import Home
from penstock.epochs.hops import INPUT, ROUTED_INPUT
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import lane_of
from penstock.epochs.standing import Committed
from penstock.epochs.wire import OUT, WIRE, in_order_of_causes
from penstock.errors import EpochTooLargeError
from penstock.records import Partition
from penstock.workers.pool import Batches, LateError, TaskFailedError, WorkerLostError, WorkerPool
from penstock.workers.requests import Load, RestoreLane, RollBack, RowsRequest, RunEpoch, RunLane, RunSources

_log = logging.getLogger(__name__)

Ranges = Mapping[Partition, tuple[int, int]]

_TRIES = 4
"""How often a part of an epoch is run if its worker dies or fails: it may be too large, or someone has killed the worker."""

_RECORD = pa.schema([INPUT.field(name) for name in ("key", "value", "timestamp", "headers")])


RecordsBetween = Callable[[Ranges], Iterable[tuple[Partition, pa.RecordBatch]]]
"""Returns the records in ranges of offsets, by partition: offset, timestamp, key, value, headers."""


class WorkerJobs:
    """Runs the epochs of a program on a pool. `between` returns records that the driver has read.

    A job that takes longer than `patience_s` is given up.
    """

    def __init__(self, pool: WorkerPool, program: Program, between: RecordsBetween, patience_s: float) -> None:
        self._pool = pool
        self._program = program
        self._source_of: dict[str, int] = {}
        self._between = between
        self._patience_s = patience_s

    def read_too(self, source_of: Mapping[str, int]) -> None:
        """Add topics that are read from now on, each with its source."""
        self._source_of |= source_of

    def warm(self) -> None:
        """Start all workers, and let each load the program, before they are needed."""
        self._run([(Load(), []) for _ in range(self._pool.size)])

    def restore(
        self, committed: Committed, read: ReadChangelog, on_progress: Callable[[Mapping[int, int]], None]
    ) -> list[Restored]:
        """Restore all lanes; `read` is called in the workers. A lane whose worker dies is rebuilt."""
        left: dict[int, int] = {}

        def note(lane: int, offsets: int) -> None:
            left[lane] = offsets
            on_progress(left)

        requests = [RestoreLane(lane, committed, read) for lane in range(self._program.lanes)]
        return self._pool.restore(requests, note)

    def run(self, epoch: Epoch, is_small: bool, ranges: Ranges, batch_records: int | None) -> pa.Table:
        """Process the records in these ranges of offsets; return the epoch's rows."""
        batches = self._input(epoch, ranges)
        if is_small:
            return self._collected(self._run([(RunEpoch(epoch), batches)]), OUT)
        return in_order_of_causes(self._staged(epoch, batches))

    def tick(self, epoch: Epoch) -> pa.Table:
        """Run an epoch without records, for what is due; return its rows."""
        return self._collected(self._run([(RunEpoch(epoch), [])]), OUT)

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back to the epoch before this one; workers of earlier attempts can no longer open them."""
        program = self._program
        if not any(program.needs_lanes(stage) for stage in range(len(program.plan.stages))):
            return
        if epoch.attempt:
            Home(program.directory, program.application_id).fence(program.incarnation, epoch.attempt)
        self._run([(RollBack(epoch, tuple(range(program.lanes))), [])])

    def read(self, partition: Partition, offset: int) -> pa.Table:
        """Return one record."""
        found = [batch for _, batch in self._between({partition: (offset, offset + 1)})]
        return pa.Table.from_batches([batch.select(_RECORD.names) for batch in found], _RECORD)

    def _input(self, epoch: Epoch, ranges: Ranges) -> list[pa.RecordBatch]:
        """Return the records with the codes of their sources and partitions."""
        codes = {origin: code for code, origin in enumerate(epoch.origins)}
        batches = []
        for partition, batch in self._between(ranges):
            size = batch.num_rows
            columns = {
                "name": pa.array(np.full(size, self._source_of[partition[0]], np.int16)),
                "origin": pa.array(np.full(size, codes[partition], np.int32)),
                **{name: batch.column(name) for name in ("offset", "timestamp", "key", "value", "headers")},
            }
            batches.append(pa.RecordBatch.from_arrays([columns[name] for name in INPUT.names], schema=INPUT))
        return batches

    def _staged(self, epoch: Epoch, batches: Batches) -> pa.Table:
        """Run the stages one after the other, each on all lanes in parallel."""
        program = self._program
        last = len(program.plan.stages) - 1
        is_first_free = not program.needs_lanes(0)
        if is_first_free or needs_entry(program):
            schema = OUT if is_first_free and last == 0 else WIRE
            found = self._run([(RunSources(epoch, task), part) for task, part in enumerate(self._by_worker(batches))])
            table = self._collected(found, schema)
            first, from_topics = (1 if is_first_free else 0), False
        else:
            table = self._routed(epoch, batches)
            first, from_topics = 0, True
        for stage in range(first, last + 1):
            requests: list[tuple[RowsRequest, Batches]] = [
                (RunLane(epoch, stage, lane, from_topics and stage == 0), part.to_batches())
                for lane, part in enumerate(self._by_lane(table))
            ]
            table = self._collected(self._run(requests), OUT if stage == last else WIRE)
        return table

    def _by_worker(self, batches: Batches) -> list[list[pa.RecordBatch]]:
        """Divide records among the workers; those of a partition stay together, because their order matters."""
        parts: list[list[pa.RecordBatch]] = [[] for _ in range(self._pool.size)]
        origins: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            origins.setdefault(batch.column("origin")[0].as_py(), []).append(batch)
        loads = [0] * len(parts)
        for of_origin in sorted(origins.values(), key=lambda each: -sum(batch.num_rows for batch in each)):
            place = loads.index(min(loads))
            parts[place] += of_origin
            loads[place] += sum(batch.num_rows for batch in of_origin)
        return parts

    def _routed(self, epoch: Epoch, batches: Batches) -> pa.Table:
        """Return the records with their shards."""
        table = pa.Table.from_batches(batches, INPUT)
        unrouted = table.append_column(ROUTED_INPUT.field("shard"), pa.nulls(table.num_rows, pa.int32()))
        return on_shards(Assignment(self._program, epoch), unrouted)

    def _by_lane(self, table: pa.Table) -> list[pa.Table]:
        """Return the rows of each lane, in their order."""
        program = self._program
        if program.lanes == 1:
            return [table]
        lanes = lane_of(table.column("shard").to_numpy(), program.shards, program.lanes)
        table = table.take(pa.array(np.argsort(lanes, kind="stable")))
        ends = np.cumsum(np.bincount(lanes, minlength=program.lanes)).tolist()
        return [table.slice(begin, end - begin) for begin, end in pairwise([0, *ends])]

    def _run(self, requests: Sequence[tuple[RowsRequest, Batches]]) -> list[list[pa.RecordBatch]]:
        """Run requests; a failed worker is replaced, and all requests run again, which rolls back what they wrote."""
        for left in reversed(range(_TRIES)):
            try:
                return self._pool.run(requests, self._patience_s)
            except LateError as error:
                raise EpochTooLargeError(f"The epoch took more than {self._patience_s:g} s.") from error
            except WorkerLostError as error:
                if not left:
                    raise EpochTooLargeError(f"The epoch was given up, probably because of its size: {error}") from error
                _log.warning("retrying a part of the epoch: %s", error)
            except TaskFailedError as error:
                if not left:
                    raise
                _log.warning("retrying a part of the epoch: %s", error)
        raise AssertionError

    @staticmethod
    def _collected(found: Iterable[Iterable[pa.RecordBatch]], schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches([batch for each in found for batch in each], schema)
