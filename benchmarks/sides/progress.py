"""Progress by what is committed: a group's offsets, or the batches in a Spark checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.sides.job import Job
from verification.harness import patience

NO_COORDINATOR_YET = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE}
)
MARKER = 1
"""The offset of the last transaction's marker, which a group need not have read."""


class GroupProgress:
    """Progress by the offsets of the application's consumer group."""

    def __init__(self, job: Job, internal: Sequence[str] = ()) -> None:
        # Offsets of an open transaction do not count: by default librdkafka requests stable ones.
        settings = {"bootstrap.servers": job.bootstrap_servers, "group.id": job.application_id, "enable.auto.commit": False}
        self._consumer = Consumer(settings)
        self._admin = AdminClient({"bootstrap.servers": job.bootstrap_servers, "log_level": 4})
        self._job = job
        self._internal = internal
        self._measured = [TopicPartition(job.sources[0], partition) for partition in range(job.partitions)]

    def records(self) -> int:
        """The current number; none while the broker is still locating the group."""
        return sum(self._committed(self._measured).values())

    def is_settled(self) -> bool:
        """Whether the group has read all its sources and all internal topics that pass records on."""
        known = self._admin.list_topics(timeout=patience.TIMEOUT_S).topics
        names = [name for name in known if name in self._job.sources or self._is_internal(name)]
        places = [TopicPartition(name, partition) for name in names for partition in known[name].partitions]
        committed = self._committed(places)
        ends = patience.ends(self._admin, [(at.topic, at.partition) for at in places])
        return all(end - committed.get(at, 0) <= (0 if at[0] in self._job.sources else MARKER) for at, end in ends.items())

    def _is_internal(self, name: str) -> bool:
        return self._job.application_id in name and any(part in name for part in self._internal)

    def _committed(self, places: list[TopicPartition]) -> dict[tuple[str, int], int]:
        try:
            found = self._consumer.committed(places, timeout=patience.TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in NO_COORDINATOR_YET:
                return {}
            raise
        return {(at.topic, at.partition): max(0, at.offset) for at in found}

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


class CheckpointProgress:
    """Progress by the batches that a Spark query has committed to its checkpoint."""

    def __init__(self, job: Job, checkpoint: Path, *, emits_late: bool) -> None:
        self._topic = job.sources[0]
        self._checkpoint = checkpoint
        self._emits_late = emits_late

    def records(self) -> int:
        """The end offsets of the last committed batch."""
        return self._records_of(self._last())

    def is_settled(self) -> bool:
        """A query that emits what the watermark has closed needs one more batch, without records."""
        last = self._last()
        return not self._emits_late or (last > 0 and self._records_of(last) == self._records_of(last - 1))

    def close(self) -> None:
        """There is nothing to close."""

    def _last(self) -> int:
        commits = self._checkpoint / "commits"
        batches = [int(file.name) for file in commits.iterdir() if file.name.isdigit()] if commits.exists() else []
        return max(batches, default=-1)

    def _records_of(self, batch: int) -> int:
        """The offsets log has a version, metadata, and then a line for each source."""
        if batch < 0:
            return 0
        lines = (self._checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
        offsets = [json.loads(line) for line in lines if line.startswith("{")]
        return sum(sum(by_topic.get(self._topic, {}).values()) for by_topic in offsets)
