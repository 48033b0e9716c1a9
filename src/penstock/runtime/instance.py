"""`Instance`: one start of an application as a value: what runs, with which settings, and where it reports."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.config import Config
from penstock.epochs.program import Program
from penstock.handlers import ErrorHandlers
from penstock.history.truth import Truth, program_of
from penstock.kafka.topics import Topics
from penstock.observation import Recorder
from penstock.topology import Topology


@dataclass(frozen=True)
class Instance:
    """A start; its incarnation is the only one that may commit."""

    topology: Topology
    handlers: ErrorHandlers
    config: Config
    program: Program
    recorder: Recorder

    @classmethod
    def of(cls, application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, recorder: Recorder) -> Instance:
        """Return a new instance of an application."""
        program = program_of(application_id, topology, handlers, config, incarnation=uuid.uuid4().hex)
        return cls(topology, handlers, config, program, recorder)

    def with_settings(self, config: Config) -> Instance:
        """Return the same instance with other settings."""
        application_id, incarnation = self.program.application_id, self.program.incarnation
        return replace(self, config=config, program=program_of(application_id, self.topology, self.handlers, config, incarnation))

    @property
    def application_id(self) -> str:
        """The id of the application."""
        return self.program.application_id

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every log line of this start."""
        program = self.program
        return {
            "application": program.application_id,
            "topology": program.plan.fingerprint,
            "incarnation": program.incarnation,
        }

    @property
    def most_epoch_bytes(self) -> int:
        """About how many bytes of records an epoch takes at most."""
        return self.config.max_epoch_bytes or default_epoch_bytes(self.config.spark)

    @property
    def patience_s(self) -> float:
        """How long a job may take: less than an epoch, so that there is time left to retry it with fewer records."""
        config = self.config
        most = min(config.epoch_timeout_ms, config.transaction_timeout_ms) if config.executors_write else config.epoch_timeout_ms
        return 0.8 * most / 1_000

    def truth(self, topics: Topics) -> Truth:
        """Return the requests by which this start reads what earlier ones have left in Kafka."""
        return Truth(self.topology, self.program, self.config, topics)


SPARK_MEMORY = 1 << 30
"""Spark's default for `spark.driver.memory`."""

PART_OF_SPARK = 8
"""The JVM holds rows several times: as Arrow in direct memory, which is as large as the heap, and as results of tasks."""

PART_OF_MACHINE = 64
"""In Python's workers a record is several times as large as in Arrow; and the machine needs memory for other things."""

LEAST, MOST = 8 << 20, 1 << 30

_UNITS = {"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgtb]?)b?", re.IGNORECASE)
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def default_epoch_bytes(spark: Mapping[str, str], machine_bytes: int | None = None) -> int:
    """Return the default of `max_epoch_bytes` for these settings of Spark, on this machine or one of `machine_bytes`.

    Example:
        >>> default_epoch_bytes({"spark.driver.memory": "2g"}, machine_bytes=64 << 30) >> 20
        256
        >>> default_epoch_bytes({}, machine_bytes=4 << 30) >> 20
        64
    """
    machine = machine_memory() if machine_bytes is None else machine_bytes
    found = min(_bytes(spark.get("spark.driver.memory", "")) // PART_OF_SPARK, machine // PART_OF_MACHINE)
    return max(LEAST, min(MOST, found))


def machine_memory(limits: tuple[Path, ...] = _LIMITS) -> int:
    """Return the memory of the machine, or the container's limit if that is lower."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        text = path.read_text().strip() if path.exists() else ""
        if text.isdecimal():
            found = min(found, int(text))
    return found


def _bytes(text: str) -> int:
    """Parse a size in Spark's notation (`512m`, `2g`); return Spark's default if it is missing or invalid."""
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2].lower()] if found else SPARK_MEMORY
