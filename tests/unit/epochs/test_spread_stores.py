"""Shared stores and atomic sections on several hosts, with the results of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Topology
from penstock.errors import LaneMovedError
from tests.unit.epochs.application import by_key, driven, some_records
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
