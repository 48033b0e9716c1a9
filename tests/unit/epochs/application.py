"""An application without Kafka and Spark: real epochs and real lanes on disk, over topics that are lists in memory."""

from __future__ import annotations

import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import StreamsBuilder, Topology, session, tumbling, until_window_closes
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, roll_back_lane
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program, lanes_topic
from penstock.epochs.restore import ReadChangelog, Restored, restore_lane
from penstock.epochs.shards import lane_of, shard_of, shards_of
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory, open_lane
from penstock.epochs.wire import Kind, decode_control
from penstock.handlers import ErrorHandlers
from penstock.history.committed import committed_state
from penstock.history.past import Past
from penstock.history.progress import Progress
from penstock.lanes.outbox import Row
from penstock.records import ChangelogRows
from penstock.state import EPOCH, EngineKind, Mark, ShardState
from penstock.testing import TopologyTestDriver
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import plan
from verification.harness.rows import without_reports
from verification.harness.tasks import Tasks

ID = "app"
SHARDS = 8
Place = tuple[str, int]
SentRow = tuple[str, bytes | None, bytes | None, int]


class Raw(NamedTuple):
    """A record of the one source partition."""

    key: bytes | None
    value: bytes | None
    timestamp: int


def every_kind_of_store() -> Topology:
    """An exchange, and a key-value, a window, a session and a suppress store."""
    builder = StreamsBuilder()
    words = builder.stream("in", value=str)
    words.flat_map_values(str.split).group_by(_value).count(store="words").to_stream().to("counts", value=int)
    by_key = words.group_by_key()
    windows = by_key.windowed_by(tumbling("1s", grace="500ms")).count(store="windows")
    windows.to_stream(_flat, key=str).to("windowed", value=int)
    windows.suppress(until_window_closes(name="held")).to_stream(_flat, key=str).to("final", value=int)
    by_key.windowed_by(session("300ms", grace="2s")).count(store="sessions").to_stream(_flat, key=str).to("sessions", value=int)
    return builder.build()


def _value(key: str, value: str) -> str:
    return value


def _flat(key: Any, value: Any) -> str:
    return f"{key.key}@{key.start}"


class Topics:
    """What Kafka keeps: rows by topic and partition, and the end of each transaction, which has an offset too."""

    def __init__(self) -> None:
        self.ids: defaultdict[str, str] = defaultdict(lambda: uuid.uuid4().hex)
        self.logs: defaultdict[Place, list[tuple[bytes, bytes | None] | None]] = defaultdict(list)
        self.begins: defaultdict[Place, int] = defaultdict(int)

    def append(self, rows: Iterable[tuple[str, int, bytes, bytes | None]]) -> None:
        """Commit rows as one transaction."""
        touched = {}
        for topic, partition, key, value in rows:
            self.logs[topic, partition].append((key, value))
            touched[topic, partition] = True
        for place in touched:
            self.logs[place].append(None)

    def compact(self) -> None:
        """Keep the last row of each key, at its offset; the others' offsets are gaps."""
        for place, log in self.logs.items():
            last = {row[0]: offset for offset, row in enumerate(log) if row is not None}
            self.logs[place] = [row if row is None or last[row[0]] == offset else None for offset, row in enumerate(log)]

    def ends(self, topics: Iterable[str]) -> dict[Place, int]:
        return {(topic, shard): len(self.logs[topic, shard]) for topic in topics for shard in range(SHARDS)}

    def starts(self, topics: Iterable[str]) -> dict[Place, int]:
        return {(topic, shard): self.begins[topic, shard] for topic in topics for shard in range(SHARDS)}

    def read(self, positions: Mapping[Place, int], ends: Mapping[Place, int], chunk: int = 7) -> Iterator[ChangelogRows]:
        """As `penstock.kafka.changelog.read` does: chunks of all partitions in turn."""
        left = {place: list(filter(None, self.logs[place][start : ends[place]])) for place, start in positions.items()}
        while any(left.values()):
            for (topic, partition), rows in left.items():
                if rows:
                    keys, values = map(list, zip(*rows[:chunk], strict=True))
                    yield ChangelogRows(topic, partition, keys, values)
                    del rows[:chunk]

    def content(self, topic: str, partition: int | None = None) -> dict[bytes, bytes]:
        """What a topic, or one partition of it, comes to when it is read from its beginning."""
        last: dict[bytes, bytes | None] = {}
        for (name, number), log in self.logs.items():
            if name == topic and partition in (None, number):
                last.update(filter(None, log))
        return {key: value for key, value in last.items() if value is not None}


