"""Everything in the epoch oracle that uses Penstock's internals: programs, epochs, restores, stores.

A change there requires a change here, and nowhere else in the oracle.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import Config
from penstock.epochs import output, overlap, stage_run, stays
from penstock.epochs.assignment import Assignment
from penstock.epochs.global_tables import GlobalTables
from penstock.epochs.hops import INPUT, roll_back_lane
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program, lanes_topic
from penstock.epochs.restore import restore_lane
from penstock.epochs.shards import shards_of
from penstock.epochs.state_directory import StateDirectory, lane_as_of, open_lane
from penstock.epochs.wire import Kind, decode_control
from penstock.handlers import ErrorHandler, ErrorHandlers, log_and_continue, log_and_fail, retry
from penstock.history.committed import committed_state
from penstock.history.past import Past
from penstock.history.progress import Progress
from penstock.history.shards import settled
from penstock.history.truth import Truth
from penstock.kafka.partitioner import with_all_names, with_partitions
from penstock.kafka.topics import Topic
from penstock.lanes import gathering
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.heap import TimeHeap
from penstock.lanes.outbox import Row
from penstock.lanes.position import NOWHERE, At, Position, RawRecord
from penstock.lanes.punctuation import Punctuators
from penstock.lanes.residents import Residents
from penstock.lanes.stores import OwnShard
from penstock.operators.foreign_keys import SubscriptionSend
from penstock.records import NO_TIMESTAMP, ChangelogRows, Headers, RecordMetadata, ValueAndTimestamp
from penstock.state import EngineKind, LaneState, Mark, StoreKind, StoreSpec, last_registers, memory_engine
from penstock.state.bounds import MAX_TIME
from penstock.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import Plan
from penstock.topology.plan import plan as plan_of
from verification.conformance.epochs.living import Living
from verification.conformance.epochs.router import SINK_PARTITIONS, Arrived, Origin
from verification.harness.rows import without_reports

ID = "epochs"
ATTEMPTS = 50
"""More than any function needs."""

HANDLERS: dict[str, ErrorHandler] = {
    "fail": log_and_fail(),
    "drop": log_and_continue(),
    "retry": retry(attempts=ATTEMPTS, backoff="0ms", then=log_and_continue()),
}
"""What an application does about a function that fails, by name."""

Log = list[tuple[bytes, bytes | None] | None]
Contents = dict[str, list[Any]]


@lru_cache(maxsize=2)
def plan(topology: Topology) -> Plan:
    """The plan of the current case, of the host or of the judge, cached because it is used repeatedly."""
    return plan_of(topology)


def specs_of(topology: Topology, *, caching: bool) -> Mapping[str, StoreSpec]:
    """The stores as in an application: tables that are joined with each other have no caches."""
    return _program(topology, "nowhere", 1, 1, caching=caching).specs


def without_caches(topology: Topology) -> Topology:
    """The same topology with stores that have no caches."""
    stores = {name: replace(spec, cached=False) for name, spec in topology.stores.items()}
    object.__setattr__(topology, "_stores", stores)  # a built topology refuses changes
    return topology


def kept_specs(topology: Topology, specs: Mapping[str, StoreSpec]) -> list[StoreSpec]:
    """The stores of shards; global ones follow their topics."""
    return [spec for name, spec in specs.items() if name not in topology.global_stores]


Ways = frozenset[tuple[str, int]]
"""Stores and exchanges that several stages use, each with a stage in which a source's records reach it."""


