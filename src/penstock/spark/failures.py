"""Why a Spark job failed: the error that the task of a query has raised, found in Spark's report; or Spark itself is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock import errors
from penstock.errors import PenstockError, ProcessingError

if TYPE_CHECKING:
    from pyspark import SparkContext  # the local engine has none

_RAISED = re.compile(r"^(?:\S*\s)?penstock\.errors\.exceptions\.(\w+): ", re.MULTILINE)
_EXECUTOR_LOST = (
    "ExecutorLostFailure",
    "ExecutorDeadException",
    "FetchFailed",
    "MetadataFetchFailedException",
    "Failed to get broadcast",
)
"""Failures of a job that has lost an executor, or what it had computed."""


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


def is_executor_lost(error: BaseException) -> bool:
    """Whether a job on a cluster failed because an executor was lost."""
    return any(sign in str(error) for sign in _EXECUTOR_LOST)


def end_of(context: SparkContext) -> PenstockError | None:
    """Return the error of a context that has ended, so that it runs no other job; None if it is there."""
    try:
        java = context._jsc  # None if it was stopped by this process
        if java is not None and not java.sc().isStopped():
            return None
        what = "The Spark context was stopped, by the code that has opened it or by the cluster"
    except Exception:  # whatever Py4J raises when nobody answers
        what = "Spark's JVM has ended: it was killed, or its log says why"
    return PenstockError(f"{what}. Its tasks, which are the slots of lanes, have ended with it. Start the application again.")


def own_text(report: str) -> str:
    """Return the lines of an error's own text, without the stack and the list that Spark appends."""
    lines: list[str] = []
    for line in report.splitlines():
        if line.startswith(("\tat ", "Driver stacktrace", "JVM stacktrace", "=== ", "    at ")) or (lines and not line.strip()):
            break
        lines.append(line)
    return "\n".join(lines)