class Application:
    """One application, its topics and its state directory; each start of it is a new incarnation."""

    def __init__(
        self,
        directory: Path,
        make: Callable[[], Topology] = every_kind_of_store,
        engine: EngineKind = EngineKind.LMDB,
        handlers: ErrorHandlers | None = None,
    ) -> None:
        self.directory = directory
        self.engine = engine
        self.handlers = handlers or ErrorHandlers()
        self.topics = Topics()
        self.input: list[Raw] = []
        self.past: Past | None = None
        self.starts = 0
        self.now_ms = int(time.time() * 1000)
        self.watermark: int | None = None
        self.due: int | None = None
        self.event_due: int | None = None
        self.sent: list[SentRow] = []
        self.in_flight: list[tuple[Sequence[Raw], pa.Table]] = []
        self.topology = make()
        self.lanes = 0

    # ---- a start --------------------------------------------------------------------------------------------------

    def program(self, lanes: int, incarnation: str) -> Program:
        made = program_of(
            self.topology,
            lanes,
            directory=str(self.directory),
            engine=self.engine,
            incarnation=incarnation,
            handlers=self.handlers,
        )
        return replace(made, specs={name: replace(spec, cached=False) for name, spec in made.specs.items()})

    def take_over(self, lanes: int) -> Program:
        """A new incarnation, which owns the directory; nothing is restored yet."""
        self.starts += 1
        self.lanes = lanes
        self.running = self.program(lanes, f"start-{self.starts}")
        self.position = self.past.progress.offsets["in", 0] if self.past else 0
        self.high_time = self.past.progress.high_times["in", 0] if self.past else -1
        self.epoch = self.past.progress.epoch if self.past else -1
        self.mark: Mark | None = None
        self.in_flight.clear()
        StateDirectory(str(self.directory), ID).take_over(self.running.incarnation)
        return self.running

    def start(self, lanes: int, is_retry: bool = False) -> list[Restored]:
        program = self.take_over(lanes)
        return [self.restore(program, lane, is_retry=is_retry) for lane in range(lanes)]

    def restore(self, program: Program, lane: int, read: ReadChangelog | None = None, is_retry: bool = False) -> Restored:
        return restore_lane(program, lane, self.committed(), read or self.topics.read, _nobody, is_retry)

    def committed(self) -> Committed:
        """What the topics say, found out as a start does."""
        changelogs = self.changelogs()
        ids = {topic: self.topics.ids[topic] for topic in changelogs}
        return committed_state(self.past, self.topics.starts(changelogs), self.topics.ends(changelogs), self.now_ms, ids)

    def changelogs(self) -> list[str]:
        """The topics that shards are restored from."""
        return [lanes_topic(ID), *(changelog_topic(ID, store) for store in self.running.logged_stores)]

    def lane_directory(self, lane: int) -> Path:
        return StateDirectory(str(self.directory), ID).lane_directory(lane, self.lanes)

    # ---- epochs -----------------------------------------------------------------------------------------------------

    def run(self, records: Sequence[Raw]) -> pa.Table:
        """The epoch after those in flight, not committed."""
        epoch, arriving = self.next_epoch(records)
        return without_reports(run_epoch(self.running, epoch, [arriving]))

    def next_epoch(self, records: Sequence[Raw]) -> tuple[Epoch, pa.RecordBatch]:
        """What the tasks of the next epoch receive."""
        position = self.position + sum(len(records) for records, _ in self.in_flight)
        previous = self.epoch + len(self.in_flight)
        high_time = max([self.high_time, *(self._high_time(table) for _, table in self.in_flight)])
        rows = [
            {"name": 0, "origin": 0, "offset": position + number, **record._asdict()} for number, record in enumerate(records)
        ]
        mark, self.mark = self.mark, None
        before = self.past.progress.watermark if self.past else -1
        epoch = Epoch(previous + 1, previous, self.now_ms, (("in", 0),), (high_time,), None, mark, self.watermark)
        epoch = replace(epoch, watermark_before=before, committed=self.epoch)
        return epoch, pa.RecordBatch.from_pylist(rows, schema=INPUT)

    def send(self, records: Sequence[Raw]) -> pa.Table:
        """Run the next epoch, and leave it in flight."""
        table = self.run(records)
        self.in_flight.append((records, table))
        return table

    def commit_oldest(self) -> None:
        """Commit the first epoch in flight."""
        self.commit(*self.in_flight.pop(0))

    def take_back(self) -> None:
        """Roll all lanes back to the committed epoch, as after a commit that failed."""
        self.in_flight.clear()
        for lane in range(self.lanes):
            roll_back_lane(Assignment(self.running, Epoch(self.epoch + 1, self.epoch, self.now_ms), lane=lane))

    @staticmethod
    def _high_time(table: pa.Table) -> int:
        controls = [decode_control(row["value"]) for row in table.to_pylist() if row["kind"] == Kind.CONTROL]
        return max((control.high_times.get(0, -1) for control in controls), default=-1)

    def commit(self, records: Sequence[Raw], table: pa.Table) -> None:
        """What the barrier does, and afterwards the epoch is true."""
        changes = []
        controls = []
        for row in table.to_pylist():
            if row["kind"] == Kind.REPORT:
                continue
            if row["kind"] == Kind.CONTROL:
                controls.append(decode_control(row["value"]))
            elif row["kind"] == Kind.CHANGELOG:
                changes.append((self.running.topics[row["name"]], row["partition"], row["key"], row["value"]))
            else:
                topic = row["topic"] if row["name"] < 0 else self.running.topics[row["name"]]
                self.sent.append((topic, row["key"], row["value"], row["timestamp"]))
        self.topics.append(changes)
        self.high_time = max(self.high_time, self._high_time(table))
        self.due = min((control.due for control in controls if control.due is not None), default=None)
        self.event_due = min((control.event_due for control in controls if control.event_due is not None), default=None)
        self.input += records
        self.position += len(records)
        self.epoch += 1
        progress = Progress(self.epoch, {("in", 0): self.position}, {("in", 0): self.high_time})
        if self.watermark is not None:
            progress = replace(progress, watermark=self.watermark)
        self.past = Past(progress, self.running.incarnation, self.lanes)

    def step(self, records: Sequence[Raw]) -> None:
        """The next epoch, committed."""
        self.commit(records, self.run(records))

    def note_mark(self) -> None:
        """Hand the next epoch a mark, as the driver does now and then."""
        ends = self.topics.ends(self.changelogs())
        offsets = {f"{topic}/{shard}": end for (topic, shard), end in ends.items()}
        self.mark = Mark(self.epoch, self.now_ms, offsets, {topic: self.topics.ids[topic] for topic in self.changelogs()})

    # ---- what is to be seen -----------------------------------------------------------------------------------------

    def content(self, store: str) -> dict[bytes, bytes]:
        """A store over all shards, as its changelog would have it."""
        found: dict[bytes, bytes] = {}
        for rows in self.contents_by_shard(store).values():
            found.update(rows)
        return found

    def contents_by_shard(self, store: str) -> dict[int, dict[bytes, bytes]]:
        """What each shard has of a store, as its changelog would have it."""
        found: dict[int, dict[bytes, bytes]] = {}
        for lane in range(self.lanes):
            with open_lane(self.running, lane) as state:
                state.verify()
                for shard in shards_of(lane, SHARDS, self.lanes):
                    found[shard] = changelog_rows(state.shard(shard), self.running, store)
        return found

    def registers(self, shard: int) -> dict[str, int]:
        with open_lane(self.running, lane_of(shard, SHARDS, self.lanes)) as state:
            return dict(state.shard(shard).registers.saved)

    def all_registers(self) -> list[dict[str, int]]:
        """The registers of every shard, whichever epoch has written them."""
        found = [self.registers(shard) for shard in range(SHARDS)]
        return [{name: value for name, value in registers.items() if name != EPOCH} for registers in found]

    def check(self) -> None:
        """Every lane is at the committed epoch, and its stores are what their changelogs say."""
        for lane in range(self.lanes):
            with open_lane(self.running, lane) as state:
                assert (state.epoch, state.head.incarnation) == (self.epoch, self.running.incarnation)
        for store in self.running.logged_stores:
            for shard, content in self.contents_by_shard(store).items():
                assert content == self.topics.content(changelog_topic(ID, store), shard), (store, shard)