def ways_of(topology: Topology) -> dict[str, Ways]:
    """By source: of the stores that several stages use, and exchanges that several write, those that its records reach, and when.

    A stage processes all records of an epoch before the next one begins: what an earlier stage stores or sends comes first.
    """
    nodes, stages = topology.nodes, plan(topology).stages
    used = Counter(name for stage in stages for name in {*stage.stores, *map(_written, map(nodes.__getitem__, stage.nodes))})
    stage_of = {source: stage.depth for stage in stages for source in stage.sources}
    children: defaultdict[str, list[str]] = defaultdict(list)
    readers = {topic: node.name for node in nodes.values() if isinstance(node, SourceNode) for topic in node.topics}
    for node in nodes.values():
        for parent in node.parents:
            children[parent].append(node.name)
        exchange = _written(node)
        if exchange is not None:
            children[node.name].append(readers[exchange])
    found: dict[str, Ways] = {}
    for source, depth in stage_of.items():
        reached, waiting = set[tuple[str, int]](), [(source, depth)]
        while waiting:
            name, at = place = waiting.pop()
            reached.add(place)
            following = [(child, stage_of.get(child, at)) for child in children[name]]
            waiting += [place for place in following if place not in reached]
        places = ((place, at) for name, at in reached for place in (*getattr(nodes[name], "stores", ()), _written(nodes[name])))
        found[source] = frozenset((place, at) for place, at in places if place is not None and used[place] > 1)
    return found


def _written(node: Node) -> str | None:
    """The exchange that a node writes, if any."""
    return node.topic if isinstance(node, SinkNode) and node.internal and isinstance(node.topic, str) else None


def first_writers(topology: Topology) -> dict[str, int]:
    """By exchange: the first stage that writes it."""
    nodes, stages = topology.nodes, plan(topology).stages
    written = [(_written(nodes[name]), number) for number, stage in enumerate(stages) for name in stage.nodes]
    return {exchange: number for exchange, number in reversed(written) if exchange is not None}


def has_scattered_processors(topology: Topology) -> bool:
    """Whether a user processor runs in several stages: each stage has its own stream time, but the processor has one."""
    stages = Counter(name for stage in plan(topology).stages for name in stage.nodes)
    nodes = [topology.nodes[name] for name, count in stages.items() if count > 1]
    return any(isinstance(node, ProcessorNode) and node.operator.runs_user_objects for node in nodes)


class GlobalTask:
    """The global tables, which every shard reads."""

    def __init__(self, topology: Topology, specs: Mapping[str, StoreSpec]) -> None:
        feeding = set(topology.global_stores.values())
        nodes = [node for node in topology.nodes.values() if node.name in feeding or feeding.intersection(node.parents)]
        self.state = LaneState(memory_engine())
        blueprint = Blueprint(nodes, specs, global_stores=topology.global_stores)
        self._lane = BoundShard(blueprint, OwnShard(self.state), Surroundings(lambda: 0))

    def feed(self, record: Arrived) -> None:
        """Add a record of a topic."""
        self._lane.cursor.position = _position((*record.origin, record.offset), record.timestamp, record.headers)
        self._lane.intakes[record.source].process(*record.read, record.timestamp, record.headers)
        self.state.commit(self.state.epoch + 1)


