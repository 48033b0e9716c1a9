"""Epochs of any size on any number of lanes, in this process: all stages and exchanges, stores in files, no Spark, no Kafka.

Lists stand for Kafka: topics are logs, an epoch takes their next records, changelogs are kept.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import pyarrow as pa

from penstock.epochs.global_tables import GlobalTables
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program, lanes_topic
from penstock.epochs.shards import shards_of
from penstock.epochs.state_directory import StateDirectory, open_lane
from penstock.epochs.wire import Kind, decode_control
from penstock.handlers import ErrorHandlers
from penstock.records import NO_TIMESTAMP, Partition
from penstock.state import EngineKind
from penstock.timing import WatermarkTracker
from penstock.topology import SourceNode, Topology
from penstock.topology.plan import plan
from verification.harness.rows import without_reports
from verification.integration.contents import contents, restored
from verification.integration.cut import LANES, Cut
from verification.integration.hosts.changelogs import Changelogs
from verification.integration.inputs import SHARDS, partition_of
from verification.integration.scenario import SINK_PARTITIONS, Entry, Fed, Phase, Result, Scenario, Sent, Setup, chosen

APPLICATION_ID = "integration"
INCARNATION = "first start"
WALL_CLOCK_MS = 1_000_000_000


class Trouble(Enum):
    """The faults that an application goes through."""

    NONE = ""
    RETRIES = "each epoch twice"
    """As if a task had died after writing."""
    RESTARTS = "restarted after every second epoch"
    """From changelogs alone, and with another number of lanes."""


def run(scenario: Scenario, phases: Sequence[Phase], caching: bool, cut: Cut, trouble: Trouble = Trouble.NONE) -> Result:
    """The result of a scenario in epochs."""
    with tempfile.TemporaryDirectory(prefix="penstock-integration-") as directory:
        running = _Running(scenario, scenario.build(Setup(caching)), cut, directory, trouble)
        for phase, partitions in zip(phases, scenario.partitions(phases), strict=True):
            running.feed(phase, partitions)
        return running.result()


class _Running:
    """A running application: its logs, how far they are read, and its output."""

    def __init__(self, scenario: Scenario, topology: Topology, cut: Cut, directory: str, trouble: Trouble) -> None:
        self._sizes = cut.sizes()
        self._trouble = trouble
        self._partitions: dict[str, int] = {}
        self._sink_partitions = {output.topic: SINK_PARTITIONS for output in scenario.outputs}
        self._program = Program.of(
            APPLICATION_ID,
            topology,
            plan(topology),
            lanes=cut.lanes,
            shards=SHARDS,
            directory=directory,
            engine=EngineKind.LMDB,
            incarnation=INCARNATION,
            handlers=ErrorHandlers(),
            columns=True,
        )
        StateDirectory(directory, APPLICATION_ID).take_over(INCARNATION)
        self._source_of = _sources_by_topic(self._program)
        self._origins: tuple[Partition, ...] = ()
        self._high_times: list[int] = []
        self._watermarks: WatermarkTracker[Partition] | None = None
        self._ends: defaultdict[Partition, int] = defaultdict(int)
        self._waiting: deque[dict[str, Any]] = deque()
        self._number = 0
        self._now = WALL_CLOCK_MS
        self._outputs: defaultdict[str, list[Sent]] = defaultdict(list)
        self._changelogs = Changelogs()
        self._globals = _GlobalLogs(self._program)
        self._grow(dict.fromkeys(self._source_of, scenario.input_partitions))
        self._watermarks = _tracker(self._program, self._origins)

    def _grow(self, partitions: Mapping[str, int]) -> None:
        """Create topics with this many partitions; known partitions keep their numbers."""
        for topic in partitions.keys() - self._source_of.keys():
            source = _by_pattern(self._program, topic)
            if source is not None:
                self._source_of[topic] = source
        self._partitions.update({topic: count for topic, count in partitions.items() if topic in self._source_of})
        places = [(topic, number) for topic, count in self._partitions.items() for number in range(count)]
        high_times = dict(zip(self._origins, self._high_times, strict=True))
        self._origins = tuple(sorted({*self._origins, *places}))  # as an application has them: of equal times, the first is next
        self._high_times = [high_times.get(place, NO_TIMESTAMP) for place in self._origins]

    def feed(self, phase: Phase, partitions: Mapping[str, int]) -> None:
        """Process all records of a phase, and those that come back through topics; then advance the clock."""
        self._grow(partitions)
        for record in phase.records:
            self._append(record)
        while self._waiting:
            self._epoch([self._waiting.popleft() for _ in range(min(next(self._sizes), len(self._waiting)))])
        if phase.advance_ms:
            self._now += phase.advance_ms
            self._epoch([])

    def result(self) -> Result:
        """The output, and the content of the lanes and their changelogs."""
        specs = [spec for name, spec in self._program.specs.items() if name not in self._program.global_stores]
        kept: dict[str, list[Entry]] = {spec.name: [] for spec in specs}
        for lane in range(self._program.lanes) if specs else ():
            with open_lane(self._program, lane) as state:
                for name, entries in contents(state, specs, shards_of(lane, SHARDS, self._program.lanes)).items():
                    kept[name] += entries
        logged = [spec for spec in specs if spec.logged]
        rows = self._changelogs.of_stores(APPLICATION_ID, [spec.name for spec in logged])
        stores = {"stores": kept, "changelogs": contents(restored(rows, logged), logged, range(SHARDS))}
        return Result(dict(self._outputs), stores, self._number)

    def _append(self, record: Fed) -> None:
        topic, key, value, timestamp, headers = record
        if self._globals.takes(record):
            return
        place = (topic, partition_of(key, self._partitions[topic]))
        self._waiting.append(
            {
                "name": self._source_of[topic],
                "origin": self._origins.index(place),
                "offset": self._ends[place],
                "timestamp": timestamp,
                "key": key,
                "value": value,
                "headers": [{"name": name, "value": data} for name, data in headers] or None,
            }
        )
        self._ends[place] += 1

    def _epoch(self, rows: list[dict[str, Any]]) -> None:
        self._globals.refresh()
        epoch = self._next()
        batches = [pa.RecordBatch.from_pylist(rows, schema=INPUT)]
        table = without_reports(run_epoch(self._program, epoch, batches))
        if self._trouble is Trouble.RETRIES:
            table = self._the_same(table, without_reports(run_epoch(self._program, epoch, batches)))
        self._number += 1
        for row in table.to_pylist():
            self._take(row)
        if self._trouble is Trouble.RESTARTS and self._number % 2 == 0:
            self._restart()

    def _next(self) -> Epoch:
        high_times, tracker = tuple(self._high_times), self._watermarks
        epoch = Epoch(self._number, self._number - 1, self._now, self._origins, high_times, self._sink_partitions)
        if tracker is None:
            return epoch
        watermarks = tuple(tracker.watermarks.get(origin, NO_TIMESTAMP) for origin in self._origins)
        before = tracker.reached
        return replace(epoch, watermark=tracker.advance(at=self._now), watermarks=watermarks, watermark_before=before)

    def _restart(self) -> None:
        others = [lanes for lanes in LANES if lanes != self._program.lanes]
        lanes = others[self._number // 2 % len(others)]
        start = f"start after epoch {self._number}"
        self._program = self._changelogs.restart(self._program, lanes, start, self._number - 1, self._now)

    def _the_same(self, table: pa.Table, again: pa.Table) -> pa.Table:
        """The rows of an epoch that ran again: the same, except that lanes may repeat their registers."""
        once, twice = ([row for row in found.to_pylist() if not self._is_of_lanes(row)] for found in (table, again))
        assert once == twice, f"epoch {self._number} gave other rows when it ran again"
        return again

    def _is_of_lanes(self, row: dict[str, Any]) -> bool:
        return bool(row["kind"] == Kind.CHANGELOG and self._program.topics[row["name"]] == lanes_topic(APPLICATION_ID))

    def _take(self, row: dict[str, Any]) -> None:
        """The rows of an epoch that Kafka would receive."""
        if row["kind"] == Kind.CONTROL:
            control = decode_control(row["value"])
            for origin, time in control.high_times.items():
                self._high_times[origin] = max(self._high_times[origin], time)
            for origin, watermark in control.watermarks.items():
                assert self._watermarks is not None
                self._watermarks.heard(self._origins[origin], watermark, at=self._now)
            return
        topic = row["topic"] if row["name"] < 0 else self._program.topics[row["name"]]
        if row["kind"] == Kind.CHANGELOG:
            self._changelogs.append(topic, row["partition"], row["key"], row["value"])
            return
        headers = tuple((header["name"], header["value"]) for header in row["headers"] or ())
        self._outputs[topic].append(
            Sent(row["key"], row["value"], row["timestamp"], headers, chosen(row["key"], row["partition"]))
        )
        if topic in self._source_of:
            self._append(Fed(topic, row["key"], row["value"], row["timestamp"], headers))


def _tracker(program: Program, origins: Iterable[Partition]) -> WatermarkTracker[Partition] | None:
    strategies = {place: strategy for place in origins if (strategy := program.watermark_of(place[0])) is not None}
    return WatermarkTracker(strategies, started_at=WALL_CLOCK_MS) if strategies else None


def _sources_by_topic(program: Program) -> dict[str, int]:
    found: dict[str, int] = {}
    for code, name in enumerate(program.sources):
        node = program.nodes[name]
        if isinstance(node, SourceNode) and not node.internal and name not in program.global_stores.values():
            found.update(dict.fromkeys(node.topics, code))
    return found


def _by_pattern(program: Program, topic: str) -> int | None:
    """The source whose pattern a topic matches, if any: topics of global tables have none."""
    for code, name in enumerate(program.sources):
        node = program.nodes[name]
        if isinstance(node, SourceNode) and node.pattern is not None and node.reads(topic):
            return code
    return None


class _GlobalLogs:
    """Global tables and their topics: the tables catch up at the beginning of an epoch."""

    def __init__(self, program: Program) -> None:
        sources = [program.nodes[name] for name in program.global_stores.values()]
        self._logs: dict[str, list[Fed]] = {topic: [] for node in sources for topic in getattr(node, "topics", ())}
        partitions = [(topic, 0) for topic in self._logs]
        self._tables = GlobalTables(program, partitions, lambda asked: dict.fromkeys(asked, 0), self._ends, self._read)

    def takes(self, record: Fed) -> bool:
        """Take a record of a global table's topic; return whether it was one."""
        if record.topic not in self._logs:
            return False
        self._logs[record.topic].append(record)
        return True

    def refresh(self) -> None:
        """Let the tables catch up."""
        self._tables.refresh(at_once=True)
        self._tables.close()  # lanes run in this process too, and a file can be open only once

    def _ends(self, asked: Iterable[Partition]) -> dict[Partition, int]:
        return {(topic, partition): len(self._logs[topic]) for topic, partition in asked}

    def _read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[Any]:
        for (topic, partition), end in ends.items():
            start = positions[topic, partition]
            for offset, (_, key, value, timestamp, headers) in enumerate(self._logs[topic][start:end], start):
                yield topic, partition, offset, key, value, timestamp, headers