def changelog_rows(state: ShardState, program: Program, store: str) -> dict[bytes, bytes]:
    """All entries of a shard's store in the form of its changelog."""
    state.store(program.specs[store])
    space = state.space(store)
    assert space.log is not None
    entries = list(space.scan())
    keys, values = space.log([key for key, _ in entries], [value for _, value in entries])
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def some_records(seed: int, count: int, start: int = 0) -> list[Raw]:
    """Records of a dozen keys, some out of order, some late."""
    chance = random.Random(seed)
    records = []
    for number in range(count):
        time_ms = start + number * 40 + chance.randrange(40) - chance.choice([0, 0, 0, 700, 2_000])
        value = " ".join(f"w{chance.randrange(15)}" for _ in range(chance.randrange(1, 4)))
        records.append(Raw(b"k%d" % chance.randrange(12), value.encode(), max(0, time_ms)))
    return records


def far_future() -> list[Raw]:
    """Records that close every window in every shard."""
    return [Raw(key, b"end", 10**9) for key in keys_of_shards(b"end")]


def keys_of_shards(name: bytes) -> list[bytes]:
    """A key of each shard, in the order of shards."""
    found: dict[int, bytes] = {}
    for number in range(1_000):
        key = b"%s-%d" % (name, number)
        found.setdefault(shard_of(key, SHARDS), key)
    return [found[shard] for shard in range(SHARDS)]


