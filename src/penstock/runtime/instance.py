"""`Instance`: one start of an application as a value: what runs, with which settings, and where it reports."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from penstock.config import Config
from penstock.epochs.program import Program
from penstock.handlers import ErrorHandlers
from penstock.history.truth import Truth, program_of
from penstock.kafka.topics import Topics
from penstock.observation import Recorder
from penstock.runtime.memory import default_epoch_bytes
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
