"""Global tables: read from their topics by the driver, kept in one store that every lane reads.

They follow their topics, not the application's transactions, as in Kafka Streams: what a lane sees is the topic as it was when
the epoch began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from penstock.epochs.home import Home
from penstock.epochs.program import Program
from penstock.lanes.failures import Failures
from penstock.lanes.lane import Lane
from penstock.lanes.position import At, RawRecord
from penstock.plan import layout
from penstock.records import NO_TIMESTAMP, Headers, RecordMetadata
from penstock.state import Engine, EngineFactory, EngineKind, LaneState, memory_engine
from penstock.topology import ProcessorNode, SourceNode

Partition = tuple[str, int]
ReadRecords = Callable[
    [Mapping[Partition, int], Mapping[Partition, int]], Iterable[tuple[str, int, int, bytes | None, bytes | None, int, Headers]]
]
"""`read(positions, ends)`: topic, partition, offset, key, value, timestamp, headers of each record between."""


class GlobalTables:
    """The global stores of an application."""

    def __init__(
        self,
        program: Program,
        partitions: Iterable[Partition],
        begin_offsets: Callable[[Iterable[Partition]], Mapping[Partition, int]],
        end_offsets: Callable[[Iterable[Partition]], Mapping[Partition, int]],
        read: ReadRecords,
        every_s: float = 0.1,
    ) -> None:
        self._program = program
        self._partitions = sorted(partitions)
        self._begin_offsets = begin_offsets
        self._end_offsets = end_offsets
        self._read = read
        self._every_s = every_s
        self._asked = 0.0
        home = Home(program.directory, program.application_id)
        if self._partitions:
            home.forget_other_globals(_layout(program))
        self._factory = EngineFactory(EngineKind.LMDB, str(home.global_directory))
        self._engine: Engine | None = None
        sources = set(program.global_stores.values())
        self._nodes = [
            node
            for name, node in program.nodes.items()
            if name in sources or (isinstance(node, ProcessorNode) and sources.issuperset(node.parents) and node.parents)
        ]
        self._source_of = {topic: node.name for node in self._nodes if isinstance(node, SourceNode) for topic in node.topics}

    def refresh(self, at_once: bool = False) -> None:
        """Read what has come since the last time; not more often than a lane could notice."""
        now = time.monotonic()
        if not self._partitions or (not at_once and now - self._asked < self._every_s):
            return
        self._asked = now
        ends = self._end_offsets(self._partitions)
        if self._engine is None:  # stays open: LMDB's files can be open once in a process, and queries read them here
            self._engine = self._factory.open(room_to_grow=True)
        self._apply(LaneState(self._engine), ends)

    def snapshot(self) -> Engine:
        """The stores as they are now, to read from any thread."""
        return memory_engine() if self._engine is None else self._engine.snapshot()

    def close(self) -> None:
        """Let go of the files; all snapshots are closed by then."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _apply(self, state: LaneState, ends: Mapping[Partition, int]) -> None:
        registers = {place: state.registers.register(f"offset {place[0]}/{place[1]}", NO_TIMESTAMP) for place in self._partitions}
        unknown = [place for place, register in registers.items() if register.value == NO_TIMESTAMP]
        begins = self._begin_offsets(unknown) if unknown else {}
        positions = {place: begins.get(place, register.value) for place, register in registers.items()}
        if state.epoch >= 0 and all(positions[place] >= ends[place] for place in self._partitions):
            return
        lane = Lane(
            self._nodes,
            self._program.specs,
            state,
            wall_clock=lambda: int(time.time() * 1000),
            global_stores=self._program.global_stores,
            failures=Failures(self._program.handlers, self._program.application_id),
        )
        for topic, partition, offset, key, value, timestamp, headers in self._read(positions, ends):
            origin, raw = RecordMetadata(topic, partition, offset), RawRecord(key, value, timestamp, headers)
            intake = lane.intakes[self._source_of[topic]]
            arrival = intake.decode(lane, origin, raw, NO_TIMESTAMP)
            if arrival is not None:
                lane.position = At(origin, raw)
                intake.process(*arrival)
        lane.flush()
        lane.close()
        for place, register in registers.items():
            register.value = max(ends[place], positions[place])
        state.commit(state.epoch + 1)


def _layout(program: Program) -> str:
    """What the global stores depend on, in words: how they are laid out, and what feeds them."""
    fed = {store: getattr(program.nodes[source], "topics", ()) for store, source in program.global_stores.items()}
    return "\n".join(f"{store} {layout(program.specs[store])} from {topics}" for store, topics in fed.items())
