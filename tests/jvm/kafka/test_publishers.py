"""Epochs published to a real broker: in one transaction each, by a single instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from os import urandom

import pyarrow as pa
import pytest

from penstock.config import Config
from penstock.errors import CommitError, ConfigError, FencedError, ProductionError, TopicError
from penstock.kafka.commit import Committer, Phase
from penstock.kafka.publishers import AtLeastOncePublisher, TransactionalPublisher
from tests.jvm.kafka.live_topics import at, config, new_topic, offset_of, publisher, row, rows, values, wait_until_settled
from verification.harness import topics
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm


def publish(target: TransactionalPublisher, *batches: pa.RecordBatch, offset: int = 1) -> None:
    target.begin()
    for batch in batches:
        target.produce(batch)
    target.send_offsets([at(offset)])


def test_publishes_rows_unchanged(servers: str, application: str) -> None:
    first, second = new_topic(servers, partitions=3), new_topic(servers)
    with publisher(config(servers), application, first, second) as target:
        target.begin()
        target.produce(
            rows(
                row(b"in 2", partition=2, key=b"a", timestamp=7, headers=[("h", b"1"), ("h", None)]),
                row(None, partition=1, key=b"b", timestamp=0),
                row(b"no key", partition=0, key=None, timestamp=1_700_000_000_000, headers=[]),
                row(b"by code", name=1),
                row(b"by name", name=-1, topic=second, kind=3),
            )
        )
        target.send_offsets([at(42, '{"é": 1}'), at(0, "", partition=1)])
        assert target.commit()
    wait_until_settled(servers, first)
    found = {record.value: record for record in topics.read(servers, first)}
    assert found[b"in 2"].partition == 2
    assert (found[b"in 2"].key, found[b"in 2"].timestamp, found[b"in 2"].headers) == (b"a", 7, (("h", b"1"), ("h", None)))
    assert (found[None].partition, found[None].key, found[None].timestamp) == (1, b"b", 1)
    assert (found[b"no key"].key, found[b"no key"].timestamp, found[b"no key"].headers) == (None, 1_700_000_000_000, ())
    assert values(servers, second) == [b"by code", b"by name"]
    assert offset_of(servers, application) == (42, '{"é": 1}')
    assert offset_of(servers, application, partition=1) == (0, "")
    assert offset_of(servers, application, partition=2) is None


def test_a_key_goes_where_java_would_send_it(servers: str, application: str) -> None:
    topic = new_topic(servers, partitions=10)
    by_java = {b"21": 0, b"foobar": 6, b"a-little-bit-long-string": 2}  # from the tests of Kafka's client
    with publisher(config(servers), application, topic) as target:
        publish(target, rows(*(row(b"", key=key) for key in by_java)))
        assert target.commit()
    wait_until_settled(servers, topic)
    assert {record.key: record.partition for record in topics.read(servers, topic)} == by_java


def test_a_windowed_key_goes_where_kafka_streams_would_send_it(servers: str, application: str) -> None:
    topic = new_topic(servers, partitions=10)
    chosen = {b"ann": 4, b"bob": 8, b"a-little-bit-long-string": 2}  # by its WindowedStreamPartitioner
    sent = [row(b"", key=key + start.to_bytes(8, "big"), partition=-8) for key in chosen for start in (0, 10, 20)]
    with publisher(config(servers), application, topic) as target:
        publish(target, rows(*sent))
        assert target.commit()
    wait_until_settled(servers, topic)
    assert {(record.key[:-8], record.partition) for record in topics.read(servers, topic) if record.key} == set(chosen.items())


def test_large_batches_are_sent_in_order(servers: str, application: str) -> None:
    topic = new_topic(servers, partitions=2)
    settings = config(servers, kafka={"producer.queue.buffering.max.messages": 10_000})
    sent = [b"%d" % number for number in range(50_000)]
    with publisher(settings, application, topic) as target:
        publish(target, rows(*(row(value, partition=number % 2) for number, value in enumerate(sent))))
        while not target.commit():
            pass
    assert values(servers, topic) == sent[::2] + sent[1::2]


def test_nothing_is_visible_before_the_commit_nor_after_an_abort(servers: str, application: str) -> None:
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as target:
        publish(target, rows(b"aborted"))
        target._producer.client.flush()
        assert not topics.read(servers, topic)
        assert [record.value for record in topics.read(servers, topic, committed=False)] == [b"aborted"]
        target.abort()
        publish(target, rows(b"committed"), offset=2)
        assert target.commit()
    assert values(servers, topic) == [b"committed"]
    assert offset_of(servers, application) == (2, "m")
    assert application not in topics.open_transactions(servers)


def test_an_epoch_may_have_only_offsets_or_nothing(servers: str, application: str) -> None:
    with publisher(config(servers), application) as target:
        publish(target, offset=3)
        assert target.commit()
        target.begin()
        target.send_offsets([])
        assert target.commit()
    assert offset_of(servers, application) == (3, "m")


STEPS = ["begin", "produce", "offsets", "commit"]


def steps(target: TransactionalPublisher) -> list[Callable[[], object]]:
    return [target.begin, lambda: target.produce(rows(b"zombie")), lambda: target.send_offsets([at(9)]), target.commit]


def call(functions: list[Callable[[], object]]) -> None:
    for function in functions:
        function()


@pytest.mark.parametrize("when", range(len(STEPS)), ids=STEPS)
def test_a_second_instance_fences_the_first(servers: str, application: str, when: int) -> None:
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as first:
        publish(first, rows(b"before"))
        assert first.commit()
        call(steps(first)[:when])
        first._producer.client.flush(5)
        with publisher(config(servers), application, topic) as second:
            with pytest.raises(FencedError, match="another instance"):
                call(steps(first)[when:])
            publish(second, rows(b"after"), offset=2)
            assert second.commit()
    assert values(servers, topic) == [b"before", b"after"]
    assert offset_of(servers, application) == (2, "m")


def keep_sending(target: TransactionalPublisher) -> None:
    for _ in range(100):
        target.produce(rows(b"zombie"))
        time.sleep(0.1)


def test_a_fenced_instance_says_so_even_if_it_notices_while_it_sends_records(servers: str, application: str) -> None:
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as first:
        publish(first, rows(b"before"))
        assert first.commit()
        with publisher(config(servers), application, topic):
            first.begin()
            with pytest.raises(FencedError, match="another instance"):
                keep_sending(first)
    assert values(servers, topic) == [b"before"]


def test_the_barrier_fails_when_it_is_fenced(servers: str, application: str) -> None:
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as first:
        committer = Committer(first)
        committer.commit(0, [rows(b"0")], [at(1)])
        with publisher(config(servers), application, topic):
            with pytest.raises(FencedError):
                committer.commit(1, [rows(b"1")], [at(2)])
            assert committer.phase is Phase.FAILED
    assert values(servers, topic) == [b"0"]


def test_a_transaction_that_exceeded_its_timeout_is_reported(servers: str, application: str) -> None:
    topic = new_topic(servers)
    with publisher(config(servers, transaction_timeout="1s"), application, topic) as target:
        publish(target, rows(b"late"))
        target._producer.client.flush()
        wait_until("the broker has aborted it", lambda: application not in topics.open_transactions(servers), 20)
        with pytest.raises(CommitError, match="longer than transaction_timeout, so the broker aborted it"):
            target.commit()
    assert values(servers, topic) == []


def test_a_timeout_above_the_brokers_maximum_is_refused(servers: str, application: str) -> None:
    target = TransactionalPublisher(config(servers, transaction_timeout="16m"), application, application, [])
    with pytest.raises(
        ConfigError, match=r"transaction_timeout: it exceeds the brokers' maximum \(their transaction.max.timeout"
    ):
        target.start()


def test_a_missing_topic_is_named(servers: str, application: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.kafka.partition_counts._PROPAGATION_S", 0.5)
    refusal = pytest.raises(TopicError, match=r"Topic 'no-such-topic' .*Unknown topic")
    with publisher(config(servers), application, "no-such-topic") as target, refusal:
        publish(target, rows(b"lost"))
    assert offset_of(servers, application) is None


def test_a_missing_partition_is_refused(servers: str, application: str) -> None:
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as target:
        Committer(target).commit(0, [rows(b"here")], [at(1)])
        with pytest.raises(TopicError, match="Unknown partition"):
            Committer(target).commit(1, [rows(b"", row(b"lost", partition=7))], [at(2)])
    assert values(servers, topic) == [b"here"]


def test_a_record_that_the_topic_refuses_is_named(servers: str, application: str) -> None:
    topic = new_topic(servers, max_message_bytes="1000")
    refusal = pytest.raises(ProductionError, match=rf"Topic '{topic}' \(1 record\(s\) not delivered\): .*too large")
    with publisher(config(servers), application, topic) as target, refusal:
        Committer(target).commit(0, [rows(row(urandom(5_000)))], [at(1)])
    with publisher(config(servers), application, topic) as target:
        publish(target, rows(b"small"))
        assert target.commit()
    assert values(servers, topic) == [b"small"]


def test_a_record_refused_before_the_offsets_are_sent_is_named_too(servers: str, application: str) -> None:
    topic = new_topic(servers, max_message_bytes="1000")
    with publisher(config(servers), application, topic) as target:
        target.begin()
        target.produce(rows(row(urandom(5_000))))
        time.sleep(1)
        with pytest.raises(ProductionError, match=rf"Topic '{topic}' \(1 record\(s\) not delivered\): .*too large"):
            target.send_offsets([at(1)])


def test_no_batch_exceeds_the_limit_of_the_smallest_topic(servers: str, application: str) -> None:
    topic = new_topic(servers, max_message_bytes="2000")
    sent = [bytes([number]) * 500 for number in range(100)]
    settings = config(servers, kafka={"producer.compression.type": "none"})
    with publisher(settings, application, topic, limits=[2_000, 1_000_000]) as target:
        publish(target, rows(*(row(value) for value in sent)))
        assert target.commit()
    assert values(servers, topic) == sent


def test_unknown_client_settings_are_refused(servers: str, application: str) -> None:
    settings = config(servers, kafka={"producer.no.such.setting": 1})
    with pytest.raises(ConfigError, match=r'No such configuration property: "no\.such\.setting"'):
        TransactionalPublisher(settings, application, application, []).start()


def at_least_once(servers: str, application: str, *names: str, **overrides: object) -> AtLeastOncePublisher:
    settings: Config = config(servers, guarantee="at_least_once", **overrides)
    return AtLeastOncePublisher(settings, application, names)


def test_at_least_once_commits_offsets_after_the_records(servers: str, application: str) -> None:
    topic = new_topic(servers)
    target = at_least_once(servers, application, topic)
    target.start()
    committer = Committer(target)
    committer.commit(0, [rows(b"0", b"1"), rows(b"2")], [at(1, "m0")])
    committer.commit(1, [], [at(2, '{"é": 1}')])
    committer.commit(2, [rows(b"3")], [])
    target.check()
    target.close()
    assert values(servers, topic) == [b"0", b"1", b"2", b"3"]
    assert offset_of(servers, application) == (2, '{"é": 1}')


def test_at_least_once_commits_no_offsets_if_a_record_was_not_delivered(servers: str, application: str) -> None:
    topic = new_topic(servers, max_message_bytes="1000")
    target = at_least_once(servers, application, topic)
    committer = Committer(target)
    committer.commit(0, [rows(b"0")], [at(1)])
    with pytest.raises(ProductionError, match=rf"Topic '{topic}'"):
        committer.commit(1, [rows(row(urandom(5_000)), b"1")], [at(2)])
    target.close()
    assert offset_of(servers, application) == (1, "m")


def test_at_least_once_drops_aborted_records(servers: str, application: str) -> None:
    topic = new_topic(servers)
    target = at_least_once(servers, application, topic, kafka={"producer.linger.ms": 60_000})
    Committer(target).write([rows(b"kept")])  # what a partition gets first is sent at once
    target.begin()
    target.produce(rows(b"dropped"))
    target.abort()
    target.close()
    assert values(servers, topic) == [b"kept"]
