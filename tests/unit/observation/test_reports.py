"""Values derived from reports: a partition's lag, and the progress of a restore."""

from __future__ import annotations

import pytest

from penstock.observation import PartitionReport, Recorder, RestoreReport


@pytest.mark.parametrize(
    ("offset", "end", "lag"),
    [(40, 50, 10), (50, 50, 0), (60, 50, 0), (0, 0, 0), (40, -1, -1)],
    ids=["behind", "at the end", "the end was seen earlier", "an empty partition", "unknown"],
)
def test_lag(offset: int, end: int, lag: int) -> None:
    assert PartitionReport("lines", 0, offset, end, -1, -1).lag == lag


@pytest.mark.parametrize(
    ("left", "total", "lanes", "fraction"),
    [
        ({0: 100, 1: 0}, {0: 100, 1: 300}, 2, 0.75),
        ({0: 100}, {0: 100}, 1, 0.0),
        ({0: 0}, {0: 100}, 1, 1.0),
        ({0: 0}, {0: 100}, 4, 0.25),
        ({}, {}, 2, 0.0),
        ({0: 0}, {0: 0}, 1, 0.0),
    ],
    ids=["some", "none", "all", "other lanes have not begun", "no report yet", "nothing to read"],
)
def test_the_progress_of_a_restore(left: dict[int, int], total: dict[int, int], lanes: int, fraction: float) -> None:
    assert RestoreReport(left, total, 1.0, is_done=False, lanes=lanes).fraction == fraction


def test_a_restore_that_is_done_without_reading_is_done() -> None:
    assert RestoreReport({}, {}, 0.0, is_done=True).fraction == 1.0


def test_progress_does_not_fall_when_a_lane_reports_after_another_is_done() -> None:
    heard = [{0: 100}, {0: 0}, {0: 0, 1: 300}, {0: 0, 1: 150}, {0: 0, 1: 0}]
    recorder = Recorder()
    fractions = []
    for left in heard:
        recorder.restoring(left, lanes=2)
        assert recorder.restore is not None
        fractions.append(recorder.restore.fraction)
    assert fractions == [0.0, 0.5, 0.5, 0.625, 1.0]
