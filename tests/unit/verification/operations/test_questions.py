"""The loss of throughput by queries, from the spans of a run."""

from __future__ import annotations

import pytest

from verification.operations.questions import loss


def test_the_loss_is_that_of_spans_with_queries_against_those_around_them() -> None:
    assert loss([100, 90, 100, 80, 100]) == pytest.approx(0.15)


def test_a_run_that_becomes_faster_has_no_loss() -> None:
    assert loss([100, 110, 120, 130, 140]) == pytest.approx(0)
