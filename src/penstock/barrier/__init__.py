"""The commit of an epoch as a small state machine over a port; knows neither Kafka nor Spark."""

from penstock.barrier.barrier import Barrier, Phase
from penstock.barrier.metadata import CommitMetadata
from penstock.barrier.ports import Publisher, SourceOffset

__all__ = ["Barrier", "CommitMetadata", "Phase", "Publisher", "SourceOffset"]
