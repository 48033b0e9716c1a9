"""What ended a Spark job, as an error of Penstock's: the one a task raised, found again in Spark's report of it."""

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
"""What may be over when the epoch has fewer records. A worker that exits may have been killed for the memory it had."""
_LONGEST = 4_000


class UnreadableTimestampError(PenstockError):
    """Spark's reader has met a record whose timestamp it has no type for, and reads none behind it."""


def unreadable_timestamp(error: BaseException) -> UnreadableTimestampError | None:
    """The error if that is what ended a job; it names the record."""
    found = _NO_TIMESTAMP.search(str(error))
    return None if found is None else UnreadableTimestampError(found.group(1))


def translated(error: BaseException) -> PenstockError:
    """The error as Penstock raises it."""
    if isinstance(error, PenstockError):
        return error
    report = str(error)
    found = list(_RAISED.finditer(report))
    if found:
        last = found[-1]  # its causes come before it
        kind = getattr(errors, last.group(1), ProcessingError)
        return kind(_message(report[last.end() :]))
    if any(sign in report for sign in _TOO_LARGE):
        return EpochTooLargeError(f"the job of the epoch failed: {_cause(report)}")
    if any(sign in report for sign in _DATA_LOST):
        return TopicError(f"a source topic has lost records that were not read yet, or is gone: {report[:_LONGEST]}")
    if any(sign in report for sign in _BROKER_GONE):
        return BrokerError(f"no broker could be reached for too long: {report[:_LONGEST]}")
    return PenstockError(f"the epoch's job failed: {report[:_LONGEST]}")


def _cause(report: str) -> str:
    """The line that says what it was that failed for its size."""
    found = re.search(rf"[\w.$]*(?:{'|'.join(map(re.escape, _TOO_LARGE))}).*", report)
    assert found is not None
    return found[0][:_LONGEST]


def _message(rest: str) -> str:
    """The lines of the error's own text: Spark goes on with its stack and a list of its own."""
    lines: list[str] = []
    for line in rest.splitlines():
        if line.startswith(("\tat ", "Driver stacktrace", "JVM stacktrace", "=== ", "    at ")) or (lines and not line.strip()):
            break
        lines.append(line)
    return "\n".join(lines)