class Task:
    """A test driver of one shard: the judge delivers what it sends to exchanges.

    A sub-topology has its own stream time, like a Kafka Streams task.
    """

    def __init__(
        self, topology: Topology, specs: Mapping[str, StoreSpec], wall_clock: int, tables: GlobalTask, failures: str
    ) -> None:
        self._now = wall_clock
        self._policy = FailurePolicy(ErrorHandlers(processing=HANDLERS[failures]))
        self.state = LaneState(memory_engine())
        self._topology = topology
        self._specs = specs
        self._tables = tables
        self._stages = plan(topology).stages
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._remembers_questions = any(
            isinstance(node, ProcessorNode) and isinstance(node.operator, SubscriptionSend) for node in topology.nodes.values()
        )
        self._residents = [Residents() for _ in self._stages]
        self._lanes = self._bound()
        self.stage_of = {source: number for number, stage in enumerate(self._stages) for source in stage.sources}
        """The stage in which the records of a source enter."""

    def _bound(self) -> list[BoundShard]:
        topology = self._topology
        shard, surroundings = OwnShard(self.state, self._tables.state), Surroundings(lambda: self._now)
        blueprints = [
            Blueprint(
                [topology.nodes[name] for name in stage.nodes],
                self._specs,
                tables=topology.nodes,
                global_stores=topology.global_stores,
                sub_topologies={name: group[0] for group in topology.groups() for name in group},
            )
            for stage in self._stages
        ]
        return [
            BoundShard(blueprint, shard, surroundings, self._policy, residents=residents)
            for blueprint, residents in zip(blueprints, self._residents, strict=True)
        ]

    @property
    def stages(self) -> range:
        """The stages, first to last."""
        return range(len(self._lanes))

    def take(
        self, source: str, key: Any, value: Any, timestamp: int, headers: Headers, place: tuple[str, int, int] | None
    ) -> list[Row]:
        """Process one record; return what it sends."""
        lane = self._lanes[self.stage_of[source]]
        lane.cursor.position = _position(place, timestamp, headers)
        lane.cursor.row += 1  # by which a foreign-key join distinguishes the epoch's records
        stream_time = lane.clocks.stream_time_of(source)
        stream_time.reach(timestamp)
        lane.intakes[source].process(key, value, timestamp, headers)
        lane.clocks.punctuate(stream_time)
        return lane.outbox.drain()

    def begin_anew(self, wall_clock: int, *, is_start: bool) -> None:
        """Let processors begin anew at this time: they are the same, but remember nothing."""
        self._now = wall_clock
        for lane, residents in zip(self._lanes, self._residents, strict=True):
            for _, resident in residents:
                if isinstance(resident.user_object, Living):
                    resident.user_object.begin_anew(is_start=is_start)
            for punctuators in _punctuators_of(lane):
                waiting = [schedule for schedule in punctuators._heap if not schedule.cancelled]
                punctuators._heap = TimeHeap(lambda schedule: schedule.due)
                for schedule in waiting:
                    punctuators.add(schedule)

    def tick(self, stage: int, wall_clock: int) -> list[Row]:
        """Set the wall clock; return what a stage sends because of it."""
        self._now = wall_clock
        lane = self._lanes[stage]
        lane.clocks.fire_punctuators()
        lane.clocks.fire_timers()
        return lane.outbox.drain()

    def flush(self, stage: int) -> list[Row]:
        """Let the caches of a stage emit; return what they send."""
        lane = self._lanes[stage]
        lane.cursor.position = NOWHERE
        lane.flush()
        return lane.outbox.drain()

    def commit(self) -> None:
        """End the epoch, and with it what a foreign-key join knows about its requests."""
        self.state.commit(self.state.epoch + 1)
        if self._remembers_questions:
            self._dropped += sum((Counter(lane.outbox.dropped) for lane in self._lanes), Counter())
            self._lanes = self._bound()

    def dropped(self) -> Counter[tuple[str, str]]:
        """The records that the shard dropped."""
        return sum((Counter(lane.outbox.dropped) for lane in self._lanes), self._dropped)

    def contents(self, specs: Iterable[StoreSpec]) -> Contents:
        """The content of the stores."""
        return contents_of(self.state, specs)

    def close(self) -> None:
        """Let processors clean up."""
        for residents in self._residents:
            for failure in residents.close():
                raise failure


def _punctuators_of(lane: BoundShard) -> list[Punctuators]:
    clocks = lane.clocks
    return [clocks.wall_clock_punctuators, *(time.punctuators for time in clocks._stream_times.values())]


def _position(place: tuple[str, int, int] | None, timestamp: int, headers: Headers) -> Position:
    return NOWHERE if place is None else At(RecordMetadata(*place), RawRecord(None, None, timestamp, headers))


class Attempt(NamedTuple):
    """The result of an epoch."""

    number: int
    records: Sequence[Arrived]
    sent: list[tuple[str, bytes | None, bytes | None, int, Headers, int | None]]
    changes: list[tuple[str, int, bytes, bytes | None]]
    high_times: dict[int, int]
    dropped: Counter[tuple[str, str]]


