"""The two sides: how each is started for the same job."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from verification.harness.processes import KAFKA_JARS, PARTS, ROOT, HarnessError

SOURCES = ROOT / "benchmarks" / "first"
CLASSES = PARTS / "rival"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What an application has to do, for both sides."""

    application_id: str
    topology: str
    source: str
    sink: str
    bootstrap_servers: str
    state_dir: Path


@dataclass(frozen=True, slots=True)
class Penstock:
    """Penstock with default settings."""

    name: str = "penstock"

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""
        where = [job.application_id, job.bootstrap_servers, str(job.state_dir)]
        return [sys.executable, str(SOURCES / "penstock_app.py"), job.topology, job.source, job.sink, *where]


@dataclass(frozen=True, slots=True)
class KafkaStreams:
    """Kafka Streams with the settings of the comparison, and those that were tried to make it faster."""

    name: str
    settings: Mapping[str, str]
    java_options: tuple[str, ...] = ("-XX:+UseParallelGC", "-Xmx1g")

    def command(self, job: Job) -> list[str]:
        """The command that starts it; compiles it first if necessary."""
        _compile()
        settings = {
            "application.id": job.application_id,
            "bootstrap.servers": job.bootstrap_servers,
            "state.dir": str(job.state_dir),
            "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": "2",
            "auto.offset.reset": "earliest",
            "producer.compression.type": "lz4",
            "producer.linger.ms": "5",
            **self.settings,
        }
        program = ["java", *self.java_options, "-cp", f"{CLASSES}:{KAFKA_JARS}/*", "Rival", job.topology, job.source, job.sink]
        return [*program, *(f"{name}={value}" for name, value in settings.items())]


class Side(Protocol):
    """An implementation of jobs."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""


def _compile() -> None:
    """Compile the rival unless its classes are of the current source."""
    source = SOURCES / "java" / "Rival.java"
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
