"""What the application needs, checked against what brokers and topics allow."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError, PenstockError, TopicError
from penstock.kafka.limits import refusals, warnings
from penstock.kafka.topics import Topic

BROKER = {"transaction.max.timeout.ms": "900000", "offsets.retention.minutes": "10080"}
TOPIC = Topic("out", "id", 3, {"max.message.bytes": "1048588", "min.insync.replicas": "2"}, 3)


def config(**settings: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers="localhost:9092", **settings)


def found(settings: Config, broker: dict[str, str] = BROKER, topic: Topic = TOPIC) -> list[PenstockError]:
    return list(refusals(settings, broker, [topic]))


@pytest.mark.security(16)
class TestLimits:
    def test_sufficient_limits_cause_no_message(self) -> None:
        assert found(config()) == []
        assert list(warnings(BROKER)) == []

    def test_a_transaction_timeout_above_the_brokers_maximum_is_refused(self) -> None:
        [error] = found(config(transaction_timeout="16m"))
        assert isinstance(error, ConfigError)
        assert str(error).startswith("transaction_timeout: the brokers allow at most 900000 ms")
        assert found(config(transaction_timeout="16m", guarantee="at_least_once")) == []
        assert found(config(transaction_timeout="15m")) == []

    @pytest.mark.parametrize("name", ["batch.size", "producer.batch.size"])
    def test_a_batch_size_above_a_topics_limit_is_refused(self, name: str) -> None:
        [error] = found(config(kafka={name: 2_000_000}))
        assert isinstance(error, ConfigError)
        assert str(error).startswith(f"kafka: '{name}' exceeds the 1048588 bytes that topic 'out' accepts")
        assert found(config(kafka={name: 1_000_000})) == []

    def test_a_record_limit_above_one_topics_limit_is_accepted(self) -> None:
        """Each record is checked against its own topic before it is sent."""
        assert found(config(kafka={"producer.message.max.bytes": 2_000_000})) == []

    def test_a_topic_with_too_few_replicas_is_refused(self) -> None:
        [error] = found(config(), topic=Topic("out", "id", 3, TOPIC.config, 1))
        assert isinstance(error, TopicError)
        assert str(error).startswith("Topic 'out' has 1 replicas but needs 2 for every write")

    def test_each_problem_has_its_own_message(self) -> None:
        lone = Topic("out", "id", 3, TOPIC.config, 1)
        assert len(found(config(transaction_timeout="16m", kafka={"batch.size": 2_000_000}), topic=lone)) == 3

    def test_offsets_that_expire_overnight_cause_a_warning(self) -> None:
        [said] = warnings({"offsets.retention.minutes": "60"})
        assert "down for 60 minutes" in said

    def test_a_broker_with_unreadable_settings_causes_no_message(self) -> None:
        """The client may lack the permission to read them. Then the broker itself refuses a long transaction."""
        assert found(config(transaction_timeout="16m"), broker={}) == []
        assert list(warnings({})) == []