class Application:
    """An application without Kafka and Spark: real epochs and lanes on disk, over changelogs that are lists."""

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        shards: int,
        origins: Sequence[Origin],
        *,
        caching: bool,
        columns: bool = False,
        failures: str = "fail",
        threads: int = 1,
    ) -> None:
        self._topology = topology
        self._directory = directory
        self._shards = shards
        self._caching = caching
        self._columns = columns
        self._failures = failures
        self._threads = threads
        self._origins = tuple(origins)
        self._logs: defaultdict[Origin, Log] = defaultdict(list)
        self._ids: defaultdict[str, str] = defaultdict(lambda: "first")
        self._past: Past | None = None
        self._starts = 0
        self._in_flight: list[Attempt] = []
        self._committed: list[Arrived] = []
        self._offsets = dict.fromkeys(origins, 0)
        self._high_times = dict.fromkeys(origins, NO_TIMESTAMP)
        self._mark: Mark | None = None
        self._global_logs: dict[str, list[Arrived]] = {}
        self._processes: list[dict[Any, Any]] = [{}, {}]
        """What each process knows about the stays of lanes in it; the first is the one that runs them now."""
        self._program = self._program_of(1)
        self._codes = {name: code for code, name in enumerate(self._program.sources)}

    # ---- starts ---------------------------------------------------------------------------------------------------

    def start(self, lanes: int, now: int, *, tidy: bool) -> list[str]:
        """Start a new incarnation and restore it to the committed epoch; return in which state its lanes were found."""
        self.close()
        self._starts += 1
        self._in_flight.clear()
        self._mark = None
        self._program = replace(self._program_of(lanes), incarnation=f"start-{self._starts}")
        home = StateDirectory(str(self._directory), ID)
        home.take_over(self._program.incarnation)
        topics = self._changelogs()
        ids = {topic: self._ids[topic] for topic in topics}
        committed = committed_state(self._past, self._starts_of(topics), self._ends_of(topics), now, ids)
        found = [
            restore_lane(self._program, lane, committed, self._read, lambda left: None, is_retry=False) for lane in range(lanes)
        ]
        if tidy:
            home.forget_others(lanes)
        self._globals = self._global_tables()
        return [lane.found for lane in found]

    def _program_of(self, lanes: int) -> Program:
        options: dict[str, Any] = {"caching": self._caching, "columns": self._columns, "failures": self._failures}
        return _program(self._topology, str(self._directory), self._shards, lanes, **options, threads=self._threads)

    def move(self) -> None:
        """Run the next epochs in another process."""
        self._processes.reverse()

    def close(self) -> None:
        """End both processes."""
        for known in self._processes:
            with patch.object(stays, "_stays", known):
                stays.end_stays()

    def _changelogs(self) -> list[str]:
        return [lanes_topic(ID), *(changelog_topic(ID, store) for store in self._program.logged_stores)]

    def forget(self) -> None:
        """Remove the stores."""
        StateDirectory(str(self._directory), ID).forget()

    def copy(self, target: Path) -> None:
        """Copy the state directory."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._directory, target)

    def come_from(self, copy: Path) -> None:
        """Replace the state directory with a copy."""
        shutil.rmtree(self._directory)
        shutil.copytree(copy, self._directory)

    def come_from_elsewhere(self, lanes: int, now: int) -> None:
        """Replace the state directory with that of another application of the same name, with its own changelogs."""
        self.forget()
        with tempfile.TemporaryDirectory(dir=self._directory.parent) as folder:
            own: dict[str, Any] = {"caching": self._caching, "failures": self._failures}
            other = Application(self._topology, Path(folder), self._shards, self._origins, **own)
            other._ids = defaultdict(lambda: "elsewhere")
            other._global_logs = self._global_logs
            other.start(lanes, now, tidy=True)
            for records in (self._committed[: len(self._committed) // 2], ()):
                other.send(other.run(records, now))
                other.commit()
                other.note_mark(now)
            other.send(other.run((), now))
            other.run((), now)
            other.close()
            other.come_to(self._directory)

    def come_to(self, directory: Path) -> None:
        """Move the stores to another directory."""
        shutil.rmtree(directory)
        shutil.copytree(self._directory, directory)

    # ---- epochs ---------------------------------------------------------------------------------------------------

    def run(self, records: Sequence[Arrived], now: int) -> Attempt:
        """Run the epoch after those in flight."""
        self._globals.refresh(at_once=True)
        self._globals.close()  # lanes run in this process too, and a file can be open only once
        previous = self._epoch + len(self._in_flight)
        high_times = tuple(self._high_times_after(self._in_flight).values())
        epoch = Epoch(previous + 1, previous, now, self._origins, high_times, None, self._mark, committed=self._epoch)
        batch = pa.RecordBatch.from_pylist([self._row(record) for record in records], schema=INPUT)
        with patch.object(stays, "_stays", self._processes[0]):
            table = without_reports(run_epoch(self._program, epoch, [batch]))
        return self._attempt(epoch.number, records, table)

    def _high_times_after(self, attempts: Iterable[Attempt]) -> dict[Origin, int]:
        found = dict(self._high_times)
        for code, time in ((code, time) for attempt in attempts for code, time in attempt.high_times.items()):
            found[self._origins[code]] = max(found[self._origins[code]], time)
        return found

    def _row(self, record: Arrived) -> dict[str, Any]:
        return {
            "name": self._codes[record.source],
            "origin": self._origins.index(record.origin),
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [{"name": name, "value": data} for name, data in record.headers] or None,
        }

    def _attempt(self, number: int, records: Sequence[Arrived], table: pa.Table) -> Attempt:
        attempt = Attempt(number, records, [], [], {}, Counter())
        placed = _placed(table, self._program)
        for row in table.to_pylist():
            if row["kind"] == Kind.CONTROL:
                control = decode_control(row["value"])
                attempt.high_times.update(control.high_times)
                attempt.dropped.update({(node, reason): count for node, reason, count in control.dropped})
                continue
            topic = row["topic"] if row["name"] < 0 else self._program.topics[row["name"]]
            if row["kind"] == Kind.CHANGELOG:
                attempt.changes.append((topic, row["partition"], row["key"], row["value"]))
            elif row["kind"] == Kind.SINK:
                headers = tuple((header["name"], header["value"]) for header in row["headers"] or ())
                attempt.sent.append((topic, row["key"], row["value"], row["timestamp"], headers, next(placed)))
        return attempt

    @property
    def _epoch(self) -> int:
        return -1 if self._past is None else self._past.progress.epoch

    def send(self, attempt: Attempt) -> None:
        """Put an epoch in flight: later ones follow it, and it will be committed or taken back."""
        self._mark = None
        self._in_flight.append(attempt)

    def take_back(self, now: int) -> None:
        """Roll all lanes back to the committed epoch: the next epochs take the places of those in flight."""
        self._in_flight.clear()
        program = self._program
        if any(map(program.needs_lanes, range(len(program.plan.stages)))):
            for lane in range(program.lanes):
                roll_back_lane(Assignment(program, Epoch(self._epoch + 1, self._epoch, now), lane=lane))

    def commit(self) -> None:
        """Commit the first epoch in flight: one transaction, whose marker takes an offset in each partition too."""
        attempt = self._in_flight.pop(0)
        touched = {}
        for topic, partition, key, value in attempt.changes:
            self._logs[topic, partition].append((key, value))
            touched[topic, partition] = True
        for place in touched:
            self._logs[place].append(None)
        self._high_times = self._high_times_after([attempt])
        self._committed += attempt.records
        for record in attempt.records:
            self._offsets[record.origin] = record.offset + 1
        progress = Progress(attempt.number, dict(self._offsets), dict(self._high_times))
        self._past = Past(progress, self._program.incarnation, self._program.lanes)

    def note_mark(self, now: int) -> None:
        """Pass a mark to the next epoch."""
        offsets = {f"{topic}/{shard}": end for (topic, shard), end in self._ends_of(self._changelogs()).items()}
        self._mark = Mark(self._epoch, now, offsets, {topic: self._ids[topic] for topic in self._changelogs()})

    # ---- topics ---------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Keep the last row of each key, including deletions, at its offset; the other offsets become gaps."""
        for place, log in self._logs.items():
            last = {row[0]: offset for offset, row in enumerate(log) if row is not None}
            self._logs[place] = [row if row is not None and last[row[0]] == offset else None for offset, row in enumerate(log)]

    def _read(self, positions: Mapping[Origin, int], ends: Mapping[Origin, int]) -> Iterator[ChangelogRows]:
        for place, start in positions.items():
            rows = [row for row in self._logs[place][start : ends[place]] if row is not None]
            if rows:
                keys, values = map(list, zip(*rows, strict=True))
                yield ChangelogRows(*place, keys, values)

    def _ends_of(self, topics: Iterable[str]) -> dict[Origin, int]:
        return {(topic, shard): len(self._logs[topic, shard]) for topic in topics for shard in range(self._shards)}

    def _starts_of(self, topics: Iterable[str]) -> dict[Origin, int]:
        return {(topic, shard): 0 for topic in topics for shard in range(self._shards)}

    def feed(self, record: Arrived) -> None:
        """Add a record of a global table's topic."""
        self._global_logs.setdefault(record.origin[0], []).append(record)

    def _global_tables(self) -> GlobalTables:
        program = self._program
        sources = [program.nodes[name] for name in program.global_stores.values()]
        partitions = [(topic, 0) for node in sources for topic in getattr(node, "topics", ())]
        return GlobalTables(program, partitions, lambda asked: dict.fromkeys(asked, 0), self._global_ends, self._read_globals)

    def _global_ends(self, asked: Iterable[Origin]) -> dict[Origin, int]:
        return {(topic, partition): len(self._global_logs.get(topic, ())) for topic, partition in asked}

    def _read_globals(self, positions: Mapping[Origin, int], ends: Mapping[Origin, int]) -> Iterator[Any]:
        for (topic, partition), end in ends.items():
            for record in self._global_logs.get(topic, [])[positions[topic, partition] : end]:
                yield topic, partition, record.offset, record.key, record.value, record.timestamp, record.headers

    # ---- contents -------------------------------------------------------------------------------------------------

    def contents(self, specs: Sequence[StoreSpec]) -> list[tuple[range, Contents]]:
        """The content of the stores, by shard."""
        found: list[tuple[range, Contents]] = []
        for lane in range(self._program.lanes) if specs else ():
            with open_lane(self._program, lane) as state:
                state.verify()
                own = shards_of(lane, self._shards, self._program.lanes)
                found += [(range(shard, shard + 1), contents_of(state, specs, shard)) for shard in own]
        return found

    def committed_contents(self, specs: Sequence[StoreSpec]) -> list[tuple[range, Contents]]:
        """The content of the stores as of the last commit, by shard, while lanes are ahead."""
        home, lanes = StateDirectory(str(self._directory), ID), self._program.lanes
        found: list[tuple[range, Contents]] = []
        for lane in range(lanes) if specs else ():
            with lane_as_of(self._program, self._epoch, home.lane_directory(lane, lanes)) as state:
                own = shards_of(lane, self._shards, lanes)
                found += [(range(shard, shard + 1), contents_of(state, specs, shard)) for shard in own]
        return found

    def rebuilt(self, specs: Sequence[StoreSpec]) -> list[tuple[range, Contents]]:
        """The content of the changelogs, by shard."""
        logged = [spec for spec in specs if spec.logged]
        found: list[tuple[range, Contents]] = []
        for shard in range(self._shards):
            state = LaneState(memory_engine())
            for spec in logged:
                state.store(spec).restore(*self._rows(changelog_topic(ID, spec.name), shard))
            state.shard(0).restore_registers(last_registers(*self._rows(lanes_topic(ID), shard)) or {})
            state.restore([], epoch=0)
            found.append((range(shard, shard + 1), contents_of(state, logged)))
        return found

    def _rows(self, topic: str, shard: int) -> tuple[list[bytes], list[bytes | None]]:
        rows = [row for row in self._logs[topic, shard] if row is not None]
        return [key for key, _ in rows], [value for _, value in rows]


