"""Faults while records flow, and how long it takes until records that came after one are committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import psutil

from benchmarks.measurements.prober import Prober
from verification.harness.processes import HarnessError
from verification.on_spark.processes import is_task

RATE, PROBES_PER_S = 1_000, 500
"""Every second record has a key that comes again, so that state which was lost or doubled shows in the results."""
KEYS = 1_000
LEAD_S, AFTER_S = 0.5, 1.5
NEXT_S = 90


def until_next_commit(prober: Prober, hurt: Callable[[], object]) -> float:
    """Return the seconds from just before a fault to the first result of a record that was due after it."""
    with ThreadPoolExecutor(1) as hurting:
        moments = hurting.submit(_hurt, hurt)
        span = prober.send(RATE, LEAD_S + AFTER_S, PROBES_PER_S)
        before, after = moments.result()
    last = prober.send(RATE, AFTER_S, PROBES_PER_S)
    prober.wait_for_all(NEXT_S)
    arrived = [prober.arrived_at[number] for number in range(span.start, last.stop) if prober.due.get(number, 0) > after]
    return min(arrived) - before


def kill_busiest(processes: Iterable[psutil.Process]) -> None:
    """Kill the Spark task that has worked most: it is a slot, and others may be idle workers of an earlier job."""
    tasks = [each for each in processes if is_task(each.pid)]
    if not tasks:
        raise HarnessError("no process runs a Spark task")
    max(tasks, key=_worked).kill()


def _hurt(hurt: Callable[[], object]) -> tuple[float, float]:
    time.sleep(LEAD_S)
    before = time.monotonic()
    hurt()
    return before, time.monotonic()


def _worked(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
