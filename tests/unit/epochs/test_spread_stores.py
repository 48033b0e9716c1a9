"""Stores on several hosts, with the results of one: shared stores, atomic sections, and tasks that come too late."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Topology
from penstock.epochs import hops, store_reader
from penstock.epochs.store_reader import read_store
from penstock.errors import LaneMovedError, NotReadyError, StateError
from penstock.queries.committed import CommittedState
from penstock.queries.snapshots import Snapshot
from penstock.serdes import Bytes
from penstock.state.remote.protocol import Located
from tests.unit.epochs.application import Raw, by_key, driven, every_kind_of_store, some_records
from tests.unit.epochs.served import remote_lanes
from tests.unit.epochs.spread import SpreadApplication
from tests.unit.epochs.test_shared import (
    KEY,
    ask,
    asked,
    moved,
    moved_and_counted,
    told,
    written_behind_a_section,
    written_in_two_stages,
)

pytestmark = pytest.mark.slow  # each host has lane servers in processes of their own

Make = Callable[[], Topology]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Make], SpreadApplication]]:
    apps: list[SpreadApplication] = []

    def start(make: Make) -> SpreadApplication:
        app = SpreadApplication(tmp_path, make)
        apps.append(app)
        app.begin()
        return app

    yield start
    for app in apps:
        app.close()


@pytest.mark.parametrize("make", [told, moved, moved_and_counted, written_in_two_stages, written_behind_a_section, asked])
def test_hosts_make_no_difference(started: Callable[[Make], SpreadApplication], make: Make) -> None:
    app = started(make)
    records = some_records(seed=11, count=60)
    for turn, hosts in enumerate(({"one", "two", "three"}, {"one", "three"}, {"one", "two"}, {"three"})):
        app.hosts = hosts
        app.attempt += 1
        app.place_anew()
        for first in range(15 * turn, 15 * turn + 15, 5):
            app.step(records[first : first + 5])
        app.step([])
        app.check()
    assert by_key(app.sent) == by_key(driven(app))


def test_a_host_removes_stores_for_other_numbers_of_lanes_when_they_are_too_old(
    started: Callable[[Make], SpreadApplication],
) -> None:
    app = started(every_kind_of_store)
    app.step(some_records(seed=11, count=20))
    before = app.lanes
    app.begin(before + 1)
    [*old] = app.directory.glob(f"*/*/lanes-{before}")
    assert old, "they may be of use"
    for path in [*chain.from_iterable(directory.rglob("*") for directory in old), *old]:
        os.utime(path, (0, 0))
    app.attempt += 1
    app.place_anew()
    assert not [*app.directory.glob(f"*/*/lanes-{before}")]
    app.check()


def test_a_lane_whose_host_does_not_answer_fails_the_epoch_not_the_record(
    started: Callable[[Make], SpreadApplication],
) -> None:
    app = started(moved)
    app.step(some_records(seed=1, count=10))
    app.close()
    with pytest.raises(LaneMovedError, match="does not answer"):
        app.step(some_records(seed=2, count=10))


class TestLateTasks:
    """A task of an attempt that was given up runs after the epoch was run again, with other results."""

    def late(self, app: SpreadApplication) -> list[bool]:
        """Run an epoch, give it up, run it again, and let the tasks of the first attempt finish; return which were refused."""
        records = some_records(seed=4, count=60)
        app.step(records[:20])
        first = len(app.tasks)
        app.send(records[20:40])
        late = app.tasks[first:]
        app.in_flight.clear()
        del app.heads[1:]
        app.attempt += 1
        app.place_anew()
        app.send(records[20:40])
        refused = []
        for run, assigned, rows in late:
            try:
                run(assigned, rows.slice(0, rows.num_rows // 2))
                refused.append(False)
            except StateError:
                refused.append(True)
        app.commit_oldest()
        app.step(records[40:])
        return refused

    def test_they_are_refused(self, started: Callable[[Make], SpreadApplication]) -> None:
        app = started(every_kind_of_store)
        assert all(self.late(app))
        app.check()
        assert by_key(app.sent) == by_key(driven(app))

    def test_without_that_they_would_do_harm(
        self, started: Callable[[Make], SpreadApplication], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hops, "require_the_same", lambda *_: None)
        app = started(every_kind_of_store)
        assert not all(self.late(app))
        with pytest.raises(AssertionError):
            app.check()


def test_a_key_of_another_host_is_as_of_the_epoch_before(started: Callable[[Make], SpreadApplication]) -> None:
    app = started(asked)
    app.step([Raw(KEY[0], b"a", 1), Raw(KEY[1], b"b", 2)])
    app.step([Raw(KEY[0], b"A", 3), Raw(KEY[1], b"B", 4), ask(0, 1, at=5), ask(1, 0, at=5)])
    assert [value for _, _, value, _ in app.sent] == [b"b", b"a"]
    app.heads[-1] = dict.fromkeys(app.heads[-1], "another")
    with pytest.raises(LaneMovedError):
        app.step([ask(0, 1, at=6)])


class TestQueries:
    """The driver answers queries through the lane servers."""

    @pytest.fixture
    def app(self, started: Callable[[Make], SpreadApplication]) -> SpreadApplication:
        app = started(moved_and_counted)
        app.step(some_records(seed=3, count=30))
        return app

    @pytest.fixture
    def state(self, app: SpreadApplication) -> Iterator[CommittedState]:
        state = CommittedState(app.running, lambda: app.epoch, server_of=lambda lane: app.servers[lane])
        yield state
        state.close()

    def counts(self, app: SpreadApplication, state: CommittedState) -> dict[bytes, bytes]:
        spec = app.running.specs["behind"]

        def read(snapshot: Snapshot) -> dict[bytes, bytes]:
            stores = snapshot.stores(replace(spec, key=Bytes(), value=Bytes()), is_global=False)
            return {key: value.value for store in stores for key, value in store.entries.all()}

        return state.read(read)[0]

    def test_they_see_the_last_commit(self, app: SpreadApplication, state: CommittedState) -> None:
        expected = {key: value[8:] for key, value in app.content("behind").items()}
        assert self.counts(app, state) == expected
        app.send(some_records(seed=5, count=10))
        assert self.counts(app, state) == expected

    def test_they_are_retried_while_lanes_move(self, app: SpreadApplication, state: CommittedState) -> None:
        assert self.counts(app, state)
        app.close()
        with pytest.raises(NotReadyError, match="A lane is moving to another host"):
            self.counts(app, state)
        with pytest.raises(NotReadyError, match="A lane is moving to another host"):
            self.counts(app, state)
        app.place_anew()
        assert self.counts(app, state)

    def test_tables_are_of_one_barrier_or_have_to_be_read_again(
        self, app: SpreadApplication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_reader, "_ROWS", 1)
        program, before = app.running, {key: value[8:] for key, value in app.content("behind").items()}

        def located() -> Located:
            return Located(app.epoch, [app.servers[lane] for lane in range(app.lanes)])

        def table(batches: Iterator[pa.RecordBatch]) -> dict[bytes, bytes]:
            rows = [row for batch in batches for row in batch.to_pylist()]
            return {row["key"].encode(): row["value"].to_bytes(8, "big") for row in rows}

        with remote_lanes(program, located) as lanes:
            begun = read_store(program, "behind", lanes)
            first = [next(begun)]
            app.send(some_records(seed=5, count=10))
            assert table(read_store(program, "behind", lanes)) == before
            app.commit_oldest()
            after = table(read_store(program, "behind", lanes))
            assert after == {key: value[8:] for key, value in app.content("behind").items()} != before
            assert table(chain(first, begun)) == before
            begun = read_store(program, "behind", lanes)
            next(begun)
            app.close()
            with pytest.raises(NotReadyError, match="its host is lost"):
                list(begun)
            app.place_anew()
            assert table(read_store(program, "behind", lanes)) == after
