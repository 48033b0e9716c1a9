"""A reader of committed records that runs during the faults: what it has seen must still be there afterwards."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from verification.chaos.load import GHOSTS
from verification.harness.patience import is_passing
from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

Place = tuple[str, int]


class Read(NamedTuple):
    """A record as it was read."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Records = dict[Place, list[Read]]
"""By topic and partition, in order."""


class Reader:
    """Reads partitions from their beginning until its block ends. It watches the topic `echo` for payments."""

    def __init__(self, bootstrap_servers: str, places: Sequence[Place], echo: str = "") -> None:
        self._echo = echo
        self._places = places
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "chaos-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._ending = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._positions: dict[Place, int] = {}
        self.records: Records = defaultdict(list)
        self.highest = -1
        """The highest payment number seen so far."""

    def __enter__(self) -> Self:
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self._places])
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def has_reached(self, ends: Mapping[Place, int]) -> bool:
        """Whether it has read everything before these offsets; raises if it has failed."""
        if self._failure is not None:
            raise HarnessError(f"the reader itself failed: {self._failure}")
        return all(self._positions.get(place, 0) >= end for place, end in ends.items())

    def _run(self) -> None:
        asked = [TopicPartition(topic, partition) for topic, partition in self._places]
        try:
            while not self._ending.is_set():
                for message in self._consumer.consume(10_000, timeout=0.1):
                    self._take(message)
                for at in self._consumer.position(asked):
                    if at.offset >= 0:
                        self._positions[at.topic, at.partition] = at.offset
        except KafkaException as error:
            self._failure = str(error)

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if is_passing(error):
                return  # the consumer retries by itself
            raise KafkaException(error)
        topic = message.topic()
        headers = tuple(message.headers() or ())
        self.records[topic, message.partition()].append(Read(message.offset(), message.key(), message.value(), headers))
        if topic == self._echo:
            number = json.loads(message.value())["number"]
            if number < GHOSTS:
                self.highest = max(self.highest, number)
