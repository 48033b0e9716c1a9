"""Why a query of a client failed, found in Spark's report."""

from __future__ import annotations

import pytest

from penstock.errors import NotReadyError, QueryError
from penstock.spark.sql import failure
from tests.unit.spark.test_failures import report

RETRY = "A lane is moving to another host, or its host is lost. Retry. (The lane server at one:7001 does not answer: timed out)"


def test_a_lane_that_moved_asks_for_a_retry() -> None:
    error = failure(report("NotReadyError", RETRY))
    assert (type(error), str(error)) == (NotReadyError, RETRY)


@pytest.mark.parametrize("sign", ["ExecutorLostFailure (executor 2 exited)", "FetchFailed(BlockManagerId(1, host, 7079))"])
def test_a_lost_executor_asks_for_a_retry(sign: str) -> None:
    error = failure(RuntimeError(f"Job aborted due to stage failure: {sign}"))
    assert (type(error), str(error)) == (NotReadyError, "An executor was lost while the query ran. Retry.")


def test_an_error_of_the_reading_task_is_told_in_its_own_words() -> None:
    error = failure(report("SerializationError", "Store 'words': a value is not of type string"))
    assert (type(error), str(error)) == (QueryError, "Store 'words': a value is not of type string")


@pytest.mark.parametrize(("text", "told"), [("first\n\tat java", "first"), ("x" * 600, "x" * 500), ("", "RuntimeError")])
def test_anything_else_is_told_by_its_first_line(text: str, told: str) -> None:
    error = failure(RuntimeError(text))
    assert (type(error), str(error)) == (QueryError, told)
