"""Lanes are copied after a commit, when that is due; what fails is logged, and tried again the next time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.errors import LaneMovedError
from penstock.queries import CommittedState
from penstock.runtime.hosting.followers import StateCopies, state_copies
from penstock.state.copies import CopyDirectory, Layout
from tests.unit.epochs.application import ID, SHARDS, Application, program_of, some_records
from tests.unit.epochs.spread import SpreadApplication


class Copied:
    """Copies that are counted, at times that a test decides."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lanes: list[int] = []
        self.bad: set[int] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = threading.Event()
        self.copies = StateCopies(3, 60.0, self.copy, lambda: self.now)

    def copy(self, lane: int) -> None:
        self.begun.set()
        assert self.go_on.wait(10)
        if lane in self.bad:
            raise LaneMovedError("The lane has moved.")
        self.lanes.append(lane)

    def commit(self) -> None:
        self.copies.after_commit(0)

    def wait(self) -> None:
        thread = self.copies._thread
        assert thread is not None
        thread.join(10)


@pytest.fixture
def copied() -> Iterator[Copied]:
    made = Copied()
    yield made
    made.go_on.set()
    made.copies.close()


def test_all_lanes_are_copied_when_the_interval_is_over(copied: Copied) -> None:
    copied.now = 59.0
    copied.commit()
    assert copied.copies._thread is None
    for turn in (1, 2):
        copied.now = 60.0 * turn
        for _ in range(2):
            copied.commit()
            copied.wait()
        assert copied.lanes == [0, 1, 2] * turn


def test_what_takes_longer_than_the_interval_is_not_begun_again(copied: Copied) -> None:
    copied.go_on.clear()
    copied.now = 60.0
    copied.commit()
    copied.now = 120.0
    copied.commit()
    copied.go_on.set()
    copied.wait()
    assert copied.lanes == [0, 1, 2]


def test_a_lane_that_cannot_be_copied_does_not_keep_others_from_it(copied: Copied, caplog: pytest.LogCaptureFixture) -> None:
    copied.bad, copied.now = {1}, 60.0
    with caplog.at_level(logging.INFO):
        copied.commit()
        copied.wait()
    assert copied.lanes == [0, 2]
    assert "lane 1 was not copied: The lane has moved." in caplog.text
    assert "copied 2 of 3 lanes" in caplog.text


def test_the_end_waits_for_the_lane_that_is_being_copied_and_for_no_other(copied: Copied) -> None:
    copied.go_on.clear()
    copied.now = 60.0
    copied.commit()
    assert copied.begun.wait(10)
    copied.copies._ended.set()
    copied.go_on.set()
    copied.copies.close()
    copied.now = 120.0
    copied.commit()
    assert copied.lanes == [0]


def test_an_application_on_this_machine_copies_its_lanes(tmp_path: Path) -> None:
    app = Application(tmp_path / "state")
    app.start(2)
    app.step(some_records(seed=1, count=50))
    program = replace(app.running, copies=str(tmp_path / "copies"))
    state = CommittedState(program, lambda: app.epoch)
    [copies] = state_copies(program, 0.0, state, None)
    copies.after_commit(app.epoch)
    assert copies._thread is not None
    copies._thread.join(60)
    copies.close()
    state.close()
    directory = CopyDirectory(program.copies, ID)
    assert [[copy.epoch for copy in directory.newest(Layout(SHARDS, 2), lane)] for lane in range(2)] == [[0], [0]]


def test_on_a_cluster_the_lane_servers_copy_them(tmp_path: Path) -> None:
    app = SpreadApplication(tmp_path)
    app.has_servers, app.copies = True, tmp_path / "copies"
    app.begin()
    app.step(some_records(seed=1, count=50))
    state = CommittedState(app.running, lambda: app.epoch, server_of=lambda lane: app.servers[lane])
    [copies] = state_copies(app.running, 0.0, state, lambda lane: app.servers[lane])
    copies.after_commit(app.epoch)
    assert copies._thread is not None
    copies._thread.join(60)
    copies.close()
    state.close()
    directory = CopyDirectory(str(app.copies), ID)
    assert [[copy.epoch for copy in directory.newest(Layout(SHARDS, 4), lane)] for lane in range(4)] == [[0]] * 4
    app.close()


def test_nothing_is_copied_without_a_place_or_without_lanes(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    program = program_of(builder.build(), directory=str(tmp_path), copies=str(tmp_path))
    state = CommittedState(program, lambda: 0)
    assert state_copies(program, 0.0, state, None) == []
    app = Application(tmp_path)
    assert state_copies(app.program(2, "start"), 0.0, state, None) == []
    state.close()
