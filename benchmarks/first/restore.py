"""Cold restore: an application starts without its local state, and must answer from all of its state.

Its source contains some records for known keys; when the result of each has arrived and continues the old
count, the state is restored. The same is measured with the local state in place: the difference is the restore alone.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.first import results, workload
from benchmarks.first.applications import Application
from benchmarks.first.sides import Job
from benchmarks.first.throughput import Committed
from benchmarks.first.workload import Loaded
from verification.harness import topics
from verification.harness.processes import HarnessError

TIMEOUT_S = 300
PROBES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The time from the start of the process until it has answered for keys from all of its state."""

    cold_start_s: float
    warm_start_s: float
    restore_s: float
    keys: int
    peak_rss_mb: float


def measure(start: Callable[[], Application], job: Job, loaded: Loaded) -> Restore:
    """Fill the state, then start twice: with it and without it."""
    committed = Committed(job.bootstrap_servers, job.application_id, job.source)
    with start() as filling:
        committed.wait_for(_records(job), filling)
    committed.close()
    warm_start_s, _ = _until_answered(start(), job, loaded)
    shutil.rmtree(job.state_dir)
    cold_start_s, peak_rss_mb = _until_answered(start(), job, loaded)
    return Restore(
        cold_start_s=cold_start_s,
        warm_start_s=warm_start_s,
        restore_s=cold_start_s - warm_start_s,
        keys=loaded.records,
        peak_rss_mb=peak_rss_mb,
    )


def _until_answered(application: Application, job: Job, loaded: Loaded) -> tuple[float, float]:
    """The seconds from its start until all probes have their results, and its peak memory."""
    expected = _probe(job, loaded)
    answers = results.reader(job.bootstrap_servers, job.sink, at_end=True)
    end = time.monotonic() + TIMEOUT_S
    with application:
        while expected:
            application.check()
            if time.monotonic() > end:
                raise HarnessError(
                    f"{len(expected)} of {PROBES} probes have no result after {TIMEOUT_S} s:\n{application.log_tail()}"
                )
            for key, value in results.arriving(answers):
                if json.loads(value) != expected.pop(key):
                    raise HarnessError(f"{job.application_id} has lost state: {key} is {value.decode()}")
        took_s = time.monotonic() - application.started_at
    answers.close()
    return took_s, application.peak_rss_bytes / 1e6


def _probe(job: Job, loaded: Loaded) -> dict[str, list[int]]:
    """Send one more record for each of some evenly picked keys; return the expected results.

    The sides share the source: its size shows how often it was probed before.
    """
    times_before = (_records(job) - loaded.records) // PROBES
    keys = list(loaded.totals)[:: len(loaded.totals) // PROBES][:PROBES]
    probes = [topics.Sent(key=key.encode(), value=workload.value(0, key, 0)) for key in keys]
    topics.produce(job.bootstrap_servers, job.source, probes)
    return {key: [loaded.totals[key][0] + times_before + 1, loaded.totals[key][1]] for key in keys}


def _records(job: Job) -> int:
    return sum(topics.end_offsets(job.bootstrap_servers, job.source).values())
