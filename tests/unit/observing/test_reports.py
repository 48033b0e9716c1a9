"""What follows from reports: a partition's lag, and how far a restore has come."""

from __future__ import annotations

import pytest

from penstock.observing import PartitionReport, RestoreReport


@pytest.mark.parametrize(
    ("offset", "end", "lag"),
    [(40, 50, 10), (50, 50, 0), (60, 50, 0), (0, 0, 0), (40, -1, -1)],
    ids=["behind", "at the end", "the end was seen earlier", "an empty partition", "nobody knows"],
)
def test_lag(offset: int, end: int, lag: int) -> None:
    assert PartitionReport("lines", 0, offset, end, -1, -1).lag == lag


@pytest.mark.parametrize(
    ("left", "total", "is_done", "fraction"),
    [
        ({0: 100, 1: 0}, {0: 100, 1: 300}, False, 0.75),
        ({0: 100}, {0: 100}, False, 0.0),
        ({0: 0}, {0: 100}, False, 1.0),
        ({}, {}, False, 0.0),
        ({0: 0}, {0: 0}, False, 0.0),
        ({}, {}, True, 1.0),
    ],
    ids=["some of it", "none of it", "all is read", "nothing told", "nothing to read", "done without anything"],
)
def test_how_far_a_restore_is(left: dict[int, int], total: dict[int, int], is_done: bool, fraction: float) -> None:
    assert RestoreReport(left, total, 1.0, is_done).fraction == fraction
