"""What Kafka has of an application at this moment, read as committed and converted to the checker's types."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient

from verification.chaos.checker import Found, Letter, Output
from verification.chaos.payments import STORES, Topics
from verification.chaos.reader import Place, Read, Reader, Records
from verification.harness import topics as kafka
from verification.harness.patience import ends, insist
from verification.harness.processes import wait_until

TIMEOUT_S = 30
READ_S = 120


class Observer:
    """Reads the topics and the group of one application."""

    def __init__(self, bootstrap_servers: str, topics: Topics, stores: Sequence[str] = STORES) -> None:
        self._servers = bootstrap_servers
        self._topics = topics
        self._changelogs = {store: topics.changelog(store) for store in stores}
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        group = {"group.id": topics.application_id, "isolation.level": "read_uncommitted"}
        self._group = Consumer({"bootstrap.servers": bootstrap_servers, "log_level": 0, **group})

    def found(self) -> Found:
        """Outputs, tables and offsets. They are consistent only while nothing is being committed."""
        topics = self._topics
        read = self._read(*topics.outputs, *self._changelogs.values())
        found = {
            "echo": outputs(read, topics.echo, json.loads),
            "sums": outputs(read, topics.sums, json.loads),
            "groups": outputs(read, topics.groups, json.loads),
            "windows": outputs(read, topics.windows, long),
        }
        tables = {store: _table(read, topic, *_FORMS[store]) for store, topic in self._changelogs.items()}
        return Found(found, tables, self.offsets())

    def offsets(self) -> dict[int, int]:
        """The offsets that the group has committed, whatever transaction is still open.

        Uses a consumer: librdkafka's admin client crashes the process if the coordinator returns an error.
        """
        partitions = self._admin.list_topics(self._topics.input, timeout=TIMEOUT_S).topics[self._topics.input].partitions
        asked = [TopicPartition(self._topics.input, partition) for partition in partitions]
        found = insist(lambda: self._group.committed(asked, timeout=TIMEOUT_S))
        return {at.partition: at.offset for at in found if at.offset >= 0}

    def input_ends(self) -> dict[int, int]:
        """The ends of the input for readers of committed records."""
        return {partition: end for (_, partition), end in self._ends([self._topics.input]).items()}

    def output_ends(self) -> dict[Place, int]:
        """The ends of the outputs for readers of committed records."""
        return self._ends(self._topics.outputs)

    def records(self) -> Records:
        """All committed records of the outputs."""
        return self._read(*self._topics.outputs)

    def dead_letters(self) -> list[Letter]:
        """The dead letters, with the positions in their headers."""
        return [letter(record) for records in self.raw_dead_letters().values() for record in records]

    def raw_dead_letters(self) -> Records:
        """The dead letters as they are in their topic."""
        return self._read(self._topics.dead_letters)

    def input(self) -> Records:
        """All committed records of the input."""
        return self._read(self._topics.input)

    def open_transactions(self) -> set[str]:
        """The transactional ids that are neither committed nor aborted, of any application."""
        return kafka.open_transactions(self._servers)

    def unstable(self) -> dict[str, tuple[int, int]]:
        """Partitions where an open transaction blocks readers of committed records: where they stop, and the end."""
        topics = (self._topics.input, *self._topics.outputs, *self._changelogs.values())
        stable, ends = self._ends(topics), self._ends(topics, IsolationLevel.READ_UNCOMMITTED)
        return {f"{place[0]}-{place[1]}": (stable[place], end) for place, end in ends.items() if stable[place] != end}

    def _ends(self, topics: Iterable[str], level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[Place, int]:
        known = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return ends(self._admin, [(topic, partition) for topic in topics for partition in known[topic].partitions], level)

    def _read(self, *topics: str) -> Records:
        """All committed records of some topics, in order."""
        ends = {place: end for place, end in sorted(self._ends(topics).items()) if end > 0}
        with Reader(self._servers, list(ends)) as reader:
            wait_until("everything is read", lambda: reader.has_reached(ends), READ_S, every_s=0.02)
        return {place: reader.records[place] for place in ends if place in reader.records}


def outputs(records: Records, topic: str, decode: Callable[[bytes], Any]) -> list[Output]:
    """The records of an output topic."""
    found = []
    for (name, partition), reads in records.items():
        for read in reads if name == topic else ():
            value = decode(read.value or b"")
            number = value["number"] if isinstance(value, dict) else value
            found.append(Output(partition, read.offset, (read.key or b"").decode(), number, value))
    return found


def _table(records: Records, topic: str, key: Callable[[bytes], str], value: Callable[[bytes], Any]) -> dict[str, Any]:
    """The content of a changelog: the last value of each key."""
    last = {read.key or b"": read.value for (name, _), reads in records.items() if name == topic for read in reads}
    return {key(raw): value(data) for raw, data in last.items() if data is not None}


def long(data: bytes) -> int:
    """Eight bytes as a number."""
    (number,) = struct.unpack(">q", data)
    return int(number)


def _windowed_key(raw: bytes) -> str:
    """The key, then the window's start in eight bytes and a number in four, as Kafka Streams writes it."""
    return f"{raw[:-12].decode()}@{long(raw[-12:-4])}"


_TIMESTAMP = 8
_FORMS: Mapping[str, tuple[Callable[[bytes], str], Callable[[bytes], Any]]] = {
    "sums": (bytes.decode, lambda data: json.loads(data[_TIMESTAMP:])),
    "groups": (bytes.decode, lambda data: json.loads(data[_TIMESTAMP:])),
    "windows": (_windowed_key, lambda data: long(data[_TIMESTAMP:])),
    "ledger": (bytes.decode, long),
}
"""How the rows of each changelog are decoded: key and value. Values of tables begin with their timestamp."""


def letter(read: Read) -> Letter:
    """A dead letter, with the position in its headers."""
    headers = dict(read.headers)
    partition, offset = headers["__streams.errors.partition"] or b"", headers["__streams.errors.offset"] or b""
    return Letter(int(partition), int(offset), read.key, read.value)
