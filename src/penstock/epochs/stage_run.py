"""A stage of an epoch on one lane, or on none: its nodes, bound once per shard, and what they send."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from penstock import faults
from penstock.calls import Callers
from penstock.epochs.assignment import Assignment
from penstock.epochs.lane_reports import Watch
from penstock.epochs.output import ANY_SHARD, NO_RECORDS, RECORDS_BY_SHARD, Output
from penstock.epochs.program import Program
from penstock.epochs.shards import shard_of
from penstock.epochs.stays import Stay
from penstock.epochs.wire import Control, LaneReport, rows_about
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings, flush
from penstock.lanes.epoch import Values, feed, processing_order, read_all
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.gathering import are_many
from penstock.lanes.outbox import Row
from penstock.lanes.stores import OwnShard
from penstock.lanes.traces import Traces
from penstock.metrics import combined
from penstock.state import LaneState, ShardState, StateOfStores

_WIRE_NAME = {"source": "name"}

_PIECE = 4_000
"""How many records of a shard are decoded and processed at a time: with more, they no longer fit into the processor's caches."""
_FEW = 500
"""Shards with fewer records than this, on average, are decoded together."""

Owner = Callable[[bytes], ShardState]
"""The shard that owns a key, as of the end of the epoch before."""


class Walked(NamedTuple):
    """A part of a shard's walk: the lane that was bound, the records, and the rows that it has sent."""

    shard: int
    bound: BoundShard
    records: pa.Table
    rows: list[Row]


