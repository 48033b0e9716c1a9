"""A driver in miniature: it begins epochs on an engine, commits them to topics that are lists, and places lanes anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engines.port import Batches, Engine, OnProgress, Whereabouts
from penstock.engines.reading import Reading
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import roll_back_lane
from penstock.epochs.in_process import run_epoch
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Attempt, Epoch, Placement, Program, has_lanes, lanes_topic
from penstock.epochs.restore import ReadChangelog, Restored, restore_lane
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory, open_lane
from penstock.epochs.wire import Kind
from penstock.history.committed import committed_state
from penstock.history.past import Past
from penstock.history.progress import Progress
from penstock.records import Partition, Ranges
from penstock.runtime.loop.feedback import Feedback
from penstock.state import EngineFactory, EngineKind, LaneState, Snapshots
from penstock.state.remote.client import LaneClients, RemoteSnapshots
from penstock.topology.bindings import changelog_topic
from tests.unit.engines.lending import LentSlots
from tests.unit.engines.programs import Lists, shards_in
from tests.unit.epochs.application import ID, Topics, some_records

PARTITIONS = 3
RECORDS = some_records(seed=5, count=90)
INPUTS = Lists.of(RECORDS, PARTITIONS)
START = dict.fromkeys(INPUTS.topics, 0)
CUTS = [{("in", 0): 9, ("in", 1): 30, ("in", 2): 0}, {("in", 0): 30, ("in", 1): 30, ("in", 2): 30}]
"""Where the epochs of a test end: the first takes nothing from one partition, the second nothing from another."""

_OWN = [int(kind) for kind in (Kind.REPORT, Kind.MEASURE, Kind.CONTROL)]


def shown(table: pa.Table) -> list[dict[str, Any]]:
    """The rows for topics, in their order."""
    own = pc.is_in(table.column("kind"), value_set=pa.array(_OWN, pa.int8()))
    rows: list[dict[str, Any]] = table.filter(pc.invert(own)).to_pylist()
    return rows


def told(table: pa.Table, progress: Progress) -> tuple[Any, ...]:
    """What the driver learns besides rows; it does not matter how many tasks have told it."""
    feedback = Feedback.found_in([table])
    dropped: Counter[tuple[str, str]] = Counter()
    for node, reason, count in feedback.dropped:
        dropped[node, reason] += count
    return feedback.high_times(progress), sorted(feedback.watermarks(progress)), dropped, feedback.due, feedback.event_due


def ignore(lane: int, where: str, left: int | None) -> None:
    """Do nothing with the progress of a restore."""


class InOneProcess:
    """The engine that all others are compared with: it runs every lane where the driver is."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def start(self) -> None:
        """Nothing is to be started."""

    def warm(self) -> None:
        """The program is loaded."""

    def close(self) -> None:
        """Nothing was started."""

    def place(
        self, committed: Committed, read: ReadChangelog, on_progress: OnProgress, distrusted: Collection[int] = ()
    ) -> Sequence[Restored]:
        return [
            restore_lane(self._program, lane, committed, read, lambda left: None, is_retry=lane in distrusted)
            for lane in range(self._program.lanes)
        ]

    def run(self, epoch: Epoch, records: Batches, *, is_small: bool) -> pa.Table:
        return run_epoch(self._program, epoch, records)

    def read(self, epoch: Epoch, reading: Reading) -> pa.Table:
        return run_epoch(self._program, epoch, INPUTS.records(epoch, reading.ranges))

    def roll_back(self, epoch: Epoch) -> None:
        program = self._program
        if not has_lanes(program):
            return
        StateDirectory(program.directory, program.application_id).fence(program.incarnation, epoch.attempt.number)
        for lane in range(program.lanes):
            roll_back_lane(Assignment(program, epoch, lane=lane))

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        return pa.concat_tables(step(Assignment(self._program, epoch, lane=lane)) for lane in range(self._program.lanes))

    @property
    def server_of(self) -> None:
        """All files are here."""

    def changed(self) -> bool:
        return False

    @property
    def whereabouts(self) -> Whereabouts:
        return Whereabouts("in process", {"here": 1}, "processes")


