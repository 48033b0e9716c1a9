"""Global tables: the driver reads their topics into one store, which every lane reads; on a cluster, each host has its own.

As in Kafka Streams, they follow their topics, not the application's transactions: a lane sees the topic as of the start of the
epoch. A table that may have missed records of its topic is read again from the topic's beginning. Partitions that are added while
the application runs are read, too; a topic that is created again ends it, before a row of the new one stands beside the old ones.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from penstock import machine
from penstock.epochs.output import rows_about_dropped
from penstock.epochs.program import GlobalTopics, Program, ReadRecords, TopicRecord
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import Control, control_row, out
from penstock.errors import StateError, TopicError
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.position import At, RawRecord
from penstock.lanes.stores import OwnShard
from penstock.records import NO_TIMESTAMP, Partition, RecordMetadata
from penstock.state import FORMAT, Engine, EngineFactory, EngineKind, LaneState, memory_engine
from penstock.topology import ProcessorNode, SourceNode
from penstock.topology.plan import layout

_log = logging.getLogger(__name__)

CHUNK_RECORDS = 50_000
CHUNK_BYTES = 64 << 20
"""Records are written after this many of them, or this many bytes: a table may be larger than memory."""

BEGINS_EVERY_S = 60.0
"""How often the beginnings of topics are requested for hosts: a new host reads from there."""

NOTED_EVERY_MS = 60_000
"""How often the store notes that its tables are up to date while there are no new records."""


def bring_globals_to(program: Program, topics: GlobalTopics) -> None:
    """Bring the tables of this host to where their topics ended when the epoch began; one task does it for all."""
    home = StateDirectory(program.directory, program.application_id)
    home.settle()
    with (home.root / "global.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tables = GlobalTables(
            program,
            topics.ends,
            lambda partitions: {place: topics.begins[place] for place in partitions},
            lambda partitions: {place: topics.ends[place] for place in partitions},
            topics.read,
            identity=topics.identity,
            tombstones_ms=topics.tombstones_ms,
        )
        try:
            tables.refresh(at_once=True)
        finally:
            tables.close()


class Watch(Protocol):
    """Watches the topics of global tables. Both methods raise if a topic was deleted or created again."""

    def added(self) -> Iterable[Partition]:
        """Return the partitions that were added since the last call."""

    def look(self) -> None:
        """Look now."""


class Unwatched:
    """Topics that do not change while they are read."""

    def added(self) -> Iterable[Partition]:
        """None is added."""
        return ()

    def look(self) -> None:
        """Find nothing."""


class GlobalTables:
    """The global stores of an application.

    `identity` distinguishes the topics from others of the same names: recreated, or in another cluster. `tombstones_ms` is the
    shortest time for which a topic keeps tombstones; None if all topics keep them for ever.
    """

    def __init__(
        self,
        program: Program,
        partitions: Iterable[Partition],
        begin_offsets: Callable[[Iterable[Partition]], Mapping[Partition, int]],
        end_offsets: Callable[[Iterable[Partition]], Mapping[Partition, int]],
        read: ReadRecords,
        every_s: float = 0.1,
        identity: str = "",
        tombstones_ms: int | None = None,
    ) -> None:
        self._program = program
        self._partitions = sorted(partitions)
        self._begin_offsets = begin_offsets
        self._end_offsets = end_offsets
        self._read = read
        self._every_s = every_s
        self._identity = identity
        self._tombstones_ms = tombstones_ms
        self.watch: Watch = Unwatched()
        """What tells of changes to the topics."""
        self._asked = 0.0
        self._begins_asked: float | None = None
        self._begins: Mapping[Partition, int] = {}
        self._ends: Mapping[Partition, int] = {}
        self._home = StateDirectory(program.directory, program.application_id)
        if self._partitions:
            self._home.forget_other_globals(f"{_layout(program)}\n{identity}")
        self._factory = EngineFactory(EngineKind.LMDB, str(self._home.global_directory))
        self._engine: Engine | None = None
        self._rows: list[pa.Table] = []
        sources = set(program.global_stores.values())
        self._nodes = [
            node
            for name, node in program.nodes.items()
            if name in sources or (isinstance(node, ProcessorNode) and sources.issuperset(node.parents) and node.parents)
        ]
        self._source_of = {topic: node.name for node in self._nodes if isinstance(node, SourceNode) for topic in node.topics}

    def refresh(self, at_once: bool = False) -> None:
        """Read new records, unless that was done a moment ago."""
        now = machine.monotonic()
        if not self._partitions or (not at_once and now - self._asked < self._every_s):
            return
        self._asked = now
        self._add(self.watch.added())
        try:
            self._read_on()
        except (StateError, TopicError):
            self.watch.look()  # that a topic was created again explains it best
            raise

    def _read_on(self) -> None:
        asked_at = machine.now_ms()
        ends = self._end_offsets(self._partitions)
        if self._engine is None:  # stays open: a process can open an LMDB file only once, and queries read it here
            self._engine = self._opened(ends, asked_at)
        state = LaneState(self._engine)
        kept = Kept(state, self._partitions)
        if too_far := _beyond(kept.positions, ends):
            raise StateError(f"{too_far}: the topic of a global table was recreated. Start again to read it from its beginning.")
        self._apply(state, kept, ends, asked_at)
        self._ends = ends

    def topics(self, read: ReadRecords) -> GlobalTopics:
        """Return the topics as of the last refresh, for hosts that read them with `read`."""
        now = machine.monotonic()
        if self._begins_asked is None or now - self._begins_asked > BEGINS_EVERY_S:
            self._begins_asked, self._begins = now, self._begin_offsets(self._partitions)
        return GlobalTopics(self._begins, self._ends, self._identity, self._tombstones_ms, read)

    def take_rows(self) -> list[pa.Table]:
        """Return rows about records that could not be read since the last call: dead letters, and counts of drops."""
        rows, self._rows = self._rows, []
        return rows

    def snapshot(self) -> Engine:
        """Return a snapshot of the stores, readable from any thread."""
        return memory_engine() if self._engine is None else self._engine.snapshot()

    def close(self) -> None:
        """Close the files; all snapshots must be closed already."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _add(self, partitions: Iterable[Partition]) -> None:
        new = set(partitions).difference(self._partitions)
        if new:
            self._partitions, self._begins_asked = sorted([*self._partitions, *new]), None

    def _opened(self, ends: Mapping[Partition, int], now_ms: int) -> Engine:
        """Open the stores; empty if they may have missed records."""
        engine = self._factory.open(room_to_grow=True)
        why = self._missed(Kept(LaneState(engine), self._partitions), ends, now_ms)
        if why is None:
            return engine
        _log.warning("reading global tables from the beginning of their topics: %s", why)
        engine.close()
        self._home.forget_globals()
        return self._factory.open(room_to_grow=True)

    def _missed(self, kept: Kept, ends: Mapping[Partition, int], now_ms: int) -> str | None:
        """Return why the stores may have missed records of their topics; None if they have not."""
        if not kept.positions:
            return None
        for place, begin in self._begin_offsets(kept.positions).items():
            if kept.positions[place] < begin:
                return f"{place[0]}-{place[1]} begins at offset {begin}, but was read only up to {kept.positions[place]}"
        # Half of it, because the rest has to be read before its tombstones are gone, too.
        if self._tombstones_ms is not None and now_ms - kept.as_of > self._tombstones_ms // 2:
            hours = (now_ms - kept.as_of) / 3_600_000
            return f"they were last up to date {hours:.1f} h ago, and tombstones may be gone by now (delete.retention.ms)"
        return _beyond(kept.positions, ends)

    def _apply(self, state: LaneState, kept: Kept, ends: Mapping[Partition, int], asked_at: int) -> None:
        unknown = [place for place in self._partitions if place not in kept.positions]
        begins = self._begin_offsets(unknown) if unknown else {}
        positions = {**kept.positions, **begins}
        if state.epoch >= 0 and all(positions[place] >= ends[place] for place in self._partitions):
            if asked_at - kept.as_of >= NOTED_EVERY_MS:
                kept.note(positions, asked_at)
            return
        if not kept.positions:  # tombstones written from now on will be read, however long it takes to reach the end
            kept.as_of = asked_at
        lane = BoundShard(
            Blueprint(self._nodes, self._program.specs, global_stores=self._program.global_stores),
            OwnShard(state),
            Surroundings(wall_clock=machine.now_ms),
            FailurePolicy(self._program.handlers, self._program.application_id),
        )
        count = size = 0
        for record in self._read(positions, ends):
            topic, partition, offset, key, value, *_ = record
            self._take(lane, record)
            positions[topic, partition] = offset + 1
            count, size = count + 1, size + len(key or b"") + len(value or b"")
            if count >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                lane.flush()
                self.watch.look()
                kept.note(positions, kept.as_of)
                self._keep_rows(lane)
                count = size = 0
        lane.flush()
        self.watch.look()  # what was read may be of a topic that was created again, unless it still is the one that it was
        kept.note({place: max(ends[place], position) for place, position in positions.items()}, asked_at)
        self._keep_rows(lane)
        lane.close()
        if metrics := lane.metrics.reports():
            self._rows.append(out(control_row(Control(metrics=metrics), 0)))

    def _take(self, lane: BoundShard, record: TopicRecord) -> None:
        topic, partition, offset, key, value, timestamp, headers = record
        origin, raw = RecordMetadata(topic, partition, offset), RawRecord(key, value, timestamp, headers)
        intake = lane.intakes[self._source_of[topic]]
        arrival = intake.decode(lane.failures, origin, raw, NO_TIMESTAMP)
        if arrival is not None:
            lane.cursor.position = At(origin, raw)
            intake.process(*arrival)

    def _keep_rows(self, lane: BoundShard) -> None:
        """Keep a lane's rows about records that it could not read, until `take_rows`."""
        self._rows += [out(table) for table in rows_about_dropped(self._program, lane.outbox)]


