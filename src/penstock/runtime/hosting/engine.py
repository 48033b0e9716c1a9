"""Which engine an application has: Spark's tasks, or processes of its own if `engine = local` is asked for by name.

There is no other way to run a lane: if Spark cannot start, the application ends with Spark's error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import Config
from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.one_host import OneHost
from penstock.engines.port import Engine
from penstock.epochs.program import Program
from penstock.errors import ConfigError
from penstock.observation import logs
from penstock.runtime.hosting.set_up import TaskSetUp
from penstock.spark.installed import require_pyspark
from penstock.topology import Topology

if TYPE_CHECKING:
    from penstock.runtime.hosting.spark_work import SparkWork  # loads pyspark


class Hosting(NamedTuple):
    """Where an application runs: its engine, and Spark's own work; `spark` is None with `engine = local`."""

    engine: Engine
    spark: SparkWork | None = None

    def require_spark(self) -> SparkWork:
        """Return Spark, for SQL and other sources; raises if the application runs without it."""
        if self.spark is None:
            why = "SQL, tables, and sources other than topics need Spark"
            raise ConfigError(f"{why}, but the application runs with engine = local. Set engine to spark.")
        return self.spark

    def close(self) -> None:
        """End lanes, and what Spark does beside them."""
        if self.spark is not None:
            self.spark.close()
        self.engine.close()


class Hosts(NamedTuple):
    """How lanes are hosted: `host` returns the engine of a program; `close` ends what was opened for that ahead."""

    host: Callable[[Program, TaskSetUp], Hosting]
    close: Callable[[], None] = lambda: None


def opening_hosts(config: Config, program: Program, topology: Topology) -> Hosts:
    """Begin to open what the engine of the settings needs: Spark takes seconds. `program` may get other settings yet."""
    return _Current.opening(config, program, topology)


def _opening_hosts(config: Config, program: Program, topology: Topology) -> Hosts:
    if config.engine == "local":
        return Hosts(lambda final, tasks: Hosting(_local(final, tasks)))
    require_pyspark()
    from penstock.runtime.hosting.on_spark import opening_spark, spark_engine  # noqa: PLC0415 - the local engine has no pyspark

    spark = opening_spark(config, program, topology)
    return Hosts(lambda final, tasks: Hosting(*spark_engine(final, tasks, spark)), spark.close)


def _local(program: Program, tasks: TaskSetUp) -> Engine:
    slots = ForkedSlots(program, tasks.prepare, min(program.lanes, os.cpu_count() or 1), logs.pass_on)
    return OneHost(program, slots, tasks.patience_s, "local", "forked processes")


class _Current:
    """What opens hosts in this process."""

    opening: Callable[[Config, Program, Topology], Hosts] = staticmethod(_opening_hosts)


@contextmanager
def replaced(by: Callable[[Config, Program, Topology], Hosts]) -> Iterator[None]:
    """Host lanes elsewhere in this block, as a simulation does."""
    before, _Current.opening = _Current.opening, staticmethod(by)
    try:
        yield
    finally:
        _Current.opening = before
