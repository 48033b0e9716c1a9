"""`SimulatedConsumer`: reads a simulated Kafka, with the methods of `confluent_kafka.Consumer` that Penstock calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from penstock import machine
from penstock.records import Partition
from penstock.testing.simulation.client import Client, Way, offsets_in
from penstock.testing.simulation.kafka import Log

_CREATE_TIME = 1


class SimulatedConsumer(Client):
    """Reads assigned partitions."""

    def __init__(self, way: Way, settings: Mapping[str, Any]) -> None:
        super().__init__(way)
        self._group = str(settings["group.id"])
        self._is_committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._at: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._ended: dict[Partition, int] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, from these offsets, and no others."""
        self._at = {(each.topic, each.partition): each.offset for each in partitions}
        self._paused, self._ended = set(), {}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Do not read these."""
        self._paused |= {(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these again."""
        self._paused -= {(each.topic, each.partition) for each in partitions}

    def seek(self, partition: TopicPartition) -> None:
        """Read a partition from this offset on."""
        self._at[partition.topic, partition.partition] = partition.offset
        self._ended.pop((partition.topic, partition.partition), None)

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record or event."""
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return the next records and events; wait until there are some, at most for a time."""
        deadline = machine.monotonic() + timeout
        while True:
            self._way.before("fetch")
            found = self._found(num_messages)
            self._way.after("fetch")
            left = deadline - machine.monotonic()
            if found or left <= 0:
                return found
            self._kafka.wait(left)

    def committed(self, partitions: Iterable[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return what the group has committed."""
        wanted = [(each.topic, each.partition) for each in partitions]
        self._way.before("offsets")
        found = self._kafka.offsets_of(self._group, wanted, is_stable=self._is_committed)
        self._way.after("offsets")
        return [
            TopicPartition(*place, OFFSET_INVALID if known is None else known[0], metadata="" if known is None else known[1])
            for place, known in found.items()
        ]

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool = True) -> Sequence[TopicPartition]:
        """Commit offsets of the group."""
        self._way.before("offset commit")
        self._kafka.commit_offsets(self._group, offsets_in(offsets))
        self._way.after("offset commit")
        return offsets

    def consumer_group_metadata(self) -> str:
        """Return what a producer needs to commit offsets of the group."""
        return self._group

    def close(self) -> None:
        """End."""
        self._at = {}

    def _found(self, most: int) -> list[Message]:
        found: list[Message] = []
        for place, at in list(self._at.items()):
            if place in self._paused:
                continue
            try:
                log = self._kafka.log(place)
            except KafkaException as error:
                found.append(Message(*place, at, error=error.args[0]))
                continue
            end = log.stable_end if self._is_committed else log.end
            if not log.begin <= at <= log.end:
                found.append(Message(*place, at, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "the offset is out of range")))
                continue
            found += self._read(place, log, end, most - len(found))
            if len(found) >= most:
                break
        return found

    def _read(self, place: Partition, log: Log, end: int, most: int) -> list[Message]:
        found: list[Message] = []
        for entry in log.between(self._at[place], end, is_committed=self._is_committed):
            if len(found) == most:
                return found
            headers: Any = list(entry.headers) or None  # typed narrower than what a consumer gives
            at = (_CREATE_TIME, entry.timestamp)
            found.append(Message(*place, entry.offset, entry.key, entry.value, headers, timestamp=at))
            self._at[place] = entry.offset + 1
        if len(found) < most and self._ended.get(place) != end:
            self._at[place] = self._ended[place] = max(end, self._at[place])
            found.append(Message(*place, end, error=KafkaError(KafkaError._PARTITION_EOF)))
        return found
