"""Leaders that refuse what a producer sends to a partition first, and accept what it has sent after it: nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.config import Guarantee
from penstock.kafka.commit import Committer
from penstock.kafka.publishers import publisher_of
from tests.jvm.kafka.live_topics import at, config, new_topic, row, rows, values
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import free_port
from verification.harness.refusing_leader import RefusingLeader

pytestmark = pytest.mark.jvm

BETWEEN_S = 0.1
"""Longer than a batch waits for more records, so that two of them are on their way."""


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    with Broker(proxied_port=free_port()) as running:
        topics.create(running.bootstrap_servers, "input", partitions=3)
        yield running


@pytest.fixture
def leader(own: Broker) -> Iterator[RefusingLeader]:
    assert own.proxied_port is not None
    with RefusingLeader(own.proxied_port, own.upstream) as refusing:
        yield refusing


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_refused_first_batch_is_not_lost(own: Broker, leader: RefusingLeader, application: str, guarantee: Guarantee) -> None:
    topic, other = new_topic(own.bootstrap_servers, partitions=2), new_topic(own.bootstrap_servers)
    target = publisher_of(config(own.proxied_bootstrap_servers, guarantee=guarantee), application, [topic, other])
    target.start()
    Committer(target).write([rows(row(b"connects", name=1))])
    target.begin()
    for number in range(3):
        sent = [row(b"%d-%d" % (number, partition), partition=partition) for partition in (0, 1)]
        target.produce(rows(*sent))
        time.sleep(BETWEEN_S)
    target.send_offsets([at(1)])
    while not target.commit():
        pass
    target.close()
    assert sorted(leader.refused) == sorted([(topic, 0), (topic, 1), (other, 0)])
    assert values(own.bootstrap_servers, topic) == [b"%d-%d" % (number, partition) for partition in (0, 1) for number in range(3)]


def test_librdkafka_alone_loses_it(own: Broker, leader: RefusingLeader) -> None:
    """If this fails, `FirstWrites` may no longer be needed."""
    topic, other = new_topic(own.bootstrap_servers), new_topic(own.bootstrap_servers)
    settings = {"bootstrap.servers": own.proxied_bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
    reports: list[str] = []
    producer = Producer({**settings, "on_delivery": lambda error, message: reports.append(str(error))})
    producer.produce(other, b"connects", partition=0)
    assert producer.flush(30) == 0
    for value in (b"0", b"1"):
        producer.produce(topic, value, partition=0)
        time.sleep(BETWEEN_S)
    assert producer.flush(30) == 0
    assert (reports, leader.refused) == (["None"] * 3, [(other, 0), (topic, 0)])
    assert values(own.bootstrap_servers, topic) == [b"1"]
