"""Translates the failure of a Spark job to a Penstock error: the one that a task raised, found in Spark's report."""

from __future__ import annotations

import re

from penstock import errors
from penstock.errors import BrokerError, EpochTooLargeError, PenstockError, ProcessingError, TopicError

_RAISED = re.compile(r"^(?:\S*\s)?penstock\.errors\.exceptions\.(\w+): ", re.MULTILINE)
_BROKER_GONE = ("TimeoutException", "Timed out waiting for a node assignment", "DisconnectException")
_DATA_LOST = ("KafkaIllegalStateException", "KAFKA_DATA_LOSS", "OffsetOutOfRange", "UnknownTopicOrPartition")
_NO_TIMESTAMP = re.compile(r"Record at (topic .* has timestamp value -?\d+) that overflows when converting to Spark's")
_TOO_LARGE = (
    "OutOfDirectMemoryError",
    "OutOfMemoryError",
    "Java heap space",
    "OversizedAllocationException",
    "bigger than spark.driver.maxResultSize",
    "exceeds size limitation",
    "Cannot grow BufferHolder",
    "Python worker exited unexpectedly",
    "Unable to acquire",
)
"""Failures that fewer records may avoid. A worker that exits may have been killed for its use of memory."""
_EXECUTOR_LOST = (
    "ExecutorLostFailure",
    "ExecutorDeadException",
    "FetchFailed",
    "MetadataFetchFailedException",
    "Failed to get broadcast",
)
"""Failures of a job that has lost an executor, or what it had computed."""
_LONGEST = 4_000


class UnreadableTimestampError(PenstockError):
    """Spark's reader cannot represent the timestamp of a record, and reads no further."""


def unreadable_timestamp(error: BaseException) -> UnreadableTimestampError | None:
    """Return the error, which names the record, if that is why a job failed; otherwise None."""
    found = _NO_TIMESTAMP.search(str(error))
    return None if found is None else UnreadableTimestampError(found.group(1))


def raised_in_task(error: BaseException) -> PenstockError | None:
    """Return the error that a task of the job has raised; None if it was not one of Penstock's."""
    report = str(error)
    found = list(_RAISED.finditer(report))
    if not found:
        return None
    last = found[-1]  # after its causes
    kind = getattr(errors, last.group(1), ProcessingError)
    raised: PenstockError = kind(own_text(report[last.end() :]))
    return raised


def translated(error: BaseException) -> PenstockError:
    """Return the error as a Penstock error."""
    if isinstance(error, PenstockError):
        return error
    raised = raised_in_task(error)
    if raised is not None:
        return raised
    report = str(error)
    if any(sign in report for sign in _TOO_LARGE):
        return EpochTooLargeError(f"The epoch's Spark job failed, probably because of its size: {_cause(report)}")
    if any(sign in report for sign in _DATA_LOST):
        return TopicError(f"A source topic was deleted, or has lost records that were not read yet: {report[:_LONGEST]}")
    if any(sign in report for sign in _BROKER_GONE):
        return BrokerError(f"No broker has been reachable for too long: {report[:_LONGEST]}")
    return PenstockError(f"Unexpected failure: {report[:_LONGEST]}")


def is_executor_lost(error: BaseException) -> bool:
    """Whether a job on a cluster failed because an executor was lost."""
    return any(sign in str(error) for sign in _EXECUTOR_LOST)


def _cause(report: str) -> str:
    """Return the line that says what was too large."""
    found = re.search(rf"[\w.$]*(?:{'|'.join(map(re.escape, _TOO_LARGE))}).*", report)
    assert found is not None
    return found[0][:_LONGEST]


def own_text(report: str) -> str:
    """Return the lines of an error's own text, without the stack and the list that Spark appends."""
    lines: list[str] = []
    for line in report.splitlines():
        if line.startswith(("\tat ", "Driver stacktrace", "JVM stacktrace", "=== ", "    at ")) or (lines and not line.strip()):
            break
        lines.append(line)
    return "\n".join(lines)
