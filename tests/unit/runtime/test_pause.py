"""Epochs of a paused application: none begins, and what has begun is committed."""

from __future__ import annotations

import pytest

from penstock.epochs.wire import Control
from penstock.errors import BrokerError, CommitError
from penstock.observation import Recorder
from penstock.runtime.loop.epoch_size import EpochSize
from tests.unit.runtime.noting import A0, START, Clock, Noted, ends, epochs_of


@pytest.mark.usefixtures("clock")
class TestEpochs:
    def test_none_begins_with_records_or_by_the_clock(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        noted.controls = [Control(due=int(clock.now * 1000) + 5_000)]
        epochs.on_input(ends(a0=11))
        epochs.is_paused = True
        clock.now += 7_200  # a timer is due, and so is the hourly commit
        epochs.on_input(ends(a0=13))
        epochs.tick()
        assert (len(noted.epochs), epochs.progress.offsets[A0]) == (1, 11)
        epochs.is_paused = False
        epochs.tick()
        assert noted.small == [True, None], "what became due comes after the pause"
        epochs.on_input(ends(a0=13))
        assert epochs.progress.offsets[A0] == 13

    def test_the_one_that_runs_is_committed_and_the_rest_of_the_backlog_waits(self, noted: Noted) -> None:
        epochs = epochs_of(noted, size=EpochSize(2, 1 << 20))
        idle: list[bool] = []

        def during() -> None:
            epochs.is_paused = True
            idle.append(epochs.is_idle)

        noted.during = during
        epochs.on_input(ends(a0=16))
        assert (len(noted.epochs), noted.calls, idle, epochs.is_idle) == (1, ["begin", "commit"], [False], True)
        taken = epochs.progress.offsets[A0]
        assert taken == 12
        epochs.is_paused, noted.during = False, lambda: None
        epochs.tick()
        epochs.on_input(ends(a0=16))
        assert epochs.progress.offsets[A0] == 16

    def test_it_is_not_idle_if_a_commit_has_failed(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        assert epochs.is_idle
        noted.commit_failure = CommitError("aborted")
        with pytest.raises(CommitError):
            epochs.on_input(ends(a0=11))
        assert not epochs.is_idle

    def test_partitions_may_be_added_meanwhile(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        epochs.is_paused = True
        epochs.interrupt()
        assert epochs.continue_from({("a", 2): 0}) == {**START.offsets, ("a", 2): 0}
        epochs.on_input({**ends(a0=12), ("a", 2): 3})
        assert noted.epochs == []
        epochs.is_paused = False
        epochs.on_input({**ends(a0=12), ("a", 2): 3})
        assert epochs.progress.offsets == {**ends(a0=12), ("a", 2): 3}

    def test_a_failure_is_still_raised(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        noted.failure = BrokerError("gone")
        with pytest.raises(BrokerError):
            epochs.on_input(ends(a0=11))
        epochs.is_paused = True
        with pytest.raises(BrokerError):
            epochs.tick()

    def test_stopping_works(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        epochs.is_paused = True
        epochs.stop()
        epochs.close()


def test_a_pause_is_no_lack_of_progress() -> None:
    now = [1_000.0]
    recorder = Recorder(lambda: now[0])
    now[0] += 40
    assert recorder.stuck_for() == 40
    recorder.paused(True)
    now[0] += 1_000
    assert (recorder.stuck_for(), recorder.idle_for()) == (0.0, 1_040.0)
    recorder.paused(False)
    now[0] += 5
    assert (recorder.stuck_for(), recorder.idle_for()) == (5.0, 1_045.0)