class StageRun:
    """A stage of an epoch. `walk` may run in several threads, each with another shard; all else is for one thread.

    With a `stay`, the user's processors may have been in earlier epochs, and go on to later ones.
    """

    def __init__(
        self, assigned: Assignment, globals_: LaneState | None, owner: Owner | None = None, stay: Stay | None = None
    ) -> None:
        program, epoch = assigned.program, assigned.epoch
        self._assigned = assigned
        self._globals = globals_
        self._owner = owner
        self._stay = stay
        self._watch = Watch(assigned)
        self._policy = FailurePolicy(program.handlers, program.application_id, epoch.number)
        self._start = crc32(program.incarnation.encode())
        self._blueprint = _blueprint(assigned)
        self._catalogue = epoch.catalogue(program)
        self._values: Values | None = None
        self._may_gather = False
        self._all = NO_RECORDS
        self._is_in_shards = True
        self._output = Output(program, assigned.stage)
        self._calling: list[Walked] = []
        self._binding = threading.Lock()
        self.arrived: dict[int, pa.Table] = {}
        """The records of each shard that has any, in processing order."""
        self.bound: dict[int, BoundShard] = {}
        self.due: tuple[int | None, int | None] = (None, None)
        """The earliest wall-clock time and watermark that something waits for."""

    def bind(self, state: StateOfStores, watermark: int | None) -> BoundShard:
        """Bind the stage's nodes to the state of a shard; `watermark` is the one that the shard knows.

        Threads do this one after the other, so that `init` and `setup=` of user code need not expect each other.
        """
        program, epoch = self._assigned.program, self._assigned.epoch
        partitions = epoch.partitions or {}
        own = state.number if isinstance(state, ShardState) else ANY_SHARD
        with self._binding:
            return BoundShard(
                self._blueprint,
                OwnShard(state, self._globals, lambda key: shard_of(key, program.shards) == own, self._owner),
                Surroundings(
                    wall_clock=lambda: epoch.wall_clock,
                    partitions=lambda topic: partitions.get(topic, 1),
                    callers=lambda: callers_of(program),
                    start=self._start,
                ),
                self._policy,
                watermark,
                self._watch.samples(),
                Traces() if program.is_traced else None,
                None if self._stay is None else self._stay.residents(own),
            )

    def arrive(self, records: pa.Table, in_shards: bool = True) -> None:
        """Accept the records of the stage; without `in_shards`, as records of a single shard."""
        self._is_in_shards = in_shards
        if not records.num_rows:
            return
        shards = records.column("shard").to_numpy()
        order, place = processing_order(records, shards if in_shards else None)
        if order is not None:
            records, shards = records.take(pa.array(order)), shards[order]
        columns = [
            pa.array(place) if name == "place" else records.column(_WIRE_NAME.get(name, name)) for name in RECORDS_BY_SHARD.names
        ]
        self._all = pa.Table.from_arrays(columns, schema=RECORDS_BY_SHARD)
        if not in_shards:
            self.arrived = {ANY_SHARD: self._all}
        else:
            self.arrived = dict(self._by_shard(shards))
        # Then each shard reads its own records, and all at once, for columns.
        self._may_gather = any(map(are_many, self.arrived.values())) and bool(self._blueprint.columnar_paths)

    def divide(self) -> None:
        """Let records that arrived as those of a single shard be walked by shard; they keep their places among all."""
        shards = self._all.column("shard").to_numpy()
        order = np.argsort(shards, kind="stable")
        self._all = self._all.take(pa.array(order))
        self.arrived = dict(self._by_shard(shards[order]))

    def _by_shard(self, shards: Any) -> Iterator[tuple[int, pa.Table]]:
        starts = np.flatnonzero(np.diff(shards, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(shards)], strict=True):
            yield int(shards[start]), self._all.slice(start, end - start)

    def read_together(self, bound: BoundShard) -> None:
        """Decode the records of all shards at once if they are few, for shards that are walked in their order."""
        if 0 < self._all.num_rows < _FEW * len(self.arrived) and not self._may_gather:
            self._values = read_all(bound, self._all, self._catalogue)

    def walk(self, shard: int, state: StateOfStores, before: int | None, watermark: int | None, apart: bool) -> Iterator[Walked]:
        """Walk a shard: what is due, its records, its caches; `before` is the watermark that it knows.

        If the stage makes calls, `flush` does that for all shards, and flushes their caches then. A shard that is walked `apart`
        from others decodes its own records.
        """
        bound = self.bind(state, before)
        if self._stay is not None:
            _fire(bound)
        if not self.bound and not apart:
            self.read_together(bound)
        values = None if apart else self._values
        records = self.arrived.get(shard, NO_RECORDS)
        if bound.circuit.pending_calls:
            yield Walked(shard, bound, self._fed(bound, records, watermark, values), [])
            return
        for piece in self._pieces(records, watermark, values):
            walked = self._fed(bound, piece, watermark, values)
            yield Walked(shard, bound, walked, bound.outbox.drain())
        flush([bound])
        yield Walked(shard, bound, NO_RECORDS, bound.outbox.drain())

    def _fed(self, bound: BoundShard, records: pa.Table, watermark: int | None, values: Values | None) -> pa.Table:
        return feed(bound, records, self._catalogue, watermark, values if records.num_rows else None)

    def _pieces(self, records: pa.Table, watermark: int | None, values: Values | None) -> list[pa.Table]:
        """Return the records in pieces that are processed one after the other."""
        if records.num_rows <= _PIECE or watermark is not None or values is not None or self._may_gather:
            return [records]
        return [records.slice(start, _PIECE) for start in range(0, records.num_rows, _PIECE)]

    def take(self, walked: Walked) -> None:
        """Take a part of a walk; the shards' order decides in which order rows are sent."""
        self.bound[walked.shard] = walked.bound
        if walked.bound.circuit.pending_calls:
            self._calling.append(walked)
        else:
            self._add(walked, walked.rows)

    def flush(self) -> None:
        """Make pending calls, and flush the caches of all shards that have made some."""
        shards, stay = [walked.shard for walked in self._calling], self._stay

        def where_walked(calls: Sequence[Callable[[], None]]) -> None:
            if stay is None:
                for call in calls:
                    call()
            else:
                stay.make(shards, calls)

        flush([walked.bound for walked in self._calling], where_walked)
        for walked in self._calling:
            self._add(walked, walked.bound.outbox.drain())

    def _add(self, walked: Walked, rows: list[Row]) -> None:
        self._output.add(walked.shard if self._is_in_shards else ANY_SHARD, rows, walked.records)

    def end(self, state: LaneState | None = None) -> list[pa.Table]:
        """Return the output of the stage: rows for topics and later stages, and rows for the driver."""
        dropped = dict[tuple[str, str], int]()
        for bound in self.bound.values():
            for what, count in bound.outbox.dropped.items():
                dropped[what] = dropped.get(what, 0) + count
            if self._stay is None:
                bound.close()
        report: LaneReport = self._watch.report(self._output.records, state)
        control = Control(
            {},
            self.due[0],
            [(*what, count) for what, count in dropped.items()],
            self.due[1],
            wants_commit=any(bound.outbox.commit_requested for bound in self.bound.values()),
            metrics=combined(bound.metrics for bound in self.bound.values()),
        )
        for bound in self.bound.values():
            bound.metrics.start_again()
        about = rows_about(self._assigned.shards.start, report, None if control == Control() else control)
        return [*self._output.tables(), about]


def _fire(bound: BoundShard) -> None:
    """Call what is due before the records."""
    if bound.clocks.wall_clock_punctuators:
        bound.clocks.fire_punctuators()
    if bound.clocks.have_timers:
        faults.point("lane.before_timers")
        bound.clocks.fire_timers()
        faults.point("lane.after_timers")


def _blueprint(assigned: Assignment) -> Blueprint:
    """Return the nodes of a stage, which can read the tables of all others."""
    program = assigned.program
    return Blueprint(
        [program.nodes[name] for name in program.plan.stages[assigned.stage].nodes],
        program.specs,
        tables=program.nodes,
        global_stores=program.global_stores,
        watermarked=program.watermarked,
        sub_topologies=program.sub_topologies,
        columns=program.columns,
    )


_callers: dict[int, Callers] = {}


def callers_of(program: Program) -> Callers:
    """Return the callers of a program; a worker unpickles it only once, so that every epoch has the same object."""
    found = _callers.get(id(program))
    if found is None:
        found = _callers[id(program)] = Callers()
        weakref.finalize(program, _close, id(program))
    return found


def close_callers(program: Program) -> None:
    """Close the callers of a program in this process; the next epoch opens them again."""
    if id(program) in _callers:
        _callers[id(program)].close()


def _close(number: int) -> None:
    _callers.pop(number).close()
