"""The shared broker with an input topic, and a new application id for each test."""

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
    """An admin client; keep a reference to it, because its pending requests never complete once it is collected."""
    return open_admin(config(servers))


@pytest.fixture
def application() -> str:
    return f"app-{uuid4().hex[:8]}"
