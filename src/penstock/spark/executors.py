"""What executors of a cluster have installed, compared with the driver before the first epoch."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import NamedTuple

import pyspark
from pyspark import SparkContext

from penstock.errors import ConfigError, PenstockError
from penstock.spark.failures import end_of, is_executor_lost
from penstock.version import DISTRIBUTION, __version__

_PACKAGES = ("pyarrow", "msgspec", "confluent-kafka")
_SPARK = "pyspark"
"""By the version that is imported: a platform's own is no installed package, and may come before one that is."""

EXECUTORS_TIMEOUT_S = 120.0
_SETTLED_S = 2.0
"""Executors register one after the other: when none has come for this long, slots are placed."""

CURE = "Install the driver's environment on every host, where spark.pyspark.python says, or ship it with spark.archives."


class Executor(NamedTuple):
    """What a task has found on its host. `problem` is what keeps lanes from running there, "" if nothing does."""

    host: str
    python: str
    packages: str
    problem: str


def active(context: SparkContext) -> list[tuple[str, str, int]]:
    """Return the id, the host and the cores of each executor that there is now; raises if the context has ended."""
    try:
        summaries = context._jsc.sc().statusStore().executorList(True)
        found = [summaries.apply(number) for number in range(summaries.size())]
        each = [(one.id(), one.hostPort().rpartition(":")[0], one.totalCores()) for one in found]
    except Exception as error:
        end = end_of(context)
        if end is None:
            raise
        raise end from error
    return sorted(one for one in each if one[0] != "driver")


def settled(context: SparkContext) -> Counter[str]:
    """Wait until executors have come, and no other comes; return their cores by host.

    If none comes, that need be no matter of settings: after the next start, there may be some.
    """
    end = time.monotonic() + EXECUTORS_TIMEOUT_S
    known, since = active(context), time.monotonic()
    while not known or time.monotonic() - since < _SETTLED_S:
        if time.monotonic() > end:
            cure = "Check that the cluster has free cores and memory, and that its workers reach this driver."
            raise PenstockError(f"The cluster has started no executor within {EXECUTORS_TIMEOUT_S:g} s. {cure}")
        time.sleep(0.1)
        now = active(context)
        if now != known:
            known, since = now, time.monotonic()
    return by_host(known)


def by_host(executors: Iterable[tuple[str, str, int]]) -> Counter[str]:
    """Return the cores of executors by host."""
    cores: Counter[str] = Counter()
    for _, host, count in executors:
        cores[host] += count
    return cores


@lru_cache(maxsize=1024)
def address_of(host: str) -> str:
    """Return the address of a host, which Spark and a task on it may call by other names; the name if nobody knows it."""
    try:
        return socket.gethostbyname(host.strip("[]"))
    except OSError:
        return host.strip("[]")


def inspected(context: SparkContext, tasks: int, state_dir: str, variable: str) -> list[Executor]:
    """Return what so many tasks, one per core, find on their hosts. `variable` may name another directory than `state_dir`."""
    try:
        found = context.parallelize(range(tasks), tasks).mapPartitions(_task(state_dir, variable)).collect()
    except Exception as error:
        end = end_of(context)
        if end is not None:
            raise end from error
        if is_executor_lost(error):
            raise PenstockError("An executor was lost while it was inspected. Start again.") from error
        raise ConfigError(f"An executor cannot run a Python task. {CURE}\n  {str(error)[:2_000]}") from error
    return sorted({Executor(*row) for row in found})


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
    here = {_SPARK: pyspark.__version__, DISTRIBUTION: __version__} | {name: version(name) for name in _PACKAGES}
    return ", ".join(
        f"{name} {theirs.get(name, 'is missing')}, but the driver has {ours}"
        for name, ours in here.items()
        if theirs.get(name) != ours
    )


def _task(state_dir: str, variable: str) -> Callable[[Iterable[int]], Iterable[tuple[str, ...]]]:
    """Return the task. It is pickled by value and uses nothing of ours: the host may not have it."""
    packages, spark = (DISTRIBUTION, *_PACKAGES), _SPARK

    def task(_: Iterable[int]) -> Iterator[tuple[str, ...]]:
        there: dict[str, str] = {}
        for found in distributions():  # of several, the first one is imported
            there.setdefault(found.metadata["Name"], found.version)
        there[spark] = pyspark.__version__
        directory, problem = Path(os.environ.get(variable, state_dir)), ""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(directory, os.W_OK):
                problem = f"cannot write to {directory}"
        except OSError as error:
            problem = f"cannot create {directory}: {error.strerror}"
        host = os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
        listed = " ".join(f"{name}=={there[name]}" for name in (spark, *packages) if name in there)
        yield host, platform.python_version(), listed, problem

    return task
