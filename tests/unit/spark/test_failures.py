"""The failure of a Spark job, found in Spark's report."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.errors import (
    BrokerError,
    EpochTooLargeError,
    FencedError,
    PenstockError,
    ProcessingError,
    SerializationError,
    StateError,
    TopicError,
)
from penstock.spark.failures import translated, unreadable_timestamp

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


def test_a_penstock_error_is_unchanged() -> None:
    error = FencedError("taken over")
    assert translated(error) is error


@pytest.mark.parametrize(
    "kind",
    sorted({kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)}, key=str),
)
def test_the_error_of_a_task_keeps_its_exit_code(kind: type[PenstockError]) -> None:
    error = translated(report(kind.__name__, "what happened"))
    assert type(error) is kind
    assert (str(error), error.exit_code) == ("what happened", kind.exit_code)


def test_all_lines_of_its_message_are_kept_and_none_of_sparks() -> None:
    error = translated(report("ProcessingError", "map failed: ValueError: no\n  the node was declared at app.py:3"))
    assert str(error) == "map failed: ValueError: no\n  the node was declared at app.py:3"


@pytest.mark.parametrize(
    "end",
    ["\n\tat org.apache.spark", "\nDriver stacktrace:", "\nJVM stacktrace:", "\n=== Streaming Query ===", "\n    at org.apache"],
)
def test_the_message_ends_where_sparks_text_begins(end: str) -> None:
    error = RuntimeError(f"Traceback:\n{RAISED % ('StateError', 'one line')}{end}\nmore")
    assert str(translated(error)) == "one line"


def test_an_error_named_in_a_line_of_spark_is_found_too() -> None:
    error = RuntimeError("[FOREACH_BATCH_USER_FUNCTION_ERROR] failed:\nPythonException: " + RAISED % ("StateError", "text"))
    assert isinstance(translated(error), StateError)


def test_an_error_is_preferred_to_its_cause() -> None:
    chain = (
        "\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n".join(
            [
                RAISED % ("SerializationError", "8 bytes were expected"),
                RAISED % ("ProcessingError", "cannot read the record from in-0 at offset 2"),
            ]
        )
    )
    error = translated(RuntimeError(ABORTED % chain))
    assert not isinstance(error, SerializationError)
    assert isinstance(error, ProcessingError)
    assert str(error) == "cannot read the record from in-0 at offset 2"


def test_an_unknown_error_class_becomes_a_processing_error() -> None:
    assert type(translated(report("NewError", "text"))) is ProcessingError


@pytest.mark.parametrize(
    "sign",
    [
        "KafkaIllegalStateException",
        "[KAFKA_DATA_LOSS.START_OFFSET_RESET]",
        "OffsetOutOfRangeException",
        "UnknownTopicOrPartition",
    ],
)
def test_lost_records_are_a_topic_error(sign: str) -> None:
    error = translated(RuntimeError(f"org.apache.kafka: {sign}: Cannot fetch records; TimeoutException"))
    assert isinstance(error, TopicError)
    assert sign in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "io.netty.util.internal.OutOfDirectMemoryError: failed to allocate 134217728 byte(s) of direct memory",
        "java.lang.OutOfMemoryError: GC overhead limit exceeded",
        "org.apache.arrow.vector.util.OversizedAllocationException: Memory required for vector capacity 1 is (2), which is more",
        "bigger than spark.driver.maxResultSize (1024.0 MiB)",
        "Python worker exited unexpectedly (crashed)",
    ],
)
def test_a_failure_that_fewer_records_may_avoid_is_an_epoch_too_large_error(line: str) -> None:
    error = translated(RuntimeError(f"Job aborted: Lost task 0.3 in stage 1.0: some.Exception: {line}\n\tat a; TimeoutException"))
    assert type(error) is EpochTooLargeError
    assert str(error) == f"The epoch's Spark job failed, probably because of its size: {line}"


@pytest.mark.parametrize("sign", ["TimeoutException", "Timed out waiting for a node assignment", "DisconnectException"])
def test_unreachable_brokers_are_a_broker_error(sign: str) -> None:
    assert isinstance(translated(RuntimeError(f"org.apache.kafka.common.errors.{sign}")), BrokerError)


def test_any_other_report_is_shortened() -> None:
    error = translated(RuntimeError("x" * 10_000))
    assert type(error) is PenstockError
    assert len(str(error)) < 5_000


def test_lost_data_is_preferred_to_an_unreachable_broker_and_a_raised_error_to_both() -> None:
    text = "KAFKA_DATA_LOSS TimeoutException"
    assert isinstance(translated(RuntimeError(text)), TopicError)
    assert isinstance(translated(RuntimeError(f"{text}\n{RAISED % ('StateError', 'text')}")), StateError)


def test_an_unreadable_timestamp_is_distinguished_from_lost_records() -> None:
    said = (
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic in partition 0 offset 1 has timestamp value "
        "1794778322590913092 that overflows when converting to Spark's microsecond-precision TimestampType."
    )
    found = unreadable_timestamp(RuntimeError(said))
    assert str(found) == "topic in partition 0 offset 1 has timestamp value 1794778322590913092"
    lost = "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost"
    assert unreadable_timestamp(RuntimeError(lost)) is None
