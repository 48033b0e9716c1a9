"""What processors count is part of an epoch's result: it counts once the epoch is committed, however often it ran."""

from __future__ import annotations

import pytest

from penstock.epochs.wire import Control
from penstock.errors import CommitError, ProcessingError
from penstock.metrics import UserMetrics
from penstock.observation import Recorder
from tests.unit.runtime.noting import Noted, ends, epochs_of

pytestmark = pytest.mark.usefixtures("clock")


def lanes_that_count(*amounts: int) -> list[Control]:
    """The control rows of lanes whose processors have counted so much."""
    controls = []
    for amount in amounts:
        metrics = UserMetrics()
        metrics.counter("seen", "Seen.").inc(amount)
        controls.append(Control(metrics=metrics.reports()))
    return controls


def seen(recorder: Recorder) -> float | None:
    return next((numbers[0] for report in recorder.user_metrics for _, _, numbers in report.series), None)


def test_all_lanes_of_all_epochs_are_added(noted: Noted) -> None:
    recorder = Recorder()
    epochs = epochs_of(noted, recorder=recorder)
    noted.controls = lanes_that_count(2, 3)
    epochs.on_input(ends(a0=11))
    noted.controls = lanes_that_count(5)
    epochs.on_input(ends(a0=12))
    assert seen(recorder) == 10


def test_a_failed_job_counts_nothing(noted: Noted) -> None:
    recorder = Recorder()
    epochs = epochs_of(noted, recorder=recorder)
    noted.controls = lanes_that_count(2)
    noted.failure = ProcessingError("bad record")
    with pytest.raises(ProcessingError):
        epochs.on_input(ends(a0=11))
    noted.failure = None
    epochs.on_input(ends(a0=11))
    assert seen(recorder) == 2


def test_a_job_that_runs_again_with_fewer_records_counts_those(noted: Noted) -> None:
    recorder = Recorder()
    epochs = epochs_of(noted, recorder=recorder)
    noted.fits = 4
    noted.controls = lanes_that_count(1)
    epochs.on_input(ends(a0=18))
    attempts = len(noted.epochs)
    assert attempts > recorder.totals.epochs
    assert seen(recorder) == recorder.totals.epochs


def test_an_epoch_that_was_not_committed_counts_nothing(noted: Noted) -> None:
    recorder = Recorder()
    epochs = epochs_of(noted, recorder=recorder)
    noted.controls = lanes_that_count(2)
    noted.commit_failure = CommitError("aborted")
    with pytest.raises(CommitError):
        epochs.on_input(ends(a0=11))
    assert seen(recorder) is None
