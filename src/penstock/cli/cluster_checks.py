"""The checks of `penstock doctor --cluster`: it starts executors, and looks at what each of them has."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cli.findings import Finding, fail, ok
from penstock.config import Config
from penstock.engines.serving import STATE_DIR
from penstock.errors import ConfigError, PenstockError
from penstock.spark.context import has_context, open_context
from penstock.spark.executors import CURE, difference, inspected, settled

_NAME = "penstock-doctor"


def examine_cluster(config: Config) -> Iterator[Finding]:
    """Check that executors start, and have what the driver has."""
    if not config.is_spread:
        yield fail("cluster", "no cluster is set", "set master in the table spark, or leave out --cluster")
        return
    lanes, is_shared = config.lanes or 1, has_context()
    try:
        context = open_context(_NAME, lanes, config.spark)
    except ConfigError as error:
        yield fail("cluster", str(error), "check the address of the master, and its secret")
        return
    try:
        cores = settled(context)
        found = ", ".join(f"{host} ({count})" for host, count in sorted(cores.items()))
        yield ok("cluster", f"{cores.total()} cores for {lanes} lanes and Spark's other jobs: {found}")
        for executor in inspected(context, cores.total(), str(config.state_dir.absolute()), STATE_DIR):
            what, problem = f"executor {executor.host}", difference(executor)
            yield fail(what, problem, CURE) if problem else ok(what, f"Python {executor.python}, {executor.packages}")
    except PenstockError as error:
        yield fail("cluster", str(error), "see docs/cluster.md")
    finally:
        if not is_shared:
            context.stop()
