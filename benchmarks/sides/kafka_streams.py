"""Kafka Streams, with four settings to choose from. Its program is compiled when it is first needed."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.sides.job import Job
from benchmarks.sides.penstock import APPLICATIONS
from benchmarks.sides.progress import GroupProgress
from verification.harness.processes import KAFKA_JARS, PARTS, ROOT, HarnessError

CLASSES = PARTS / "rival"
COMMIT_INTERVALS_MS = (100, 1000)
LARGER = {  # than the defaults: a cache for all keys, and larger requests to and from the broker
    "statestore.cache.max.bytes": str(256 << 20),
    "max.poll.records": "5000",
    "buffered.records.per.partition": "5000",
    "producer.batch.size": str(256 << 10),
}


@dataclass(frozen=True, slots=True)
class KafkaStreams:
    """Exactly once, one thread per core, and the settings that were tried to make it faster."""

    settings: str = "100ms"
    overrides: Mapping[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ("-XX:+UseParallelGC", "-Xmx1g")
    name: str = "kafka-streams"
    share: float = 1.0
    keeps_late: bool = False
    follows_tables: bool = True

    def excuse(self, topology: str) -> str | None:
        """It runs all of them."""
        return None

    def command(self, job: Job) -> list[str]:
        """The command that starts it; compiles it first if necessary."""
        _compile()
        settings = {
            "application.id": job.application_id,
            "bootstrap.servers": job.bootstrap_servers,
            "state.dir": str(job.state_dir),
            "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": str(job.cores),
            "auto.offset.reset": "earliest",
            "producer.compression.type": "lz4",
            "producer.linger.ms": "5",
            # A process that was killed is replaced at once, not after its session has timed out.
            "consumer.group.instance.id": job.application_id,
            **self.overrides,
        }
        program = ["java", *self.java_options, "-cp", f"{CLASSES}:{KAFKA_JARS}/*", "Rival", job.topology]
        return [*program, ",".join(job.sources), job.sink, *(f"{name}={value}" for name, value in settings.items())]

    def environment(self, job: Job) -> Mapping[str, str]:
        """It needs none."""
        return {}

    def progress(self, job: Job) -> GroupProgress:
        """What is in a repartition or subscription topic is not done yet."""
        return GroupProgress(job, internal=("-repartition", "-topic"))

    def epoch_phases(self, job: Job) -> Mapping[str, float]:
        """It has no epochs."""
        return {}

    def runs_on(self, job: Job) -> Mapping[str, Any]:
        """It is a rival."""
        return {}


def with_commits_every(interval_ms: int, *, is_larger: bool = False) -> KafkaStreams:
    """Kafka Streams with this interval; with caches and requests larger than by default, or not."""
    overrides = {"commit.interval.ms": str(interval_ms), **(LARGER if is_larger else {})}
    return KafkaStreams(f"{interval_ms}ms{'-larger' if is_larger else ''}", overrides)


def candidates() -> list[KafkaStreams]:
    """The four settings."""
    return [with_commits_every(interval, is_larger=larger) for larger in (False, True) for interval in COMMIT_INTERVALS_MS]


def _compile() -> None:
    """Compile the program unless its classes are of the current source."""
    source = APPLICATIONS / "Rival.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    stamp = CLASSES / "sources.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return
    if not any(KAFKA_JARS.glob("kafka-streams-*.jar")):
        raise HarnessError(f"no Kafka Streams in {KAFKA_JARS.relative_to(ROOT)}; run `make setup`")
    CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-cp", f"{KAFKA_JARS}/*", "-d", str(CLASSES), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the JDK, as found on the path
    if done.returncode != 0:
        raise HarnessError(f"javac failed:\n{done.stderr}")
    stamp.write_text(digest)
