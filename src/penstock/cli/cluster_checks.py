"""The checks of `penstock doctor --cluster`: it starts executors, and looks at what each of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.cli.findings import Finding, fail, ok
from penstock.config import Config
from penstock.errors import ConfigError, PenstockError
from penstock.spark.executors import CURE, difference, inspected
from penstock.spark.hosts import Hosts
from penstock.spark.session import has_session, open_session
from penstock.spark.tasks import STATE_DIR

_NAME = "penstock-doctor"


def examine_cluster(config: Config) -> Iterator[Finding]:
    """Check that executors start, and have what the driver has."""
    if not config.is_spread:
        yield fail("cluster", "no cluster is set", "set master in the table spark, or leave out --cluster")
        return
    lanes, is_shared = config.lanes or 1, has_session()
    try:
        session = open_session(_NAME, lanes, config.spark)
    except ConfigError as error:
        yield fail("cluster", str(error), "check the address of the master, and its secret")
        return
    try:
        hosts = Hosts(session, lanes)
        hosts.place()
        counts = Counter(hosts.placement)
        yield ok("cluster", f"{lanes} lanes on " + ", ".join(f"{host} ({count})" for host, count in sorted(counts.items())))
        for executor in inspected(hosts.each_lane(), str(config.state_dir.absolute()), STATE_DIR):
            what, problem = f"executor {executor.host}", difference(executor)
            yield fail(what, problem, CURE) if problem else ok(what, f"Python {executor.python}, {executor.packages}")
    except PenstockError as error:
        yield fail("cluster", str(error), "see docs/cluster.md")
    finally:
        if not is_shared:
            session.stop()