class Kept:
    """How far the topics were read, and when that was their end; written in one batch with the records."""

    def __init__(self, state: LaneState, partitions: Iterable[Partition]) -> None:
        self._state = state
        self._offsets = {place: state.registers.register(f"offset {place[0]}/{place[1]}", NO_TIMESTAMP) for place in partitions}
        self._as_of = state.registers.register("as of", NO_TIMESTAMP)
        self.positions: dict[Partition, int] = {
            place: register.value for place, register in self._offsets.items() if register.value != NO_TIMESTAMP
        }
        self.as_of: int = self._as_of.value

    def note(self, positions: Mapping[Partition, int], as_of: int) -> None:
        """Write the records that were read, and their positions."""
        for place, position in positions.items():
            self._offsets[place].value = position
        self._as_of.value = as_of
        self._state.commit(self._state.epoch + 1)


def _beyond(positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> str | None:
    """Describe the first partition that was read beyond its end; None if there is none."""
    for place, position in positions.items():
        if position > ends[place]:
            return f"{place[0]}-{place[1]} ends at offset {ends[place]}, but was read up to {position}"
    return None


def _layout(program: Program) -> str:
    """Describe what the global stores depend on: their format and layout, and their topics."""
    fed = {store: getattr(program.nodes[source], "topics", ()) for store, source in program.global_stores.items()}
    stores = [f"{store} {layout(program.specs[store])} from {topics}" for store, topics in fed.items()]
    return "\n".join([f"format {FORMAT}", *stores])
