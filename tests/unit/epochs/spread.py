"""An application whose lanes run on hosts that see nothing of each other but their lane servers, and a directory of copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock import Topology
from penstock.engines.many_hosts import placed
from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import prepare_input
from penstock.epochs.hops import roll_back_lane, run_stage
from penstock.epochs.in_process import parts
from penstock.epochs.program import Attempt, Epoch, Placement, Program
from penstock.epochs.restore import Restored, restore_lane
from penstock.epochs.routes import on_shards
from penstock.epochs.sections import apply_section, run_section
from penstock.epochs.shards import shards_of
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory, open_lane
from penstock.epochs.wire import in_order_of_causes, out, reports_of
from penstock.state import EngineFactory, EngineKind, Snapshots
from penstock.state.copies import CopyDirectory, Layout
from penstock.state.remote.client import clients_of
from penstock.topology.bindings import changelog_topic
from tests.unit.epochs.application import ID, SHARDS, Application, Raw, changelog_rows, every_kind_of_store
from tests.unit.epochs.forked import ForkedServers

LANES = 4
HOSTS = ("one", "two", "three")
KEY = b"k" * 32
ADDRESS = "127.0.0.1"


class Task(NamedTuple):
    """A lane's part of an epoch, which may run late, or on a host where it should not."""

    run: Callable[[Assignment, pa.Table], pa.Table]
    assigned: Assignment
    rows: pa.Table


class SpreadApplication(Application):
    """An application whose lanes run on hosts, each with its own directory."""

    def __init__(self, directory: Path, make: Callable[[], Topology] = every_kind_of_store) -> None:
        super().__init__(directory, make)
        self.hosts: set[str] = set(HOSTS)
        self.placement: tuple[str, ...] = ()
        self.attempt = 0
        self.heads: list[Mapping[int, str]] = []
        """Of the committed epoch, and of those in flight."""
        self.tasks: list[Task] = []
        """All that have run."""
        self.forked = ForkedServers(ADDRESS)
        self.servers: Mapping[int, tuple[str, int]] = {}
        self.served: tuple[str, ...] = ()
        """The hosts of these servers."""
        self.has_servers = any(spec.sharing for spec in self.topology.stores.values())
        self.copies: Path | None = None

    def program(self, lanes: int, incarnation: str) -> Program:
        copies = "" if self.copies is None else str(self.copies)
        return replace(super().program(lanes, incarnation), is_spread=True, server_key=KEY, copies=copies)

    def close(self) -> None:
        """End the lane servers, and the connections to them."""
        clients_of(KEY).close()
        self.forked.close()

    def on(self, host: str, program: Program | None = None) -> Program:
        return replace(program or self.running, directory=str(self.directory / host))

    def begin(self, lanes: int = LANES) -> list[Restored]:
        """Start, as a new driver that knows only what Kafka has."""
        self.take_over(lanes)
        self.attempt, self.heads, self.placement, self.servers = 0, [{}], (), {}
        return self.place_anew()

    def place_anew(self) -> list[Restored]:
        """What the driver does if hosts were lost or added; nothing is in flight."""
        assert not self.in_flight
        self.placement = placed(self.lanes, dict.fromkeys(sorted(self.hosts), 1), self.placement)
        committed = replace(self.committed(), heads=self.heads[0], attempt=self.attempt)
        restored = [self.restored(lane, committed) for lane in range(self.lanes)]
        self.heads = [{lane.lane: lane.write_id for lane in restored}]
        if self.has_servers:
            ports = {host: self.forked.port_of(self.on(host)) for host in set(self.placement)}
            self.servers = {lane: (ADDRESS, ports[host]) for lane, host in enumerate(self.placement)}
            self.served = self.placement
        return restored

    def restored(self, lane: int, committed: Committed) -> Restored:
        program = self.on(self.placement[lane])
        has_peer = lane in self.servers and self.served[lane] in self.hosts - {self.placement[lane]}
        peer = self.servers[lane] if has_peer else None
        return restore_lane(program, lane, committed, self.topics.read, lambda left: None, is_retry=False, peer=peer)

    def lane_on(self, host: str, lane: int) -> Path:
        """The directory of a lane on a host."""
        return StateDirectory(str(self.directory / host), ID).lane_directory(lane, self.lanes)

    def publish(self) -> None:
        """Copy all lanes, as they are now, to the directory of copies."""
        assert self.copies is not None
        for lane, host in enumerate(self.placement):
            snapshots = Snapshots(EngineFactory(EngineKind.LMDB, str(self.lane_on(host, lane))))
            CopyDirectory(str(self.copies), ID).publish(Layout(SHARDS, self.lanes), lane, snapshots.take(), self.copies.parent)
            snapshots.close()

    def lose_disk(self, host: str) -> None:
        shutil.rmtree(self.directory / host, ignore_errors=True)

    def run(self, records: Sequence[Raw]) -> pa.Table:
        epoch, arriving = self.next_epoch(records)
        epoch = replace(epoch, attempt=Attempt(self.attempt), placement=Placement(self.heads[-1], self.servers))
        assigned = Assignment(self.running, epoch)
        table = on_shards(assigned, prepare_input(assigned, [arriving]))
        for stage in range(len(self.running.plan.stages)):
            is_divided = assigned.at(stage, 0).is_serial
            for run in (run_section, apply_section) if is_divided else (run_stage,):
                table = pa.concat_tables([self._hop(run, assigned, stage, *part) for part in parts(self.running, stage, table)])
        done = in_order_of_causes(out(table))
        self.heads.append({**self.heads[-1], **{one.lane: one.write_id for one in reports_of(done) if one.write_id}})
        return done

    def _hop(self, run: Callable[..., pa.Table], assigned: Assignment, stage: int, lane: int, rows: pa.Table) -> pa.Table:
        task = Task(run, replace(assigned.at(stage, lane), program=self.on(self.placement[lane])), rows)
        self.tasks.append(task)
        return task.run(task.assigned, task.rows)

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
        epoch = Epoch(previous + 1, previous, self.now_ms, attempt=Attempt(self.attempt), placement=Placement(self.heads[-1]))
        for lane in range(self.lanes):
            roll_back_lane(Assignment(self.on(self.placement[lane]), epoch, lane=lane))

    def contents_by_shard(self, store: str) -> dict[int, dict[bytes, bytes]]:
        found: dict[int, dict[bytes, bytes]] = {}
        for lane in range(self.lanes):
            with open_lane(self.on(self.placement[lane]), lane) as state:
                state.verify()
                for shard in shards_of(lane, SHARDS, self.lanes):
                    found[shard] = changelog_rows(state.shard(shard), self.running, store)
        return found

    def check(self) -> None:
        for store in self.running.logged_stores:
            for shard, content in self.contents_by_shard(store).items():
                assert content == self.topics.content(changelog_topic(ID, store), shard), (store, shard)
