"""The harness itself: brokers that are killed and restarted, a cluster, a network that fails."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from verification.harness import topics
from verification.harness.broker import Broker, Cluster
from verification.harness.processes import HarnessError, free_port
from verification.harness.topics import Received, Sent
from verification.harness.toxiproxy import Toxiproxy

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def answers(bootstrap_servers: str, timeout_s: float = 10) -> bool:
    try:
        AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True


def test_a_record_is_read_as_it_was_written(own: Broker) -> None:
    topics.create(own.bootstrap_servers, "written", partitions=3)
    sent = Sent(key=b"k", value=b"v", partition=2, timestamp=7, headers=[("h", b"1"), ("h", None)])
    topics.produce(own.bootstrap_servers, "written", [sent, Sent(value=None, partition=0, timestamp=8)])
    assert topics.read(own.bootstrap_servers, "written") == [
        Received(partition=0, offset=0, timestamp=8, key=None, value=None, headers=()),
        Received(partition=2, offset=0, timestamp=7, key=b"k", value=b"v", headers=(("h", b"1"), ("h", None))),
    ]


def test_reading_returns_committed_records_and_ends_after_the_markers(own: Broker) -> None:
    servers = own.bootstrap_servers
    topics.create(servers, "transactional")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "harness"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transactional", b"committed")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    offsets = [TopicPartition("transactional", 0, 5, metadata="epoch 1")]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    consumer.close()
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("transactional", b"open")
    producer.flush(30)

    assert topics.open_transactions(servers) == {"harness"}
    assert topics.end_offsets(servers, "transactional") == {0: 2}
    assert topics.end_offsets(servers, "transactional", committed=False) == {0: 3}
    assert [record.value for record in topics.read(servers, "transactional")] == [b"committed"]
    assert [record.value for record in topics.read(servers, "transactional", committed=False)] == [b"committed", b"open"]

    producer.abort_transaction(30)
    assert topics.transactions(servers) == {"harness": "CompleteAbort"}
    assert not topics.open_transactions(servers)
    assert [record.value for record in topics.read(servers, "transactional")] == [b"committed"]
    assert topics.group_offsets(servers, "readers") == {("transactional", 0): (5, "epoch 1")}
    assert "readers" in topics.describe_group(servers, "readers")


@pytest.mark.slow  # brokers start again and again
def test_data_survives_stopping_and_killing() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        topics.create(servers, "kept")
        topics.produce(servers, "kept", [Sent(value=b"before")])

        broker.kill()
        assert not answers(servers, timeout_s=1)
        broker.start()
        assert [record.value for record in topics.read(servers, "kept")] == [b"before"]

        topics.produce(servers, "kept", [Sent(value=b"after")])
        broker.restart()
        assert [record.value for record in topics.read(servers, "kept")] == [b"before", b"after"]


def test_a_paused_broker_hangs_until_it_is_resumed(own: Broker) -> None:
    own.pause()
    try:
        assert not answers(own.bootstrap_servers, timeout_s=1)
    finally:
        own.resume()
    assert answers(own.bootstrap_servers)


def test_a_broker_that_cannot_start_says_why() -> None:
    broker = Broker(settings={"log.segment.bytes": "many"})
    try:
        with pytest.raises(HarnessError, match=r"log\.segment\.bytes"):
            broker.start()
    finally:
        broker.close()


@pytest.mark.slow  # three brokers start
def test_a_cluster_of_three_survives_the_death_of_one() -> None:
    with Cluster(3) as cluster:
        topics.create(cluster.bootstrap_servers, "replicated", partitions=3)
        topics.produce(cluster.bootstrap_servers, "replicated", [Sent(value=b"before", partition=n) for n in range(3)])
        cluster.brokers[0].kill()
        topics.produce(cluster.bootstrap_servers, "replicated", [Sent(value=b"after", partition=n) for n in range(3)])
        assert [record.value for record in topics.read(cluster.bootstrap_servers, "replicated")] == [b"before", b"after"] * 3


def test_the_network_can_be_cut_delayed_and_restored() -> None:
    with Toxiproxy() as network, Broker(proxied_port=free_port()) as broker:
        assert broker.proxied_port is not None
        proxy = network.proxy(broker.upstream, broker.proxied_port)
        servers = broker.proxied_bootstrap_servers
        topics.create(servers, "behind")
        brokers = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).brokers.values()
        assert [f"{node.host}:{node.port}" for node in brokers] == [servers]

        for fault in (proxy.cut, proxy.hang):
            fault()
            assert not answers(servers, timeout_s=1)
            assert answers(broker.bootstrap_servers)
            proxy.restore()
            assert answers(servers)

        proxy.delay(300)
        start = time.monotonic()
        assert answers(servers)
        assert time.monotonic() - start > 0.3
        proxy.restore()
        topics.produce(servers, "behind", [Sent(value=b"v")])
        assert [record.value for record in topics.read(broker.bootstrap_servers, "behind")] == [b"v"]
