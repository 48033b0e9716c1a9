"""Source topics on a real broker, read by one consumer: every record once, as far as it may be read, within bounds."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import TopicError
from penstock.kafka import input_reader
from penstock.kafka.clients import input_settings
from penstock.kafka.input_reader import InputReader
from penstock.records import Partition
from tests.jvm.kafka.live_topics import config, new_topic, publisher, row, rows, wait_until_settled
from verification.harness import topics
from verification.harness.processes import wait_until
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

PLENTY = 1 << 30
PATIENCE_S = 30.0


@contextmanager
def reading(
    servers: str,
    offsets: Mapping[Partition, int],
    most_records: int = PLENTY,
    most_bytes: int = PLENTY,
    **settings: Any,
) -> Iterator[InputReader]:
    reader = InputReader(input_settings(config(servers, **settings), "app"), offsets, most_records, most_bytes)
    try:
        yield reader
    finally:
        reader.close()


def read_up_to(reader: InputReader, ends: Mapping[Partition, int]) -> None:
    """Read until the partitions are read at least up to these offsets."""
    deadline = time.monotonic() + PATIENCE_S
    while any(reader.read_to[place] < end for place, end in ends.items()):
        assert time.monotonic() < deadline, (reader.read_to, ends)
        reader.wait(reader.read_to, 0.2)


def offsets_in(reader: InputReader, place: Partition, begin: int, end: int) -> list[int]:
    return [offset for _, batch in reader.between({place: (begin, end)}) for offset in batch.column("offset").to_pylist()]


def numbered(count: int, partitions: int = 1) -> list[Sent]:
    return [Sent(key=b"k", value=b"%d" % number, partition=number % partitions) for number in range(count)]


def test_reads_all_of_every_record(servers: str) -> None:
    topic = new_topic(servers, partitions=3)
    sent = [
        Sent(key=b"key", value=b"value", partition=0, timestamp=1_000),
        Sent(key=None, value=b"no key", partition=2, timestamp=2_000, headers=[("a", b"1"), ("b", None), ("a", b"")]),
        Sent(key=b"deleted", value=None, partition=0, timestamp=3_000),
        Sent(key=b"", value=b"", partition=2, timestamp=4_000),
    ]
    topics.produce(servers, topic, sent)
    start = {(topic, number): 0 for number in range(3)}
    with reading(servers, start) as reader:
        read_up_to(reader, {(topic, 0): 2, (topic, 2): 2})
        found = {
            place: [record for _, batch in reader.between({place: (0, 2)}) for record in batch.to_pylist()] for place in start
        }
    assert found[topic, 1] == []
    assert found[topic, 0] == [
        {"offset": 0, "timestamp": 1_000, "key": b"key", "value": b"value", "headers": None},
        {"offset": 1, "timestamp": 3_000, "key": b"deleted", "value": None, "headers": None},
    ]
    headers = [{"name": "a", "value": b"1"}, {"name": "b", "value": None}, {"name": "a", "value": b""}]
    assert found[topic, 2] == [
        {"offset": 0, "timestamp": 2_000, "key": None, "value": b"no key", "headers": headers},
        {"offset": 1, "timestamp": 4_000, "key": b"", "value": b"", "headers": None},
    ]


def test_returns_exactly_the_records_of_a_range(servers: str) -> None:
    topic = new_topic(servers, partitions=2)
    topics.produce(servers, topic, numbered(12_000, partitions=2))
    with reading(servers, {(topic, 0): 0, (topic, 1): 100}) as reader:
        read_up_to(reader, {(topic, 0): 6_000, (topic, 1): 6_000})
        for begin, end in [(0, 6_000), (0, 1), (1_999, 2_001), (2_000, 4_000), (17, 17), (5_999, 6_000), (5_999, 9_000)]:
            assert offsets_in(reader, (topic, 0), begin, end) == list(range(begin, min(end, 6_000)))
        assert offsets_in(reader, (topic, 1), 0, 103) == [100, 101, 102]
        both = [place for place, _ in reader.between({(topic, 1): (100, 101), (topic, 0): (5, 6)})]
        assert both == [(topic, 1), (topic, 0)]


def test_waits_for_records_but_no_longer_than_it_may(servers: str) -> None:
    topic = new_topic(servers)
    with reading(servers, {(topic, 0): 0}) as reader:
        began = time.monotonic()
        assert reader.wait({(topic, 0): 0}, 0.3) == {(topic, 0): 0}
        assert time.monotonic() - began >= 0.3
        topics.produce(servers, topic, numbered(1))
        assert reader.wait({(topic, 0): 0}, PATIENCE_S) == {(topic, 0): 1}
        assert reader.wait({(topic, 0): 0}, 0) == {(topic, 0): 1}


class TestTransactions:
    @pytest.mark.parametrize("is_committed", [True, False])
    def test_what_ends_a_transaction_is_passed(self, servers: str, application: str, is_committed: bool) -> None:
        """A bounded run would never reach its end otherwise."""
        topic = new_topic(servers)
        with publisher(config(servers), application, topic) as target:
            for last in (True, is_committed):
                target.begin()
                target.produce(rows(b"a", b"b"))
                target._producer.client.flush()
                target.send_offsets([])
                if last:
                    assert target.commit()
                else:
                    target.abort()
            wait_until_settled(servers, topic)
        assert topics.end_offsets(servers, topic) == {0: 6}
        for pause_s in (0, 0.5):  # with a pause, the records and the end of the partition are taken over together
            with reading(servers, {(topic, 0): 0}) as reader:
                time.sleep(pause_s)
                read_up_to(reader, {(topic, 0): 6})
                assert offsets_in(reader, (topic, 0), 0, 6) == ([0, 1, 3, 4] if is_committed else [0, 1])

    def test_an_open_transaction_is_not_passed(self, servers: str, application: str) -> None:
        topic = new_topic(servers)
        topics.produce(servers, topic, numbered(2))
        with publisher(config(servers), application, topic) as target, reading(servers, {(topic, 0): 0}) as reader:
            target.begin()
            target.produce(rows(row(b"open")))
            target._producer.client.flush()
            topics.produce(servers, topic, numbered(3))
            read_up_to(reader, {(topic, 0): 2})
            assert reader.wait({(topic, 0): 2}, 1.0) == {(topic, 0): 2}
            target.send_offsets([])
            assert target.commit()
            read_up_to(reader, {(topic, 0): 7})
            assert offsets_in(reader, (topic, 0), 0, 7) == [0, 1, 2, 3, 4, 5]

    def test_at_least_once_reads_what_is_not_committed_yet(self, servers: str, application: str) -> None:
        topic = new_topic(servers)
        with publisher(config(servers), application, topic) as target:
            target.begin()
            target.produce(rows(row(b"open")))
            target._producer.client.flush()
            with reading(servers, {(topic, 0): 0}, guarantee="at_least_once") as reader:
                read_up_to(reader, {(topic, 0): 1})
                assert offsets_in(reader, (topic, 0), 0, 9) == [0]
            target.abort()


class TestBounds:
    def test_keeps_about_as_many_records_as_it_may(self, servers: str) -> None:
        topic = new_topic(servers)
        topics.produce(servers, topic, numbered(10_000))
        place = (topic, 0)
        with reading(servers, {place: 0}, most_records=3_000) as reader:
            read_up_to(reader, {place: 3_000})
            for _ in range(20):
                reader.fill()
                time.sleep(0.02)
            kept = reader.read_to[place]
            assert 3_000 <= kept <= 5_000
            reader.release({place: kept})
            read_up_to(reader, {place: kept + 3_000})
            assert offsets_in(reader, place, 0, 10_000)[0] == kept

    def test_keeps_about_as_many_bytes_as_it_may(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(input_reader, "_PIECE", 50)
        topic = new_topic(servers)
        topics.produce(servers, topic, [Sent(value=bytes(10_000))] * 600)
        place = (topic, 0)
        with reading(servers, {place: 0}, most_bytes=3_000_000) as reader:
            read_up_to(reader, {place: 250})
            for _ in range(20):
                reader.fill()
                time.sleep(0.02)
            assert 250 < reader.read_to[place] <= 350
            reader.release({place: reader.read_to[place]})
            read_up_to(reader, {place: 600})

    def test_records_are_freed_when_all_of_a_piece_are_taken(self, servers: str) -> None:
        topic = new_topic(servers)
        topics.produce(servers, topic, numbered(100))
        place = (topic, 0)
        with reading(servers, {place: 0}) as reader:
            read_up_to(reader, {place: 100})
            reader.release({place: 50})
            assert offsets_in(reader, place, 50, 100) == list(range(50, 100))
            reader.release({place: 100})
            assert offsets_in(reader, place, 0, 100) == []
            assert [(kept.records, kept.size) for kept in reader._kept.values()] == [(0, 0)]


def test_an_idle_reader_reads_nothing_more_and_loses_nothing(servers: str) -> None:
    name = new_topic(servers, "idle", partitions=2)
    topics.produce(servers, name, numbered(1_000, 2))
    places = [(name, 0), (name, 1)]
    with reading(servers, dict.fromkeys(places, 0), most_records=300) as reader:
        begin = dict.fromkeys(places, 0)
        reader.wait(begin, PATIENCE_S)
        reader.idle(0.0)
        kept = reader.read_to
        topics.produce(servers, name, numbered(1_000, 2))
        for _ in range(5):
            reader.idle(0.2)
        assert sum(reader.read_to.values()) <= sum(kept.values()) + 5, "each call may find one record that was on its way"
        seen: dict[Partition, list[int]] = {place: [] for place in places}
        while any(len(offsets) < 1_000 for offsets in seen.values()):
            ends = reader.wait(begin, PATIENCE_S)
            assert ends != begin
            for place in places:
                seen[place] += offsets_in(reader, place, begin[place], ends[place])
            begin = ends
            reader.release(ends)
        assert seen == {place: list(range(1_000)) for place in places}


def test_reads_on_from_an_offset_that_others_have_read_to(servers: str) -> None:
    topic = new_topic(servers, partitions=2)
    topics.produce(servers, topic, numbered(20_000, partitions=2))
    with reading(servers, {(topic, 0): 0, (topic, 1): 0}, most_records=2_000) as reader:
        reader.wait({(topic, 0): 0, (topic, 1): 0}, PATIENCE_S)
        reader.release({(topic, 0): 9_000, (topic, 1): 9_990})
        assert reader.read_to == {(topic, 0): 9_000, (topic, 1): 9_990}
        read_up_to(reader, {(topic, 0): 10_000, (topic, 1): 10_000})
        assert offsets_in(reader, (topic, 0), 9_000, 10_000) == list(range(9_000, 10_000))
        assert offsets_in(reader, (topic, 1), 0, 10_000) == list(range(9_990, 10_000))


class TestLostInput:
    def test_an_offset_that_was_deleted_is_an_error_that_names_the_partition(self, servers: str, admin: AdminClient) -> None:
        topic = new_topic(servers, partitions=2)
        topics.produce(servers, topic, numbered(20, partitions=2))
        admin.delete_records([TopicPartition(topic, 1, 5)])[TopicPartition(topic, 1)].result()
        with (
            reading(servers, {(topic, 0): 0, (topic, 1): 2}) as reader,
            pytest.raises(TopicError, match=f"Cannot read {topic}-1: the next record is gone"),
        ):
            read_up_to(reader, {(topic, 1): 10})
        with reading(servers, {(topic, 0): 0, (topic, 1): 5}) as reader:
            read_up_to(reader, {(topic, 0): 10, (topic, 1): 10})

    def test_an_offset_beyond_the_end_is_an_error(self, servers: str) -> None:
        topic = new_topic(servers)
        topics.produce(servers, topic, numbered(3))
        with (
            reading(servers, {(topic, 0): 10}) as reader,
            pytest.raises(TopicError, match=f"Cannot read {topic}-0: the next record is gone"),
        ):
            read_up_to(reader, {(topic, 0): 11})

    def test_a_deleted_topic_has_no_more_records(self, servers: str) -> None:
        """It is no error here: the client does not tell it from a topic without a leader. `TopicWatch` notices it."""
        topic = new_topic(servers)
        topics.produce(servers, topic, numbered(3))
        with reading(servers, {(topic, 0): 0}) as reader:
            read_up_to(reader, {(topic, 0): 3})
            topics.delete(servers, topic)
            assert reader.wait({(topic, 0): 3}, 3.0) == {(topic, 0): 3}
            assert offsets_in(reader, (topic, 0), 0, 3) == [0, 1, 2]


@contextmanager
def filled_all_the_time(reader: InputReader) -> Iterator[None]:
    """Take over prefetched records in another thread, as it happens during an epoch."""
    ended = threading.Event()

    def fill() -> None:
        while not ended.wait(0.001):
            reader.fill()

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        yield
    finally:
        ended.set()
        filling.join()


def _await(reader: InputReader, place: Partition, offset: int) -> None:
    """Wait until another thread has read up to an offset."""
    wait_until(f"offset {offset} is read", lambda: reader.read_to[place] >= offset, PATIENCE_S, every_s=0)


def test_a_jump_while_records_are_taken_over_reads_none_twice(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_reader, "_PIECE", 10)
    topic = new_topic(servers)
    topics.produce(servers, topic, numbered(30_000))
    place = (topic, 0)
    with reading(servers, {place: 0}, most_records=400) as reader, filled_all_the_time(reader):
        while reader.read_to[place] < 28_000:
            jump = reader.read_to[place] + 40
            reader.release({place: jump})
            _await(reader, place, jump + 100)
            assert offsets_in(reader, place, jump, jump + 100) == list(range(jump, jump + 100))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_order_of_calls_each_record_is_read_once(servers: str, seed: int) -> None:
    """Reads, releases and jumps in random order, compared with a list."""
    chance = random.Random(seed)
    topic = new_topic(servers, partitions=2)
    places = [(topic, 0), (topic, 1)]
    ends = dict.fromkeys(places, 0)
    taken = dict.fromkeys(places, 0)
    with reading(servers, dict(taken), most_records=500) as reader:
        for _ in range(40):
            step = chance.choice(["produce", "wait", "fill", "take", "take", "jump"])
            if step == "produce":
                count = chance.randrange(1, 300)
                topics.produce(servers, topic, [Sent(value=b"v", partition=number % 2) for number in range(count)])
                ends[places[0]] += (count + 1) // 2
                ends[places[1]] += count // 2
            elif step == "wait":
                found = reader.wait(taken, chance.choice([0, 0.05]))
                assert all(taken[place] <= found[place] <= ends[place] for place in places)
            elif step == "fill":
                reader.fill()
            else:
                place = chance.choice(places)
                end = chance.randint(taken[place], reader.read_to[place] if step == "take" else ends[place])
                if step == "take":
                    assert offsets_in(reader, place, taken[place], end) == list(range(taken[place], end))
                taken[place] = end
                reader.release(taken)
        wait_until("everything is read", lambda: _drained(reader, taken, ends), PATIENCE_S, every_s=0)
    assert taken == ends


def _drained(reader: InputReader, taken: dict[Partition, int], ends: Mapping[Partition, int]) -> bool:
    """Take what was read, which must be complete; return whether that is all."""
    for place, end in reader.wait(taken, 0.2).items():
        assert offsets_in(reader, place, taken[place], end) == list(range(taken[place], end))
        taken[place] = end
    reader.release(taken)
    return taken == ends


def test_a_partition_that_the_caller_waits_for_is_read_although_others_fill_the_room(servers: str) -> None:
    topic = new_topic(servers, partitions=2)
    other = new_topic(servers, partitions=1)
    topics.produce(servers, topic, numbered(40_000, 2))
    topics.produce(servers, other, numbered(100))
    places = {(topic, 0): 0, (topic, 1): 0, (other, 0): 0}
    with reading(servers, places, most_records=3_000) as reader:
        read_up_to(reader, {(other, 0): 100})  # the caller uses nothing, so all that it gets is from reading on
        kept = sum(reader.read_to.values())
        assert kept <= 2 * 3_000 + 3 * 2_000  # twice as much, and for each partition a piece more
        reader.release({(topic, 0): reader.read_to[topic, 0], (topic, 1): reader.read_to[topic, 1]})
        reader.wait(reader.read_to, PATIENCE_S)
        assert sum(reader.read_to.values()) > kept  # the others are read on
        read_to = reader.read_to[topic, 0]
    assert read_to < 20_000
