"""Several writers in one transaction, on a real broker; `make cluster` has more faults."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.errors import FencedError, PenstockError, TopicError
from penstock.kafka.writers.publisher import SharedPublisher, Writing
from penstock.kafka.writers.writer import Writer
from penstock.records import Partition
from tests.jvm.kafka.live_topics import at, config, new_topic, offset_of, row, rows, values
from verification.harness import topics

pytestmark = pytest.mark.jvm


class Writers:
    """A driver, and writers with connections of their own."""

    def __init__(self, servers: str, application: str, topic: str, count: int = 2) -> None:
        self.servers, self.topic = servers, topic
        self.writing = Writing.of(config(servers), [])
        self.driver = SharedPublisher(self.writing, application, application, [topic], 60_000)
        self.driver.start()
        each = [self.writing.writer() for _ in range(count)]
        self.closers = [self.driver.close, *(brokers.close for brokers, _ in each)]
        self.each: list[Writer] = [writer for _, writer in each]

    def write(self, *texts: bytes) -> None:
        """Let each writer write a text to its own partition, in a new transaction."""
        shared = self.driver.transactions.begin()
        for number, (writer, text) in enumerate(zip(self.each, texts, strict=True)):
            own: dict[Partition, int] = {(self.topic, number): 1}
            writer.write(shared.identity, {(self.topic, number): table(text)}, shared.opened)
            self.driver.transactions.wrote(own)

    def commit(self, offset: int) -> None:
        self.driver.begin()
        self.driver.send_offsets([at(offset)])
        assert self.driver.commit()


def table(*texts: bytes) -> pa.Table:
    return pa.Table.from_batches([rows(*texts)])


@pytest.fixture
def writers(servers: str, application: str) -> Iterator[Writers]:
    made = Writers(servers, application, new_topic(servers, partitions=2))
    yield made
    for close in made.closers:
        close()


def test_rows_of_all_writers_become_visible_with_the_commit(writers: Writers, application: str) -> None:
    writers.write(b"one", b"two")
    assert topics.read(writers.servers, writers.topic) == []
    writers.commit(42)
    assert set(values(writers.servers, writers.topic)) == {b"one", b"two"}
    assert offset_of(writers.servers, application) == (42, "m")
    writers.write(b"three", b"four")
    writers.commit(43)
    assert set(values(writers.servers, writers.topic)) == {b"one", b"two", b"three", b"four"}


def test_a_transaction_that_begins_anew_drops_what_was_written(writers: Writers) -> None:
    writers.write(b"wrong", b"wrong, too")
    writers.write(b"one", b"two")
    writers.commit(1)
    assert set(values(writers.servers, writers.topic)) == {b"one", b"two"}


def test_a_writer_that_is_late_is_refused(writers: Writers) -> None:
    late = writers.driver.transactions.begin()
    writers.write(b"one", b"two")
    with pytest.raises(PenstockError):
        writers.each[0].write(late.identity, {(writers.topic, 0): table(b"late")}, late.opened)
    writers.commit(1)
    with pytest.raises(PenstockError):
        writers.each[0].write(late.identity, {(writers.topic, 0): table(b"late")}, {(writers.topic, 0)})
    assert set(values(writers.servers, writers.topic)) == {b"one", b"two"}


def test_the_driver_writes_after_the_writers(writers: Writers) -> None:
    writers.write(b"one", b"two")
    other = new_topic(writers.servers, partitions=3)
    writers.driver.produce(rows(row(b"after", partition=0), row(b"chosen", name=-1, topic=other, partition=None)))
    writers.commit(1)
    assert set(values(writers.servers, writers.topic)) == {b"one", b"two", b"after"}
    records = [record.value for record in topics.read(writers.servers, writers.topic) if record.partition == 0]
    assert records == [b"one", b"after"]
    assert values(writers.servers, other) == [b"chosen"]


def test_the_driver_sends_windowed_keys_where_kafka_streams_would(servers: str, application: str) -> None:
    topic = new_topic(servers, partitions=10)
    driver = SharedPublisher(Writing.of(config(servers), []), application, application, [topic], 60_000)
    driver.start()
    driver.begin()
    chosen = {b"ann": 4, b"bob": 8}  # by its WindowedStreamPartitioner
    driver.produce(rows(*(row(b"", key=key + bytes(8), partition=-8) for key in chosen)))
    driver.send_offsets([at(1)])
    assert driver.commit()
    driver.close()
    assert {record.key: record.partition for record in topics.read(servers, topic)} == {
        key + bytes(8): partition for key, partition in chosen.items()
    }


def test_a_new_driver_fences_the_old_one(writers: Writers, application: str) -> None:
    writers.write(b"one", b"two")
    successor = Writers(writers.servers, application, writers.topic)
    writers.closers += successor.closers
    with pytest.raises(FencedError, match="another instance"):
        writers.commit(1)
    successor.write(b"three", b"four")
    successor.commit(2)
    assert set(values(writers.servers, writers.topic)) == {b"three", b"four"}
    assert offset_of(writers.servers, application) == (2, "m")


def test_a_topic_that_does_not_exist_is_named(servers: str, application: str) -> None:
    made = Writers(servers, application, "nowhere-to-be-found", count=1)
    made.driver._brokers.patience_s = 2
    try:
        with pytest.raises(TopicError, match="nowhere-to-be-found"):
            made.write(b"one")
    finally:
        for close in made.closers:
            close()
