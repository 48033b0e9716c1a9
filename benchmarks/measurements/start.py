"""(J) From the start of the process to its first commit: cold, again with its state in place, and with an archive of classes.

A JVM starts sooner from an archive of the classes it will load (`-XX:SharedArchiveFile`). Each side that has a JVM gets one:
Penstock has it made as it would by itself, and has none before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench, in_turn
from benchmarks.measurements.samples import Sampler
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Side
from benchmarks.sides.kafka_streams import KafkaStreams, with_commits_every
from benchmarks.sides.penstock import PenstockLocal
from benchmarks.workloads import Totals
from benchmarks.workloads.documents import document
from verification.harness import topics
from verification.harness.broker import Broker

WORKLOAD = Totals(title="start to first commit", keys=1_000, records=10_000)
SIDES = ("penstock", "kafka-streams", "spark", "quix")
LOCAL = PenstockLocal()
MADE_S = 300
WITHOUT_JVM = frozenset({LOCAL.name, "quix"})


def run(bench: Bench) -> None:
    """Start each side four times in each round: new, again, again to write the archive, and from the archive."""
    place = ("start",)
    bench.report.begin(place, title=WORKLOAD.title)
    entrants = bench.entrants(WORKLOAD.topology, place, SIDES)
    if "penstock" in entrants:
        entrants[LOCAL.name] = [LOCAL]
    with bench.broker() as broker:
        for number in range(bench.options.rounds):
            loaded = bench.load(broker, WORKLOAD)
            for name in in_turn(list(entrants), number):
                side = with_commits_every(100) if name == "kafka-streams" else entrants[name][0]
                with (
                    bench.tolerance((*place, name)),
                    bench.job(broker, side, "start", WORKLOAD.topology, loaded.sources) as job,
                ):
                    bench.report.add((*place, name), started(broker, side, job))


def started(broker: Broker, side: Side, job: Job) -> dict[str, float]:
    """The seconds to the first commit: cold, again with its state in place, and with an archive of classes if it has a JVM."""
    cache = job.state_dir.with_suffix(".cache")
    own = {"XDG_CACHE_HOME": str(cache)}
    found = {"cold_s": first_commit_s(broker, Application(side, job, own), 1)}
    found["warm_s"] = _again(broker, side, job, own)
    if side.name in WITHOUT_JVM:
        return found
    if side.name == "penstock":
        environment = {**os.environ, **own}
        subprocess.run(
            [sys.executable, "-m", "penstock.spark.archiving"],
            env=environment,
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=MADE_S,
        )
        found["with_archive_s"] = _again(broker, side, job, own)
        shutil.rmtree(cache)
        return found
    archive = job.state_dir.with_suffix(".jsa")
    try:
        _again(broker, *_with_option(side, job, f"-XX:ArchiveClassesAtExit={archive}"))
        found["with_archive_s"] = _again(broker, *_with_option(side, job, f"-XX:SharedArchiveFile={archive}"))
    finally:
        Path(archive).unlink(missing_ok=True)
    return found


def _with_option(side: Side, job: Job, option: str) -> tuple[Side, Job, Mapping[str, str]]:
    """The side with an option of its JVM: an argument where we start it, a variable where Spark does."""
    if isinstance(side, KafkaStreams):
        return replace(side, java_options=(*side.java_options, option)), job, {}
    return side, job, {"SPARK_SUBMIT_OPTS": option}


def _again(broker: Broker, side: Side, job: Job, environment: Mapping[str, str] | None = None) -> float:
    """Start it with one more record than it has committed; return the seconds until that is committed."""
    before = sum(topics.end_offsets(job.bootstrap_servers, job.sources[0]).values())
    topics.produce(job.bootstrap_servers, job.sources[0], [topics.Sent(key=b"k1", value=document(before, "k1", 0))])
    return first_commit_s(broker, Application(side, job, environment), before + 1)


def first_commit_s(broker: Broker, application: Application, records: int) -> float:
    """The seconds until as many records are committed. It then commits the rest, so that the next start has nothing to do."""
    progress = application.side.progress(application.job)
    try:
        with application:
            sampler = Sampler(application, progress, broker.pid)
            took_s = sampler.reach(records).at_s - application.started_at
            sampler.reach(sum(topics.end_offsets(application.job.bootstrap_servers, application.job.sources[0]).values()))
            return took_s
    finally:
        progress.close()
