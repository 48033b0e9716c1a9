"""A real broker, and librdkafka, keep the contract that the simulated Kafka is held to."""

from __future__ import annotations

import pytest

from penstock.kafka.opening import Librdkafka
from tests.contracts.kafka import Contract, Side


class TestReal(Contract):
    @pytest.fixture
    def side(self, servers: str) -> Side:
        return Side(Librdkafka(), {"bootstrap.servers": servers, "log_level": "4"})
