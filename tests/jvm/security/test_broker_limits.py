"""A real broker with limits that are too low: the application does not start, and names the setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka.clients import open_admin
from penstock.kafka.limits import refusals, warnings
from penstock.kafka.publishers import TransactionalPublisher
from penstock.kafka.topics import Topics
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = [pytest.mark.jvm, pytest.mark.security(16)]


@pytest.fixture(scope="module")
def narrow() -> Iterator[Broker]:
    settings = {"transaction.max.timeout.ms": "20000", "offsets.retention.minutes": "30"}
    with Broker(settings=settings) as broker:
        topics.create(broker.bootstrap_servers, "small", config={"max.message.bytes": "2000"})
        topics.create(broker.bootstrap_servers, "stuck", config={"min.insync.replicas": "2"})
        yield broker


def config(broker: Broker, **settings: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers=broker.bootstrap_servers, broker_timeout="10s", **settings)


def test_every_limit_is_checked(narrow: Broker) -> None:
    wanted = config(narrow, kafka={"producer.batch.size": 5_000})
    admin = open_admin(wanted)
    found = Topics(admin, 20_000)
    known = found.describe(["small", "stuck"])
    said = [str(error) for error in refusals(wanted, found.broker_settings(), known.values())]
    assert [text.split(":")[0] for text in said] == [
        "transaction_timeout",
        "kafka",
        "Topic 'stuck' has 1 replicas but needs 2 for every write (min.insync.replicas)",
    ]
    assert len(list(warnings(found.broker_settings()))) == 1


def test_the_broker_itself_refuses_a_long_transaction(narrow: Broker) -> None:
    """For an application that is not allowed to read the brokers' settings."""
    publisher = TransactionalPublisher(config(narrow), "limited", "limited", [])
    with pytest.raises(ConfigError, match="transaction_timeout: it exceeds the brokers' maximum"):
        publisher.start()