class Driven:
    """An application on an engine, whose slots may be lent ones; `on` returns its program on a host, if there are several."""

    def __init__(
        self, program: Program, engine: Engine, slots: LentSlots | None = None, on: Callable[[str], Program] | None = None
    ) -> None:
        self.program = program
        self.engine = engine
        self.slots = slots
        self._on = on
        self.topics = Topics()
        self.progress = Progress(-1, START, {})
        self.committed: int | None = None
        """The last committed epoch, if it is not that of the progress."""
        self.attempt = 0
        self._past: Past | None = None

    def place(self, distrusted: Collection[int] = ()) -> Sequence[Restored]:
        """Place all lanes, and restore them to what is committed."""
        changelogs = [lanes_topic(ID), *(changelog_topic(ID, store) for store in self.program.logged_stores)]
        ids = {topic: self.topics.ids[topic] for topic in changelogs}
        committed = committed_state(self._past, self.topics.starts(changelogs), self.topics.ends(changelogs), 0, ids)
        committed = replace(committed, heads=self.progress.heads, attempt=self.attempt)
        restored = self.engine.place(committed, self.topics.read, ignore, distrusted)
        self.progress = replace(self.progress, heads={lane.lane: lane.write_id for lane in restored})
        return restored

    def next_epoch(self) -> Epoch:
        """The next epoch, as the driver would begin it."""
        progress = self.progress
        epoch = Epoch(progress.epoch + 1, progress.epoch, 1_000_000 + 5_000 * progress.epoch, progress.origins)
        high_times = tuple(progress.high_times.get(place, -1) for place in progress.origins)
        epoch = replace(epoch, high_times=high_times, partitions={"in": PARTITIONS}, attempt=Attempt(self.attempt))
        epoch = replace(epoch, placement=Placement(progress.heads), committed=self.committed)
        if not self.program.has_watermarks:
            return epoch
        own = tuple(progress.watermarks.get(place, -1) for place in progress.origins)
        return replace(epoch, watermarks=own, watermark=min(own), watermark_before=progress.watermark)

    def ranges(self, ends: Mapping[Partition, int]) -> Ranges:
        """The offsets that an epoch reads which ends there."""
        return {place: (offset, ends[place]) for place, offset in self.progress.offsets.items() if ends[place] > offset}

    def run(self, ends: Mapping[Partition, int], is_small: bool = False, epoch: Epoch | None = None) -> pa.Table:
        """Run the next epoch, or a given one, up to these ends."""
        epoch = epoch or self.next_epoch()
        return self.engine.run(epoch, INPUTS.records(epoch, self.ranges(ends)), is_small=is_small)

    def read(self, ends: Mapping[Partition, int], epoch: Epoch | None = None) -> pa.Table:
        """As `run`, but slots read for themselves."""
        reading = Reading(self.ranges(ends), {"in": 0}, lambda: INPUTS)
        return self.engine.read(epoch or self.next_epoch(), reading)

    def go_on(self, table: pa.Table, ends: Mapping[Partition, int]) -> None:
        """Go on after an epoch, which is not committed."""
        epoch, before, feedback = self.next_epoch(), self.progress, Feedback.found_in([table])
        watermarks = {**before.watermarks}
        for place, watermark in feedback.watermarks(before):
            watermarks[place] = max(watermark, watermarks.get(place, -1))
        known = before.watermark if epoch.watermark is None else epoch.watermark
        heads = {**before.heads, **feedback.heads}
        self.progress = Progress(epoch.number, dict(ends), feedback.high_times(before), watermarks, known, heads)

    def commit(self, table: pa.Table, ends: Mapping[Partition, int]) -> None:
        """Commit an epoch, and go on after it."""
        rows = [row for row in table.to_pylist() if row["kind"] == Kind.CHANGELOG]
        names = self.program.topics
        self.topics.append([(names[row["name"]], row["partition"], row["key"], row["value"]) for row in rows])
        self.go_on(table, ends)
        self._past = Past(self.progress, self.program.incarnation, self.program.lanes)

    def step(self, ends: Mapping[Partition, int], is_small: bool = False) -> pa.Table:
        """Run the next epoch and commit it; return its rows."""
        table = self.run(ends, is_small)
        self.commit(table, ends)
        return table

    def roll_back(self) -> None:
        """Take back what was written of the next epoch; earlier attempts must not write any more."""
        self.attempt += 1
        self.engine.roll_back(self.next_epoch())

    def epochs(self) -> list[int]:
        """The epoch that each lane is at."""
        return [state.epoch for state in self._opened()]

    def contents(self) -> Any:
        """What each shard has of each store."""
        return self.seen(self._opened())

    def _opened(self) -> Iterator[LaneState]:
        """All lanes, one after the other, where they are."""
        for lane in range(self.program.lanes) if has_lanes(self.program) else ():
            program = self.program
            if self._on is not None:
                assert self.engine.server_of is not None
                program = self._on(self.engine.server_of(lane)[0])
            with open_lane(program, lane, self.attempt) as state:
                yield state

    def snapshots(self, opened: ExitStack) -> list[Snapshots | RemoteSnapshots]:
        """The snapshots of all lanes, as queries take them."""
        server_of, lanes = self.engine.server_of, range(self.program.lanes)
        if server_of is None:
            home, kind = StateDirectory(self.program.directory, ID), self.program.engine
            return [opened.enter_context(closing(_snapshots(kind, home.lane_directory(lane, len(lanes))))) for lane in lanes]
        clients = LaneClients(self.program.server_key)
        opened.callback(clients.close)
        return [RemoteSnapshots(clients, partial(server_of, lane), lane) for lane in lanes]

    def seen(self, lanes: Iterable[LaneState]) -> Any:
        """What each shard of some lanes has of each store."""
        return {at: rows for lane, state in enumerate(lanes) for at, rows in shards_in(state, self.program, lane).items()}


def _snapshots(kind: EngineKind, directory: Path) -> Snapshots:
    return Snapshots(EngineFactory(kind, str(directory)))
