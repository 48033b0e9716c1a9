"""Topics and offsets, as a real broker reports them."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.config import Config
from penstock.errors import BrokerError, ConfigError, TopicError
from penstock.kafka.clients import consumer_settings, open_admin, open_consumer
from penstock.kafka.offsets import committed, read_committed, refuse_members
from penstock.kafka.topics import InternalTopic, Topics
from tests.jvm.kafka.live_topics import at, config, new_topic, offset_of, publisher, rows, wait_until_settled
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import free_port, wait_until

pytestmark = pytest.mark.jvm


@pytest.fixture
def broker_topics(admin: AdminClient) -> Topics:
    return Topics(admin, 20_000)


def internal(partitions: int = 4, **settings: str) -> InternalTopic:
    return InternalTopic(f"app-{uuid4().hex[:8]}-changelog", partitions, settings)


def test_describes_existing_topics_only(broker_topics: Topics, servers: str) -> None:
    name = new_topic(servers, partitions=3, max_message_bytes="2000")
    found = broker_topics.describe([name, "no-such-topic"])
    assert list(found) == [name]
    assert (found[name].name, found[name].partitions, found[name].max_message_bytes) == (name, 3, 2_000)
    assert found[name].topic_id
    assert found[name] == broker_topics.describe([name])[name]
    assert broker_topics.describe([]) == {}
    assert name in broker_topics.names()


def test_a_topic_that_is_created_again_has_another_id(broker_topics: Topics, admin: AdminClient, servers: str) -> None:
    name = new_topic(servers)
    before = broker_topics.describe([name])[name].topic_id
    admin.delete_topics([name])[name].result()
    wait_until("it is gone", lambda: not broker_topics.describe([name]), 20)
    topics.create(servers, name)
    assert broker_topics.describe([name])[name].topic_id != before


def test_creates_internal_topics_once(broker_topics: Topics) -> None:
    wanted = InternalTopic(f"app-{uuid4().hex[:8]}-changelog", 4, {"cleanup.policy": "compact,delete", "retention.ms": "5000"})
    created = broker_topics.ensure([wanted], -1)[wanted.name]
    assert (created.partitions, created.config["cleanup.policy"]) == (4, "compact,delete")
    assert created.config["retention.ms"] == "5000"
    assert broker_topics.ensure([wanted], -1)[wanted.name] == created
    assert broker_topics.ensure([], -1) == {}


def test_refuses_internal_topics_with_wrong_settings(broker_topics: Topics) -> None:
    name = f"app-{uuid4().hex[:8]}-changelog"
    broker_topics.ensure([InternalTopic(name, 4, {"cleanup.policy": "compact"})], 1)
    with pytest.raises(TopicError, match=rf"'{name}' has 4 partitions but needs 8: .*\. Set shards to 4, or reset"):
        broker_topics.ensure([InternalTopic(name, 8, {"cleanup.policy": "compact"})], 1)
    with pytest.raises(TopicError, match=r"cleanup.policy 'compact' but needs 'compact,delete'\. Set it there"):
        broker_topics.ensure([InternalTopic(name, 4, {"cleanup.policy": "compact,delete"})], 1)


def test_says_why_a_topic_cannot_be_created(broker_topics: Topics) -> None:
    with pytest.raises(TopicError, match=r"Cannot create topic .*: .*eplication"):
        broker_topics.ensure([internal()], 3)
    with pytest.raises(TopicError, match="Cannot describe topic 'not/a/name': Broker: Invalid topic"):
        broker_topics.ensure([InternalTopic("not/a/name", 1)], 1)


def test_ends_count_control_records_but_not_open_transactions(
    broker_topics: Topics, admin: AdminClient, servers: str, application: str
) -> None:
    name = new_topic(servers, partitions=3)
    places = [(name, number) for number in range(3)]
    assert broker_topics.end_offsets(places) == dict.fromkeys(places, 0)
    with publisher(config(servers), application, name) as target:
        target.begin()
        target.produce(rows(*[{**rows(b"v").to_pylist()[0], "partition": 1}] * 2))
        target.send_offsets([])
        assert target.commit()
        wait_until_settled(servers, name)
        assert broker_topics.end_offsets(places) == {places[0]: 0, places[1]: 3, places[2]: 0}
        target.begin()
        target.produce(rows({**rows(b"open").to_pylist()[0], "partition": 1}))
        target._producer.client.flush()
        assert broker_topics.end_offsets(places)[places[1]] == 3
        target.abort()
    wait_until_settled(servers, name)
    assert broker_topics.end_offsets(places)[places[1]] == 5
    assert broker_topics.begin_offsets(places) == dict.fromkeys(places, 0)
    admin.delete_records([TopicPartition(name, 1, 2)])[TopicPartition(name, 1)].result()
    assert broker_topics.begin_offsets(places)[places[1]] == 2
    assert broker_topics.end_offsets([]) == {}


def test_settled_ends_have_a_commit_at_once(broker_topics: Topics, servers: str, application: str) -> None:
    name = new_topic(servers, partitions=16)
    places = [(name, number) for number in range(16)]
    with publisher(config(servers), application, name) as target:
        for commits in range(1, 21):
            target.begin()
            target.produce(rows(*[{**rows(b"v").to_pylist()[0], "partition": number} for _, number in places]))
            target.send_offsets([])
            assert target.commit()
            ends = broker_topics.settled_ends(places)  # end_offsets often have the commit before this one only
            assert ends == dict.fromkeys(places, 2 * commits)
            assert broker_topics.end_offsets(places) == ends


def test_a_transaction_that_does_not_end_is_an_error_which_names_it(admin: AdminClient, servers: str, application: str) -> None:
    name = new_topic(servers)
    with publisher(config(servers), application, name) as target:
        target.begin()
        target.produce(rows(b"open"))
        target._producer.client.flush()
        with pytest.raises(TopicError, match=rf"A transaction in {name}-0 has not ended within 1 s"):
            Topics(admin, 1_000).settled_ends([(name, 0)])
        target.abort()


def test_ends_of_new_partitions_are_requested_until_they_have_leaders(broker_topics: Topics) -> None:
    wanted = internal(partitions=64)
    broker_topics.ensure([wanted], -1)
    assert len(broker_topics.end_offsets([(wanted.name, number) for number in range(64)])) == 64


@pytest.mark.slow
def test_offsets_are_read_after_a_broker_was_killed() -> None:
    """The broker then has a new leader epoch, and the client still has the old one."""
    with Broker() as broker:
        name = new_topic(broker.bootstrap_servers, partitions=2)
        broker_topics = Topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), 20_000)
        places = [(name, 0), (name, 1)]
        before = broker_topics.end_offsets(places)
        broker.kill()
        broker.start()
        assert broker_topics.end_offsets(places) == before


def test_unreachable_brokers_are_an_error() -> None:
    nowhere = Config.load(environment={}, bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(BrokerError, match="Cannot describe topic 'topic'"):
        Topics(open_admin(nowhere), 1_000).describe(["topic"])
    with pytest.raises(BrokerError, match="Cannot read committed offsets"):
        read_committed(consumer_settings(nowhere, "app"), [("input", 0)], 1_000)


def test_offsets_of_an_open_transaction_are_awaited(servers: str, application: str) -> None:
    consumer = open_consumer(consumer_settings(config(servers), application))
    assert committed(consumer, [], 1_000) == {}
    with publisher(config(servers), application) as target:
        target.begin()
        target.send_offsets([at(1, "first")])
        assert target.commit()
        assert offset_of(servers, application) == (1, "first")
        target.begin()
        target.send_offsets([at(2, "second")])
        with pytest.raises(BrokerError):
            committed(consumer, [("input", 0)], 1_000)
        target.abort()
        assert committed(consumer, [("input", 0), ("input", 1)], 20_000) == {("input", 0): (1, "first"), ("input", 1): None}
    consumer.close()


def test_a_group_with_members_is_refused(servers: str, admin: AdminClient, application: str) -> None:
    refuse_members(admin, application, 20_000)
    member = Consumer({"bootstrap.servers": servers, "group.id": application, "client.id": "intruder"})
    member.subscribe(["input"])

    def has_joined() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    wait_until("the member has joined", has_joined, 30)
    with pytest.raises(
        ConfigError, match=rf"Group '{application}' has members \(intruder at .*\): they use the application's id"
    ):
        refuse_members(admin, application, 20_000)
    member.close()
    refuse_members(admin, application, 20_000)