def driven(app: Application) -> list[SentRow]:
    """What test drivers say about the same input: one for each shard, which is a task, or one for all where stores are shared."""
    outputs: Mapping[str, Iterable[Row]]
    if any(spec.sharing for spec in app.topology.stores.values()):
        with TopologyTestDriver(app.topology, caching=False) as driver:
            for record in app.input:
                driver.pipe_raw("in", *record, ())
            outputs = driver._outputs
    else:
        with Tasks(app.topology, SHARDS, caching=False) as tasks:
            for record in app.input:
                tasks.pipe_raw("in", *record, ())
            outputs = tasks.outputs()
    return [(topic, row.key, row.value, row.timestamp) for topic, rows in outputs.items() for row in rows]


def by_key(
    sent: list[SentRow],
) -> Mapping[tuple[str, bytes | None], list[tuple[bytes | None, int]]]:
    found: defaultdict[tuple[str, bytes | None], list[tuple[bytes | None, int]]] = defaultdict(list)
    for topic, key, value, timestamp in sent:
        found[topic, key].append((value, timestamp))
    return found


def program_of(topology: Topology, lanes: int = 2, shards: int = SHARDS, **options: Any) -> Program:
    """The program of a topology; where it lives and what it does about failures is of no interest unless it is said."""
    defaults = {"directory": "nowhere", "engine": EngineKind.LMDB, "incarnation": "one", "handlers": ErrorHandlers()}
    return Program.of(ID, topology, plan(topology), lanes=lanes, shards=shards, **{**defaults, **options})


def _nobody(left: int) -> None:
    """Who is not told about a restore's progress."""
