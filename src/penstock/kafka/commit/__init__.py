"""The commit of an epoch as a small state machine over a port; knows neither Kafka nor Spark."""

from penstock.kafka.commit.barrier import Barrier, Phase
from penstock.kafka.commit.metadata import CommitMetadata
from penstock.kafka.commit.ports import Publisher, SourceOffset

__all__ = ["Barrier", "CommitMetadata", "Phase", "Publisher", "SourceOffset"]
