"""Stores on several hosts, with the results of one: shared stores, atomic sections, and tasks that come too late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Topology
from penstock.epochs import hops
from penstock.errors import LaneMovedError, StateError
from tests.unit.epochs.application import by_key, driven, every_kind_of_store, some_records
from tests.unit.epochs.spread import SpreadApplication
from tests.unit.epochs.test_shared import asked, moved, moved_and_counted, told, written_behind_a_section, written_in_two_stages

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
