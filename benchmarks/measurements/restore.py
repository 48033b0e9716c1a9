"""(K) Cold restore: an application starts without its local state, and must answer from all of its state. And warm restarts.

Its source gets records for known keys; when the result of each has arrived and continues the old count, the state is restored.
The same is measured with the local state in place, after an orderly stop and after a SIGKILL while it was processing records.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer

from benchmarks.bench import Bench, in_turn
from benchmarks.measurements import sinks
from benchmarks.measurements.samples import Sampler
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Side
from benchmarks.sides.kafka_streams import with_commits_every
from benchmarks.workloads import Totals
from benchmarks.workloads.documents import document
from benchmarks.workloads.loading import Loaded
from benchmarks.workloads.results import pair
from benchmarks.workloads.totals import ExpectedTotals
from benchmarks.workloads.workload import WrongResultError
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError

SIZES = (1_000_000, 5_000_000)
TIMEOUT_S = 900
PROBES = 1_000
SIDES = ("penstock", "kafka-streams", "quix")
SPARK = "its checkpoint is the only copy of its state: without it there is nothing to restore"


def run(bench: Bench) -> None:
    """Measure each size; the larger one once."""
    for keys in SIZES:
        size = bench.options.scaled(keys, PROBES)
        place = ("restore", str(keys))
        bench.report.begin(place, title=f"restore of {keys:,} keys")
        workload = Totals(title="", keys=size, records=keys)
        entrants = bench.entrants(workload.topology, place, SIDES)
        if "spark" in bench.options.sides:
            bench.report.leave_out((*place, "spark"), SPARK)
        rounds = bench.options.rounds if keys == SIZES[0] else 1
        with bench.broker() as broker:
            for number in range(rounds):
                for name in in_turn(list(entrants), number):
                    side = with_commits_every(100) if name == "kafka-streams" else entrants[name][0]
                    loaded = bench.load(broker, workload)
                    with (
                        bench.tolerance((*place, name)),
                        bench.job(broker, side, "restore", workload.topology, loaded.sources) as job,
                    ):
                        bench.report.add((*place, name), _measure(broker, side, job, loaded))
                    topics.delete(broker.bootstrap_servers, loaded.sources[0])


def _measure(broker: Broker, side: Side, job: Job, loaded: Loaded) -> dict[str, Any]:
    """Fill the state, then start with it, after a SIGKILL, and without it."""
    progress = side.progress(job)
    try:
        with Application(side, job) as filling:
            Sampler(filling, progress, broker.pid).reach(loaded.records)
    finally:
        progress.close()
    probed = Probed(job, loaded)
    warm_start_s, _ = probed.until_answered(Application(side, job))
    probed.until_killed(Application(side, job))
    killed_start_s, _ = probed.until_answered(Application(side, job))
    shutil.rmtree(job.state_dir)
    cold_start_s, peak_pss_mb = probed.until_answered(Application(side, job))
    return {
        "cold_start_s": cold_start_s,
        "warm_start_s": warm_start_s,
        "killed_start_s": killed_start_s,
        "restore_s": cold_start_s - warm_start_s,
        "keys": loaded.records,
        "peak_pss_mb": peak_pss_mb,
    }


class Probed:
    """Keys from everywhere, how often each was probed so far, and the answers."""

    def __init__(self, job: Job, loaded: Loaded) -> None:
        assert isinstance(loaded.expected, ExpectedTotals)
        self._job = job
        keys = range(0, len(loaded.expected.counts), max(1, len(loaded.expected.counts) // PROBES))[:PROBES]
        self._totals = {f"k{key}".encode(): [loaded.expected.counts[key], loaded.expected.sums[key]] for key in keys}

    def probe(self) -> dict[bytes, list[int]]:
        """Send one more record for each key; return the expected results."""
        for total in self._totals.values():
            total[0] += 1
        probes = [topics.Sent(key=key, value=document(0, key.decode(), 0)) for key in self._totals]
        topics.produce(self._job.bootstrap_servers, self._job.sources[0], probes)
        return {key: list(total) for key, total in self._totals.items()}

    def until_answered(self, application: Application) -> tuple[float, float]:
        """The seconds from its start until all probes have their results, and its peak memory in MB."""
        with closing(sinks.reader(self._job.bootstrap_servers, self._job.sink, at_end=True)) as answers:
            expected = self.probe()
            with application:
                took_s = self._wait(application, answers, expected)
        return took_s, application.tree.peak_pss_bytes / 1e6

    def until_killed(self, application: Application) -> None:
        """Run it until it has answered, and kill it with more records on their way."""
        with closing(sinks.reader(self._job.bootstrap_servers, self._job.sink, at_end=True)) as answers, application:
            self._wait(application, answers, self.probe())
            self.probe()
            application.kill()

    def _wait(self, application: Application, answers: Consumer, expected: dict[bytes, list[int]]) -> float:
        end = time.monotonic() + TIMEOUT_S
        while expected:
            application.check()
            if time.monotonic() > end:
                tail = application.log_tail()
                raise HarnessError(f"{len(expected)} of {PROBES} probes have no result after {TIMEOUT_S} s:\n{tail}")
            for key, value in sinks.arriving(answers):
                self._note(expected, key, pair(value))
        return time.monotonic() - application.started_at

    def _note(self, missing: dict[bytes, list[int]], key: bytes, found: list[int]) -> None:
        wanted = self._totals.get(key)
        if wanted is None:
            return
        if found[0] > wanted[0] or found[1] != wanted[1]:
            raise WrongResultError(f"{self._job.application_id} has lost or doubled state: {key!r} is {found}, not {wanted}")
        if found == missing.get(key):
            del missing[key]
