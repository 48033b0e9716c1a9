"""Lanes on several hosts that see nothing of each other: hosts are lost and return, drivers restart, late tasks wake up.

Lanes are restored from what their host has, from copies by their last host or in a directory, or composed of other lanes.

Whatever happens, the lanes of the last committed epoch have what their changelogs say, and results are those of the test driver.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock import Topology
from penstock.epochs import copies
from penstock.errors import LaneMovedError, StateError
from tests.unit.epochs.application import Raw, by_key, driven, every_kind_of_store, far_future, some_records
from tests.unit.epochs.spread import HOSTS, LANES, SpreadApplication, Task
from tests.unit.epochs.test_shared import moved_and_counted


class Cluster(RuleBasedStateMachine):
    """What a driver and its hosts may go through."""

    @initialize(make=st.sampled_from([every_kind_of_store, every_kind_of_store, moved_and_counted]))
    def first_start(self, make: Callable[[], Topology]) -> None:
        self.temporary = TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(copies, "FEW_OFFSETS", 0)
        self.app = SpreadApplication(Path(self.temporary.name), make)
        self.app.copies = Path(self.temporary.name) / "copies"
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

    @rule()
    def copy_lanes(self) -> None:
        """As they are now, with epochs in flight."""
        self.app.publish()

    def give_up(self, count: int | None, is_copied: bool) -> None:
        """Run an epoch, if it has a number of records, that is not committed; those before it are."""
        if count is not None:
            self.app.send(self.next_records(count))
        if is_copied:
            self.app.publish()
        if count is not None:
            self.app.in_flight.pop()
            self.app.heads.pop()
        self.commit_all()

    @precondition(lambda self: len(self.app.hosts) > 1)
    @rule(data=st.data(), given_up=st.none() | st.integers(0, 20), is_copied=st.booleans(), is_disk_lost=st.booleans())
    def lose_a_host(self, data: st.DataObject, given_up: int | None, is_copied: bool, is_disk_lost: bool) -> None:
        """In the middle of an epoch, some of whose tasks have written, or between two."""
        self.give_up(given_up, is_copied)
        lost = data.draw(st.sampled_from(sorted(self.app.hosts)))
        self.app.hosts.remove(lost)
        if is_disk_lost:
            self.app.lose_disk(lost)
        self.app.attempt += 1
        self.app.place_anew()

    @precondition(lambda self: len(self.app.hosts) < len(HOSTS))
    @rule(data=st.data(), given_up=st.none() | st.integers(0, 20), is_copied=st.booleans())
    def a_host_returns(self, data: st.DataObject, given_up: int | None, is_copied: bool) -> None:
        self.give_up(given_up, is_copied)
        self.app.hosts.add(data.draw(st.sampled_from(sorted(set(HOSTS) - self.app.hosts))))
        self.app.attempt += 1
        self.app.place_anew()

    @rule(
        hosts=st.sets(st.sampled_from(HOSTS), min_size=1),
        lost=st.sampled_from([(), HOSTS, HOSTS[:1], HOSTS[1:]]),
        lanes=st.sampled_from([LANES, LANES, 1, 3, 8]),
        given_up=st.none() | st.integers(0, 20),
        is_copied=st.booleans(),
    )
    def the_driver_restarts(
        self, hosts: set[str], lost: tuple[str, ...], lanes: int, given_up: int | None, is_copied: bool
    ) -> None:
        """Epochs in flight are lost, and what hosts have of them; perhaps with another number of lanes."""
        if given_up is not None:
            self.app.send(self.next_records(given_up))
        if is_copied:
            self.app.publish()
        self.app.hosts = hosts
        self.app.in_flight.clear()
        for host in lost:
            self.app.lose_disk(host)
        self.app.begin(lanes)

    @precondition(lambda self: self.app.tasks)
    @rule(data=st.data(), count=st.integers(1, 4), host=st.sampled_from((None, *HOSTS)))
    def late_tasks_wake_up(self, data: st.DataObject, count: int, host: str | None) -> None:
        """Tasks of earlier attempts run again, with other results than before; on their host, or on another one."""
        app = self.app
        late = [task for task in app.tasks if not self.is_current(task)]
        for _ in range(count if late else 0):
            run, assigned, rows = data.draw(st.sampled_from(late[-60:]))
            program = assigned.program if host is None else app.on(host, assigned.program)
            with suppress(LaneMovedError, StateError):
                run(replace(assigned, program=program), rows.slice(0, rows.num_rows // 2))

    def is_current(self, task: Task) -> bool:
        """Whether it belongs to the current attempt of this start: those are not late, because Spark runs each once."""
        assigned = task.assigned
        return assigned.program.incarnation == self.app.running.incarnation and assigned.epoch.attempt.number == self.app.attempt

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
        self.app.close()
        self.patch.undo()
        self.temporary.cleanup()


TestCluster = pytest.mark.slow(Cluster.TestCase)  # hundreds of epochs on hosts whose lane servers are processes
TestCluster.settings = settings(max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
