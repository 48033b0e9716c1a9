"""The commit of an epoch as a small state machine over a port; knows neither Kafka nor Spark."""

from penstock.kafka.commit.committer import Committer, Phase
from penstock.kafka.commit.metadata import CommitMetadata
from penstock.kafka.commit.ports import Publisher, SourceOffset

__all__ = ["CommitMetadata", "Committer", "Phase", "Publisher", "SourceOffset"]