@contextmanager
def in_columns() -> Iterator[list[str]]:
    """Compute epochs of any size in columns; return the stores whose changes were computed so, each time."""
    settled: list[str] = []

    def noted(lane: Any, path: Any, table: Any, changes: Any) -> None:
        settled.append(table.spec.name)
        apply(lane, path, table, changes)

    apply = gathering.apply
    with patch.object(gathering, "apply", noted), patch.object(gathering, "COLUMNS_FROM", 1):
        yield settled


class _Topics:
    """Topics with their partitions, as a start asks for them."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions

    def names(self) -> set[str]:
        """The names of all topics."""
        return set(self._partitions)

    def seen(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist."""
        return {name: Topic(name, name, self._partitions[name], {}) for name in names if name in self._partitions}


def shards_by_default(topology: Topology, partitions: Mapping[str, int]) -> int:
    """The shards of a new application without a setting, whose source topics have so many partitions."""
    config, topics = (
        Config(kafka={"bootstrap.servers": "nowhere:1"}, lanes=1, create_topics=True),
        cast("Any", _Topics(partitions)),
    )
    truth = Truth(topology, _program(topology, "nowhere", 1, 1, caching=True), config, topics)
    return settled(truth, config, topics).shards or 0


@contextmanager
def in_small_pieces() -> Iterator[None]:
    """Decode, process and send few records of a shard at a time, as lanes do with many."""
    with patch.object(stage_run, "_PIECE", 3), patch.object(stage_run, "_FEW", 0), patch.object(output, "_MOST_ROWS", 2):
        yield


