"""The failure of a query's Spark job, found in Spark's report."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.errors import PenstockError, ProcessingError, SerializationError, StateError
from penstock.spark.failures import is_executor_lost, raised_in_task

ABORTED = """An error occurred while calling o89.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: \
Lost task 0.3 in stage 3.0 (TID 9) (localhost executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "epochs/hops.py", line 51, in run_stage
    bring_to(state, epoch, stage)
%s

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:586)
\tat org.apache.spark.sql.execution.python.ArrowPythonRunner.read(ArrowPythonRunner.scala:3)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
"""
RAISED = "penstock.errors.exceptions.%s: %s"


def report(name: str, message: str) -> RuntimeError:
    return RuntimeError(ABORTED % (RAISED % (name, message)))


def raised(error: Exception) -> PenstockError:
    """The error of the task, which there is."""
    found = raised_in_task(error)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "kind",
    sorted({kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)}, key=str),
)
def test_the_error_of_a_task_keeps_its_exit_code(kind: type[PenstockError]) -> None:
    error = raised(report(kind.__name__, "what happened"))
    assert type(error) is kind
    assert (str(error), error.exit_code) == ("what happened", kind.exit_code)


def test_all_lines_of_its_message_are_kept_and_none_of_sparks() -> None:
    error = raised(report("ProcessingError", "map failed: ValueError: no\n  the node was declared at app.py:3"))
    assert str(error) == "map failed: ValueError: no\n  the node was declared at app.py:3"


@pytest.mark.parametrize(
    "end",
    ["\n\tat org.apache.spark", "\nDriver stacktrace:", "\nJVM stacktrace:", "\n=== Streaming Query ===", "\n    at org.apache"],
)
def test_the_message_ends_where_sparks_text_begins(end: str) -> None:
    error = RuntimeError(f"Traceback:\n{RAISED % ('StateError', 'one line')}{end}\nmore")
    assert str(raised(error)) == "one line"


def test_an_error_named_in_a_line_of_spark_is_found_too() -> None:
    error = RuntimeError("[FOREACH_BATCH_USER_FUNCTION_ERROR] failed:\nPythonException: " + RAISED % ("StateError", "text"))
    assert isinstance(raised(error), StateError)


def test_an_error_is_preferred_to_its_cause() -> None:
    chain = (
        "\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n".join(
            [
                RAISED % ("SerializationError", "8 bytes were expected"),
                RAISED % ("ProcessingError", "cannot read the record from in-0 at offset 2"),
            ]
        )
    )
    error = raised(RuntimeError(ABORTED % chain))
    assert not isinstance(error, SerializationError)
    assert isinstance(error, ProcessingError)
    assert str(error) == "cannot read the record from in-0 at offset 2"


def test_an_unknown_error_class_becomes_a_processing_error() -> None:
    assert type(raised(report("NewError", "text"))) is ProcessingError


@pytest.mark.parametrize("text", ["Python worker exited unexpectedly (crashed)", "KAFKA_DATA_LOSS TimeoutException", ""])
def test_what_no_task_has_raised_is_not_found(text: str) -> None:
    assert raised_in_task(RuntimeError(ABORTED % text)) is None


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)", True),
        ("Failed to get broadcast_3_piece0", True),
        ("org.apache.spark.shuffle.FetchFailedException", True),
        ("Python worker exited unexpectedly (crashed)", False),
    ],
)
def test_a_lost_executor_is_recognised(text: str, is_lost: bool) -> None:
    assert is_executor_lost(RuntimeError(ABORTED % text)) is is_lost
