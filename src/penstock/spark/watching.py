"""Watches a Spark job from another thread: cancels it if it takes too long, or waits for a host that is gone.

A lost executor does not always fail a job: if its worker is lost, Spark runs its tasks again, but only on the host of their
lanes, which may never return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import inf

from pyspark.sql import SparkSession

from penstock.spark.hosts import Hosts

_LOOK_EVERY_S = 0.25
_numbers = count()


@dataclass
class Watch:
    """Why a job was cancelled, if it was; on a cluster, `hosts` are where lanes run."""

    hosts: Hosts | None = None
    is_late: bool = False
    has_lost_host: bool = False

    def is_loss(self, error: BaseException) -> bool:
        """Whether the job failed because an executor was lost."""
        return self.hosts is not None and (self.has_lost_host or self.hosts.have_failed(error))


@contextmanager
def watched(session: SparkSession, hosts: Hosts | None, patience_s: float = inf) -> Iterator[Watch]:
    """Watch the jobs of this block; on a cluster, `hosts` are where lanes run."""
    context, tag = session.sparkContext, f"penstock-{next(_numbers)}"
    found, is_over, end = Watch(hosts), threading.Event(), time.monotonic() + patience_s

    def watch() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            found.is_late = found.is_late or time.monotonic() >= end
            found.has_lost_host = found.has_lost_host or (hosts is not None and hosts.are_lost())
            if found.is_late or found.has_lost_host:
                context.cancelJobsWithTag(tag)  # every time: it has no effect on a job that is yet to begin

    context.addJobTag(tag)
    threading.Thread(target=watch, name=tag, daemon=True).start()
    try:
        yield found
    finally:
        is_over.set()
        context.removeJobTag(tag)
