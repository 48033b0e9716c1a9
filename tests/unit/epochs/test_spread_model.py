"""Lanes on several hosts that see nothing of each other: hosts are lost and return, drivers restart, late tasks wake up.

Whatever happens, the lanes of the last committed epoch have what their changelogs say, and results are those of the test driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import prepare_input
from penstock.epochs.home import open_lane
from penstock.epochs.hops import INPUT, out, roll_back_lane, run_stage
from penstock.epochs.in_process import parts
from penstock.epochs.placement import placed
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import Committed, Restored, restore_lane
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import shards_of
from penstock.epochs.wire import in_order_of_causes, reports_of
from penstock.errors import LaneMovedError, StateError
from penstock.topology.bindings import changelog_topic
from tests.unit.epochs.application import (
    ID,
    SHARDS,
    Application,
    Raw,
    by_key,
    changelog_rows,
    driven,
    far_future,
    some_records,
)

LANES = 4
HOSTS = ("one", "two", "three")


class Task(NamedTuple):
    """A lane's part of an epoch, which may run late, or on a host where it should not."""

    assigned: Assignment
    rows: pa.Table


class SpreadApplication(Application):
    """An application whose lanes run on hosts, each with its own directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.hosts: set[str] = set(HOSTS)
        self.placement: tuple[str, ...] = ()
        self.attempt = 0
        self.heads: list[Mapping[int, str]] = []
        """Of the committed epoch, and of those in flight."""
        self.tasks: list[Task] = []
        """All that have run."""

    def program(self, lanes: int, incarnation: str) -> Program:
        return replace(super().program(lanes, incarnation), is_spread=True)

    def on(self, host: str, program: Program | None = None) -> Program:
        return replace(program or self.running, directory=str(self.directory / host))

    def begin(self) -> None:
        """Start, as a new driver that knows only what Kafka has."""
        self.take_over(LANES)
        self.attempt, self.heads = 0, [{}]
        self.place_anew()

    def place_anew(self) -> list[Restored]:
        """What the driver does if hosts were lost or added; nothing is in flight."""
        assert not self.in_flight
        self.placement = placed(LANES, dict.fromkeys(sorted(self.hosts), 1), self.placement)
        committed = replace(self.committed(), heads=self.heads[0], attempt=self.attempt)
        restored = [self.restored(lane, committed) for lane in range(LANES)]
        self.heads = [{lane.lane: lane.write_id for lane in restored}]
        return restored

    def restored(self, lane: int, committed: Committed) -> Restored:
        program = self.on(self.placement[lane])
        return restore_lane(program, lane, committed, self.topics.read, lambda left: None, is_retry=False)

    def run(self, records: Sequence[Raw]) -> pa.Table:
        position = self.position + sum(len(records) for records, _ in self.in_flight)
        previous = self.epoch + len(self.in_flight)
        high_time = max([self.high_time, *(self._high_time(table) for _, table in self.in_flight)])
        rows = [{"name": 0, "origin": 0, "offset": position + n, **record._asdict()} for n, record in enumerate(records)]
        mark, self.mark = self.mark, None
        epoch = Epoch(previous + 1, previous, self.now_ms, (("in", 0),), (high_time,), None, mark, committed=self.epoch)
        epoch = replace(epoch, attempt=self.attempt, heads=self.heads[-1])
        assigned = Assignment(self.running, epoch)
        table = on_shards(assigned, prepare_input(assigned, [pa.RecordBatch.from_pylist(rows, schema=INPUT)]))
        for stage in range(len(self.running.plan.stages)):
            hops = []
            for lane, part in parts(self.running, stage, table):
                task = Task(replace(assigned.at(stage, lane), program=self.on(self.placement[lane])), part)
                self.tasks.append(task)
                hops.append(run_stage(*task))
            table = pa.concat_tables(hops)
        done = in_order_of_causes(out(table))
        self.heads.append({**self.heads[-1], **{one.lane: one.write_id for one in reports_of(done) if one.write_id}})
        return done

    def commit_oldest(self) -> None:
        super().commit_oldest()
        self.heads.pop(0)

    def step(self, records: Sequence[Raw]) -> None:
        self.send(records)
        while self.in_flight:
            self.commit_oldest()

    def roll_back(self) -> None:
        """What the driver does with an epoch that is too large: it is not committed, and runs again with fewer records."""
        self.in_flight.pop()
        self.heads.pop()
        self.attempt += 1
        previous = self.epoch + len(self.in_flight)
        epoch = Epoch(previous + 1, previous, self.now_ms, attempt=self.attempt, heads=self.heads[-1])
        for lane in range(LANES):
            roll_back_lane(Assignment(self.on(self.placement[lane]), epoch, lane=lane))

    def contents_by_shard(self, store: str) -> dict[int, dict[bytes, bytes]]:
        found: dict[int, dict[bytes, bytes]] = {}
        for lane in range(LANES):
            with open_lane(self.on(self.placement[lane]), lane) as state:
                state.verify()
                for shard in shards_of(lane, SHARDS, LANES):
                    found[shard] = changelog_rows(state.shard(shard), self.running, store)
        return found

    def check(self) -> None:
        for store in self.running.logged_stores:
            for shard, content in self.contents_by_shard(store).items():
                assert content == self.topics.content(changelog_topic(ID, store), shard), (store, shard)


class Cluster(RuleBasedStateMachine):
    """What a driver and its hosts may go through."""

    @initialize()
    def first_start(self) -> None:
        self.temporary = TemporaryDirectory()
        self.app = SpreadApplication(Path(self.temporary.name))
        self.records = iter(some_records(seed=3, count=20_000))
        self.pending: list[Raw] = []
        self.app.begin()

    def next_records(self, count: int) -> list[Raw]:
        taken = sum(len(records) for records, _ in self.app.in_flight)
        while len(self.pending) < taken + count:
            self.pending.append(next(self.records))
        return self.pending[taken : taken + count]

    def commit_all(self) -> None:
        while self.app.in_flight:
            del self.pending[: len(self.app.in_flight[0][0])]
            self.app.commit_oldest()

    @rule(count=st.integers(0, 20), is_marked=st.booleans())
    def epoch(self, count: int, is_marked: bool) -> None:
        if is_marked:
            self.app.note_mark()
        self.app.send(self.next_records(count))
        self.commit_all()

    @precondition(lambda self: len(self.app.in_flight) < 2)
    @rule(count=st.integers(0, 20))
    def epoch_in_flight(self, count: int) -> None:
        self.app.send(self.next_records(count))

    @precondition(lambda self: self.app.in_flight)
    @rule()
    def commit(self) -> None:
        del self.pending[: len(self.app.in_flight[0][0])]
        self.app.commit_oldest()

    @precondition(lambda self: self.app.in_flight)
    @rule()
    def too_large(self) -> None:
        self.app.roll_back()

    @precondition(lambda self: len(self.app.hosts) > 1)
    @rule(data=st.data(), is_in_epoch=st.booleans(), count=st.integers(0, 20))
    def lose_a_host(self, data: st.DataObject, is_in_epoch: bool, count: int) -> None:
        """In the middle of an epoch, some of whose tasks have written, or between two."""
        if is_in_epoch:
            self.app.send(self.next_records(count))
            self.app.in_flight.pop()
            self.app.heads.pop()
        self.commit_all()
        self.app.hosts.remove(data.draw(st.sampled_from(sorted(self.app.hosts))))
        self.app.attempt += 1
        self.app.place_anew()

    @precondition(lambda self: len(self.app.hosts) < len(HOSTS))
    @rule(data=st.data())
    def a_host_returns(self, data: st.DataObject) -> None:
        self.commit_all()
        self.app.hosts.add(data.draw(st.sampled_from(sorted(set(HOSTS) - self.app.hosts))))
        self.app.attempt += 1
        self.app.place_anew()

    @rule(hosts=st.sets(st.sampled_from(HOSTS), min_size=1))
    def the_driver_restarts(self, hosts: set[str]) -> None:
        """Epochs in flight are lost, and what hosts have of them."""
        self.app.hosts = hosts
        self.app.in_flight.clear()
        self.app.placement = ()
        self.app.begin()

    @precondition(lambda self: self.app.tasks)
    @rule(data=st.data(), count=st.integers(1, 4), host=st.sampled_from((None, *HOSTS)))
    def late_tasks_wake_up(self, data: st.DataObject, count: int, host: str | None) -> None:
        """Tasks of earlier attempts run again, with other results than before; on their host, or on another one."""
        app = self.app
        late = [task for task in app.tasks if not self.is_current(task)]
        for _ in range(count if late else 0):
            assigned, rows = data.draw(st.sampled_from(late[-60:]))
            program = assigned.program if host is None else app.on(host, assigned.program)
            with suppress(LaneMovedError, StateError):
                run_stage(replace(assigned, program=program), rows.slice(0, rows.num_rows // 2))

    def is_current(self, task: Task) -> bool:
        """Whether it belongs to the current attempt of this start: those are not late, because Spark runs each once."""
        assigned = task.assigned
        return assigned.program.incarnation == self.app.running.incarnation and assigned.epoch.attempt == self.app.attempt

    @invariant()
    def stores_are_what_changelogs_say(self) -> None:
        if hasattr(self, "app") and not self.app.in_flight:
            with suppress(LaneMovedError):
                self.app.send([])
                self.commit_all()
                self.app.check()
                return
            self.app.in_flight.clear()
            del self.app.heads[1:]
            self.app.attempt += 1
            self.app.place_anew()
            self.app.step([])
            self.app.check()

    def teardown(self) -> None:
        if not hasattr(self, "app"):
            return
        self.commit_all()
        with suppress(LaneMovedError):
            self.app.step(far_future())
            assert by_key(self.app.sent) == by_key(driven(self.app))
        self.temporary.cleanup()


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
