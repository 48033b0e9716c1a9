"""The shared broker with a topic to have offsets of, and an application of its own for each test."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from penstock.kafka.clients import open_admin
from tests.jvm.kafka.live_topics import config
from verification.harness import topics
from verification.harness.broker import Broker


@pytest.fixture(scope="session")
def servers(broker: Broker) -> str:
    topics.create(broker.bootstrap_servers, "input", partitions=3)
    return broker.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> AdminClient:
    """To be held on to: what one that is gone was asked is never answered."""
    return open_admin(config(servers))


@pytest.fixture
def application() -> str:
    return f"app-{uuid4().hex[:8]}"
