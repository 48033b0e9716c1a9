"""What ended a Spark job, as an error of Penstock's: the one a task raised, found again in Spark's report of it."""

from __future__ import annotations

import re

from penstock import errors
from penstock.errors import BrokerError, PenstockError, ProcessingError, TopicError

_RAISED = re.compile(r"^(?:\S*\s)?penstock\.errors\.exceptions\.(\w+): ", re.MULTILINE)
_BROKER_GONE = ("TimeoutException", "Timed out waiting for a node assignment", "DisconnectException")
_DATA_LOST = ("KafkaIllegalStateException", "KAFKA_DATA_LOSS", "OffsetOutOfRange", "UnknownTopicOrPartition")
_LONGEST = 4_000


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
    if any(sign in report for sign in _DATA_LOST):
        return TopicError(f"a source topic has lost records that were not read yet, or is gone: {report[:_LONGEST]}")
    if any(sign in report for sign in _BROKER_GONE):
        return BrokerError(f"no broker could be reached for too long: {report[:_LONGEST]}")
    return PenstockError(f"the epoch's job failed: {report[:_LONGEST]}")


def _message(rest: str) -> str:
    """The lines of the error's own text: Spark goes on with its stack and a list of its own."""
    lines: list[str] = []
    for line in rest.splitlines():
        if line.startswith(("\tat ", "Driver stacktrace", "JVM stacktrace", "=== ", "    at ")) or (lines and not line.strip()):
            break
        lines.append(line)
    return "\n".join(lines)
