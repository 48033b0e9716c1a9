"""What executors of a cluster have installed, compared with the driver before the first epoch."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import ConfigError

_PACKAGES = ("penstock", "pyspark", "pyarrow", "msgspec", "confluent-kafka")
_SCHEMA = pa.schema([pa.field(name, pa.string()) for name in ("host", "python", "packages", "problem")])
CURE = "Install the driver's environment on every host, where spark.pyspark.python says, or ship it with spark.archives."


class Executor(NamedTuple):
    """What a task has found on its host. `problem` is what keeps lanes from running there, "" if nothing does."""

    host: str
    python: str
    packages: str
    problem: str


def inspected(one_row_each: DataFrame, state_dir: str, variable: str) -> list[Executor]:
    """Return what the tasks of a frame find on their hosts. `variable` may name another directory for stores than `state_dir`."""
    try:
        found = one_row_each.mapInArrow(_task(state_dir, variable), from_arrow_schema(_SCHEMA)).toArrow()
    except Exception as error:
        raise ConfigError(f"An executor cannot run a Python task. {CURE}\n  {str(error)[:2_000]}") from error
    return sorted({Executor(**row) for row in found.to_pylist()})


def refuse_unequal(found: Sequence[Executor]) -> None:
    """Raise if an executor has something else than the driver."""
    problems = [f"{one.host}: {problem}" for one in found if (problem := difference(one))]
    if problems:
        raise ConfigError("Executors differ from the driver.\n  " + "\n  ".join(problems) + f"\n{CURE}")


def difference(one: Executor) -> str:
    """Return how an executor differs from the driver, "" if it does not."""
    if one.problem:
        return one.problem
    own = platform.python_version_tuple()[:2]
    if tuple(one.python.split(".")[:2]) != own:
        return f"Python {one.python}, but the driver has {platform.python_version()}"
    theirs = dict(entry.split("==") for entry in one.packages.split())
    return ", ".join(
        f"{name} {theirs.get(name, 'is missing')}, but the driver has {ours}"
        for name in _PACKAGES
        if theirs.get(name) != (ours := version(name))
    )


def _task(state_dir: str, variable: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task. It is pickled by value and uses nothing of ours: the host may not have it."""
    packages = _PACKAGES

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        there: dict[str, str] = {}
        for found in distributions():  # of several, the first one is imported
            there.setdefault(found.metadata["Name"], found.version)
        directory, problem = Path(os.environ.get(variable, state_dir)), ""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(directory, os.W_OK):
                problem = f"cannot write to {directory}"
        except OSError as error:
            problem = f"cannot create {directory}: {error.strerror}"
        host = os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
        listed = " ".join(f"{name}=={there[name]}" for name in packages if name in there)
        row = {"host": host, "python": platform.python_version(), "packages": listed, "problem": problem}
        yield pa.RecordBatch.from_pylist([row])

    return task
