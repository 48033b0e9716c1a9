"""Changelogs on a real broker, read to their end, even if that is a control record or a gap."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.config import Config
from penstock.errors import BrokerError, StateError
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings, open_admin
from penstock.kafka.topics import Topics
from tests.jvm.kafka.live_topics import config, new_topic, publisher, row, rows, wait_until_settled
from verification.harness import topics
from verification.harness.processes import free_port
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

Found = dict[int, list[tuple[bytes, bytes | None]]]


def ends_of(servers: str, topic: str, partitions: int) -> dict[tuple[str, int], int]:
    wait_until_settled(servers, topic)
    return Topics(open_admin(config(servers)), 20_000).end_offsets([(topic, number) for number in range(partitions)])


def read_all(
    servers: str, ends: dict[tuple[str, int], int], positions: dict[tuple[str, int], int] | None = None, piece: int = 50_000
) -> Found:
    found: Found = {}
    for _, partition, keys, values in read(consumer_settings(config(servers), "app"), positions or {}, ends, 20_000, piece):
        found.setdefault(partition, []).extend(zip(keys, values, strict=True))
    return found


def test_reads_across_control_records_and_aborted_transactions(servers: str, application: str) -> None:
    topic = new_topic(servers, partitions=4)
    with publisher(config(servers), application, topic) as target:
        for epoch, is_committed in enumerate([True, False, True, False, False]):
            target.begin()
            target.produce(rows(*(row(b"%d" % epoch, key=b"%d" % number, partition=number) for number in (0, 1))))
            target.produce(rows(row(None, key=b"gone", partition=0)))
            target.send_offsets([])
            target._producer.client.flush()
            if is_committed:
                assert target.commit()
            else:
                target.abort()
        target.begin()
        target.produce(rows(row(b"open", partition=2)))
        target._producer.client.flush()
        target.abort()
    ends = ends_of(servers, topic, 4)
    assert (ends[topic, 2], ends[topic, 3]) == (2, 0)
    expected = {0: [(b"0", b"0"), (b"gone", None), (b"0", b"2"), (b"gone", None)], 1: [(b"1", b"0"), (b"1", b"2")]}
    assert read_all(servers, ends) == expected
    assert read_all(servers, ends, piece=1) == expected


def test_reads_from_a_position_up_to_the_given_end(servers: str) -> None:
    topic = new_topic(servers, partitions=2)
    topics.produce(servers, topic, [Sent(key=b"k", value=b"%d" % n, partition=n % 2) for n in range(20)])
    found = read_all(servers, {(topic, 0): 7, (topic, 1): 10}, {(topic, 0): 3, (topic, 1): 10})
    assert found == {0: [(b"k", b"%d" % (2 * n)) for n in range(3, 7)]}


def test_reads_many_records_in_order(servers: str) -> None:
    topic = new_topic(servers, partitions=3)
    count = 60_000
    topics.produce(servers, topic, [Sent(key=b"%d" % n, value=b"%d" % n, partition=n % 3) for n in range(count)])
    found = read_all(servers, ends_of(servers, topic, 3), piece=7_000)
    assert found == {part: [(b"%d" % n, b"%d" % n) for n in range(part, count, 3)] for part in range(3)}


def test_reads_to_an_end_that_was_compacted(servers: str, application: str) -> None:
    topic = new_topic(
        servers, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
    )
    with publisher(config(servers), application, topic) as target:
        for epoch in range(30):
            target.begin()
            target.produce(rows(row(b"%d" % epoch), row(None, key=b"deleted")))
            target.send_offsets([])
            assert target.commit()
    ends = ends_of(servers, topic, 1)
    found = read_all(servers, ends)[0]
    assert [value for key, value in found if key == b"k"][-1] == b"29"


def test_a_position_that_was_deleted_is_an_error(servers: str, admin: AdminClient) -> None:
    topic = new_topic(servers)
    topics.produce(servers, topic, [Sent(key=b"k", value=b"v")] * 10)
    admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result()
    with pytest.raises(StateError, match=rf"{topic}-0: the changelog no longer has the offset to continue from\. Rebuild"):
        read_all(servers, {(topic, 0): 10}, {(topic, 0): 2})
    assert len(read_all(servers, {(topic, 0): 10}, {(topic, 0): 5})[0]) == 5


def test_unreachable_brokers_are_an_error() -> None:
    nowhere = Config.load(environment={}, bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(BrokerError):
        list(read(consumer_settings(nowhere, "app"), {}, {("topic", 0): 5}, 1_000))