class _Waiting(overlap.Pace):
    """The pace of code that is known to wait."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._waiting.update(range(100))


@contextmanager
def in_threads(topology: Topology) -> Iterator[list[int]]:
    """Walk shards as if all code waited; return how many were walked in threads.

    The first shard is walked as if that was not known yet, unless there are processors: those would end there and begin anew.
    """
    operators = [node.operator for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    pace = _Waiting if any(operator.runs_user_objects for operator in operators) else overlap.Pace
    walked, found = overlap.Pace._at_once, list[int]()

    def noted(pace: Any, stage: int, left: list[int], walks: Any) -> Any:
        found.append(len(left))
        return walked(pace, stage, left, walks)

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        measured = patch.multiple(overlap, _LEAST_S=0.0, _WAITS=0.0, _STILL_WAITS=0.0)
        with measured, patch.object(overlap.Pace, "_at_once", noted), patch.object(stays, "Pace", pace):
            yield found
    finally:
        sys.setswitchinterval(often)


def _placed(table: pa.Table, program: Program) -> Iterator[int | None]:
    """The partitions into which a producer writes the rows that are sent, in order; None for any, as without a key."""
    for rows in table.filter(pc.field("kind") == Kind.SINK).to_batches():
        named, topics = with_all_names(rows, program.topics)
        placed = with_partitions(named, topics, dict.fromkeys(topics, SINK_PARTITIONS)).column("partition")
        is_any = pc.and_(
            pc.is_null(rows.column("key")), pc.invert(pc.fill_null(pc.greater_equal(rows.column("partition"), 0), False))
        )
        yield from pc.if_else(is_any, None, placed).to_pylist()


def _program(
    topology: Topology,
    directory: str,
    shards: int,
    lanes: int,
    *,
    caching: bool,
    columns: bool = False,
    failures: str = "fail",
    threads: int = 1,
) -> Program:
    program = Program.of(
        ID,
        topology,
        plan(topology),
        lanes=lanes,
        shards=shards,
        directory=directory,
        engine=EngineKind.LMDB,
        incarnation="",
        handlers=ErrorHandlers(processing=HANDLERS[failures]),
        columns=columns,
        blocking_threads=threads,
    )
    if caching:
        return program
    return replace(program, specs={name: replace(spec, cached=False) for name, spec in program.specs.items()})


def contents_of(state: LaneState, specs: Iterable[StoreSpec], shard: int = 0) -> Contents:
    """The content of a shard's stores, as of the lane's epoch."""
    as_of = state.read_committed(state.epoch).shard(shard)
    return {spec.name: sorted(_entries(spec, as_of.store(spec)), key=repr) for spec in specs}


def _entries(spec: StoreSpec, store: Any) -> Iterator[Any]:
    if spec.kind is StoreKind.VERSIONED:
        for key, _ in store.all():
            yield from ((repr(key), repr(version)) for version in store.history(key, 0, MAX_TIME))
    elif spec.kind is StoreKind.RAW:
        yield from store.scan()
    elif spec.kind in (StoreKind.TIMESTAMPED, StoreKind.TIMESTAMPED_WINDOW):
        yield from ((repr(key), *_dated(value)) for key, value in store.entries.all())
    else:
        yield from ((repr(key), repr(value)) for key, value in store.all())


def _dated(value: Any) -> tuple[str, int]:
    assert isinstance(value, ValueAndTimestamp)
    return repr(value.value), value.timestamp
